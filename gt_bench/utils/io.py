"""Atomic writes of files, safe reads, and locks on files."""

import contextlib
import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import BaseModel

from gt_bench.utils.errors import UserError

FIX_AND_RETRY = "fix this and run the command again"
DISK_FULL = "the disk is full; free some space and run the same command again to resume"


class WriteError(UserError, RuntimeError):
    """A file could not be written; the message names the file and what to do. No file was changed."""


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error of the system, or a WriteError that it caused, means that a disk is full."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


def is_plain_name(name: str) -> bool:
    """Return whether `name` is a valid name of a file or folder: not empty, not hidden, without a path."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", name) is not None


def write_json(path: Path, content: Any) -> Path:
    """Write JSON with `atomic_file`. Raises WriteError."""
    text = json.dumps(content, indent=1, allow_nan=True, default=json_value)
    return write_bytes(path, (text + "\n").encode())


def json_value(content: object) -> Any:
    """Returns the JSON value of an object that JSON does not know, for `json.dumps(default=json_value)`.

    Raises:
        TypeError: it is no model of pydantic.
    """
    if isinstance(content, BaseModel):
        return content.model_dump(mode="json")
    raise TypeError(f"{type(content).__name__} is no JSON value")


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file with `atomic_file`, and return it. Raises WriteError; `path` is then unchanged."""
    with atomic_file(path) as temporary:
        Path(temporary).write_bytes(content)
    return path


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[str]:
    """Yield a temporary file, which is flushed to disk after the block and then replaces the file that `path` leads to.

    A symbolic link remains, and its target is replaced.

    Raises:
        WriteError: the disk is full, permission is missing, or `path` exists and is not a regular file. `path` is
            unchanged, as after any other exception.
    """
    with write_errors(path):
        target = Path(os.path.realpath(path))
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise WriteError("not a regular file", file=path, remedy="choose another name")
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = new_file(target)
        try:
            yield temporary
            with open(temporary, "r+b") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system into a WriteError that names `path`."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise WriteError(DISK_FULL, file=path) from error
        raise WriteError(f"cannot be written ({error.strerror})", file=path, remedy=FIX_AND_RETRY) from error


def new_file(path: Path) -> str:
    """Create an empty temporary file next to `path` and return its name.

    Its permissions follow the umask of the user; `tempfile` would set 0600.

    Raises:
        OSError: the file cannot be created.
    """
    while True:
        temporary = str(path.with_name(f".{path.name}.{secrets.token_hex(4)}"))
        with contextlib.suppress(FileExistsError):
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
            return temporary


class UnfitFile(ValueError):
    """A path is not a regular file, or the file is too large; the message names the problem."""


def read_bytes(path: str | Path, at_most: int = 1 << 28) -> bytes:
    """Return the content of a regular file. Devices and FIFOs, which may never end, are not read.

    Args:
        path: of the file.
        at_most: largest size in bytes.

    Raises:
        UnfitFile: not a regular file, or too large.
        OSError: as `open` raises it.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise UnfitFile("not a regular file, but a device, a FIFO or a link to one")
        content = file.read(at_most + 1)
    if len(content) > at_most:
        raise UnfitFile(f"more than {at_most:,} bytes")
    return content


def read_text(path: str | Path, at_most: int = 1 << 28) -> str:
    """Return `read_bytes` decoded as UTF-8.

    Raises:
        UnicodeDecodeError: the file is not UTF-8. Also the errors of `read_bytes`.
    """
    return read_bytes(path, at_most).decode("utf-8")


def check_once(path: Path, last_check: Path, check: Callable[[], None], known: Mapping[str, str] | None = None) -> None:
    """Call `check` unless the file is unchanged since the last call that returned.

    Args:
        path: of the file.
        last_check: file that records size, times and inode of the last check. If it is not writable, each call checks.
        check: raises an exception if the content of the file is wrong.
        known: what the content is compared with, which is recorded too.
    """
    status = path.stat()
    state: dict[str, int | str] = {"inode": status.st_ino, "bytes": status.st_size}
    state |= {"mtime_ns": status.st_mtime_ns, "ctime_ns": status.st_ctime_ns, **(known or {})}
    with contextlib.suppress(OSError, ValueError):
        if json.loads(last_check.read_bytes()) == state:
            return
    check()
    with contextlib.suppress(WriteError):
        write_json(last_check, state)


def make_folder(path: Path) -> Path:
    """Create a folder if it does not exist, and return it.

    Raises:
        WriteError: the folder cannot be created.
    """
    with write_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def hold(lock: FileLock) -> FileLock:
    """Acquire a lock and return it.

    Raises:
        WriteError: the file of the lock cannot be written.
    """
    with write_errors(Path(lock.lock_file)):
        lock.acquire()
    return lock


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of a file inside the block.

    Raises:
        WriteError: the file cannot be written.
    """
    lock = hold(FileLock(path))
    try:
        yield
    finally:
        lock.release()
