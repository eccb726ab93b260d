"""Start of a process that belongs to the benchmark: the stages and `gt-bench`."""

import importlib
import io
import signal
import sys
from typing import NoReturn

from gt_bench.runtime.garbage_collection import search_seldom


def use_utf8() -> None:
    """Read and write UTF-8 on the standard streams, also in a locale that cannot write "±"."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(encoding="utf-8")


def run_module(module: str, function: str = "main") -> NoReturn:
    """Import `module` and exit with the status that its `function()` returns.

    While it is imported, garbage collection is rare, which takes a quarter off the import of torch, and Ctrl-C ends the
    process without a traceback. `status_of` handles Ctrl-C afterwards.
    """
    search_seldom()
    use_utf8()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(getattr(importlib.import_module(module), function)())
