"""Which files of the user a function reads, by Python's audit events.

Files that a library opens outside of Python, such as those of HDF5, are not noticed.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from gt_bench.utils.code_digest import is_installed

_SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr", "/lib", "/lib64")
_opened: list[tuple[set[str], set[str]]] = []  # of each active block: files opened for reading, and for writing


@contextmanager
def files_read() -> Iterator[list[Path]]:
    """Yield a list that has, after the block, the files that the block read and did not write, sorted.

    Code, files of Python and of installed packages, of the system, and of hidden folders (caches) are left out.
    """
    _install_hook()
    found: list[Path] = []
    read, written = set[str](), set[str]()
    _opened.append((read, written))
    try:
        yield found
    finally:
        _opened.remove((read, written))
        found += sorted(path for path in map(Path, read - written) if _counts(path))


def _counts(path: Path) -> bool:
    return (
        path.is_file()
        and path.suffix not in (".py", ".pyc", ".so")
        and not is_installed(path)
        and not any(path.is_relative_to(folder) for folder in (*_SYSTEM, sysconfig.get_path("data")))
        and not any(part.startswith(".") for part in Path(shown_path(path)).parts)
    )


def shown_path(path: Path) -> str:
    """Return a path relative to the current folder if it is below it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


@cache
def _install_hook() -> None:
    """Install the hook on first use. A hook cannot be removed."""
    sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not _opened:
        return
    path, mode, flags = arguments
    if not isinstance(path, str | bytes | os.PathLike):  # a file descriptor
        return
    name = os.path.realpath(os.fsdecode(path))
    writes = (
        any(letter in "wax+" for letter in mode)
        if isinstance(mode, str)
        else isinstance(flags, int) and (flags & (os.O_WRONLY | os.O_RDWR))
    )
    for read, written in _opened:
        (written if writes else read).add(name)
