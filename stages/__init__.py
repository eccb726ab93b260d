"""The pipeline: one module per DVC stage, and the rooms they share. Knows gt_models; nothing knows it."""

import os.path
import signal
import sys

if sys.argv[:1] == ["-m"] or os.path.basename(sys.argv[0]) == "gt-bench":  # a process of ours, not somebody's that imports us
    import io

    from stages.garbage import search_seldom

    search_seldom()
    for stream in (sys.stdin, sys.stdout, sys.stderr):  # of a locale without UTF-8, in which a "±" would be a traceback
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(encoding="utf-8")
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # `python -m stages.NAME`: Ctrl-C while it imports ends it without a traceback; from stages/command.py on it is said in a line
    signal.signal(signal.SIGINT, signal.SIG_DFL)
