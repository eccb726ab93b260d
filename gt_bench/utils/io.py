"""Files that hold either their old content or their new one, never half of it."""

import contextlib
import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

from gt_bench.utils.errors import UserError


class WriteError(UserError, RuntimeError):
    """A file could not be written; the message names it and the remedy. Every file is as it was."""


def is_plain_name(name: str) -> bool:
    """Whether `name` can be a file's or a folder's own name below the folder it is put in: no path, not empty, not hidden."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", name) is not None


def write_json(path: Path, content: Any) -> Path:
    """Writes JSON so that `path` holds either the old or the new content. Raises WriteError on a full disk or missing permission."""
    return write_bytes(path, (json.dumps(content, indent=1, allow_nan=True) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> Path:
    """Atomic write: a temporary file beside `path`, flushed to disk, then renamed. Raises WriteError, leaving no half-written file."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = new_file(path)
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WriteError(
                f"{path}: the disk is full; free some space and run the same command again: it continues where it was"
            ) from error
        raise WriteError(
            f"{path}: cannot be written ({error.strerror}); mend that and run the same command again"
        ) from error
    return path


def new_file(path: Path) -> str:
    """An empty temporary file beside `path`, with the permissions that the user's umask gives: `tempfile` would give 0600. Raises OSError."""
    while True:
        temporary = str(path.with_name(f".{path.name}.{secrets.token_hex(4)}"))
        with contextlib.suppress(FileExistsError):
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            return temporary


class UnfitFile(ValueError):
    """What is at a path is no regular file, or larger than anything that is written there; the message says which."""


def read_bytes(path: str | Path, at_most: int = 1 << 28) -> bytes:
    """The content of a regular file. A link to a device or a FIFO, which would never end, is not read.

    Raises UnfitFile, and OSError as `open` does.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(found.st_mode):
            raise UnfitFile("not a regular file, but a device, a FIFO or a link to one")
        content = file.read(at_most + 1)
    if len(content) > at_most:
        raise UnfitFile(f"more than {at_most:,} bytes")
    return content


def read_text(path: str | Path, at_most: int = 1 << 28) -> str:
    """`read_bytes` as UTF-8. Raises UnicodeDecodeError too."""
    return read_bytes(path, at_most).decode("utf-8")


def make_folder(path: Path) -> Path:
    """The folder, made where it is not there. Raises WriteError, which names it."""
    with _writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def hold(lock: FileLock) -> FileLock:
    """The lock, acquired. Raises WriteError where its file cannot be written."""
    with _writing(Path(lock.lock_file)):
        lock.acquire()
    return lock


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """The lock of this file, for as long as the block takes. Raises WriteError where the file cannot be written."""
    lock = hold(FileLock(path))
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(
            f"{path}: cannot be written ({error.strerror}); mend that and run the same command again"
        ) from error
