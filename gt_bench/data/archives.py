"""Unpack untrusted archives safely: no path escapes the target folder, and sizes are bounded.

Links and devices are refused. Limits bound the unpacked size, the compression ratio and the number of members.
"""

# mypy: disable-error-code="arg-type, assignment, attr-defined, misc, operator"

import bz2
import gzip
import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, cast

from gt_bench.data.readers import dataset_errors
from gt_bench.utils.errors import DatasetError

_CHUNK = 1 << 20
_MAX_HEADER = 1 << 20  # bytes of headers, long names and pax records before one member
_RATIO_THRESHOLD = 16 << 20  # bytes that may be unpacked before the ratio is checked
_OPENERS_BY_MAGIC = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open, b"\x5d\x00\x00": lzma.open}
_OPENERS_BY_SUFFIX = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


class ArchiveError(DatasetError):
    """The archive is damaged, too large, or has a member outside the target folder. Nothing was written."""


_archive_errors = partial(dataset_errors, problem="cannot be unpacked", error_class=ArchiveError)


@dataclass(frozen=True)
class UnpackLimits:
    """Limits of what an archive may unpack to.

    Attributes:
        total: maximum number of bytes unpacked.
        ratio: maximum ratio of unpacked to packed bytes, checked above 16 MiB.
        members: maximum number of members.
    """

    total: int = 64 << 30
    ratio: float = 200.0
    members: int = 1_000_000


def unpack(archive: Path, folder: Path, limits: UnpackLimits = UnpackLimits()) -> Path:
    """Unpack a zip, tar, tar.gz, tar.xz or tar.bz2 file atomically.

    Args:
        archive: the archive.
        folder: the target. It is replaced only if everything could be unpacked.
        limits: limits of the unpacked content.

    Returns:
        `folder`.

    Raises:
        ArchiveError: the archive is damaged or exceeds a limit.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        budget = _Budget(archive, limits)
        with _archive_errors(archive):
            for name, source in _members(archive):
                target = temporary.joinpath(*_safe_path(name).parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                budget.count_member()
                with open(target, "xb") as out:
                    for block in _blocks(source, budget):
                        out.write(block)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def read_member(archive: Path, name: str, limits: UnpackLimits = UnpackLimits(total=1 << 30)) -> bytes:
    """Read one member of a zip or tar archive.

    Args:
        archive: the archive.
        name: the member's path inside the archive.
        limits: limits of the unpacked content.

    Returns:
        The content of the member.

    Raises:
        ArchiveError: the archive is damaged, exceeds a limit, or has no such member.
    """
    budget = _Budget(archive, limits)
    with _archive_errors(archive):
        for member, source in _members(archive):
            budget.count_member()
            if member == name:
                _safe_path(name)
                return b"".join(_blocks(source, budget))
    raise ArchiveError(f"no member named {name!r}", file=archive, value=name)


def decompress(path: Path, limits: UnpackLimits = UnpackLimits(total=4 << 30)) -> bytes:
    """Decompress a .gz, .xz or .bz2 file.

    Args:
        path: the file.
        limits: limits of the decompressed content.

    Returns:
        The decompressed content.

    Raises:
        ArchiveError: the file is damaged, exceeds a limit, or has another suffix.
    """
    if path.suffix not in _OPENERS_BY_SUFFIX:
        raise ArchiveError("not a .gz, .xz or .bz2 file", file=path)
    with _archive_errors(path), _OPENERS_BY_SUFFIX[path.suffix](path, "rb") as source:
        return b"".join(_blocks(source, _Budget(path, limits)))


class _Budget:
    """Counts members and unpacked bytes, and raises ArchiveError if a limit is exceeded."""

    def __init__(self, archive: Path, limits: UnpackLimits):
        self.limits = limits
        self.packed = max(archive.stat().st_size, 1)
        self.unpacked = self.members = 0

    def count_member(self) -> None:
        self.members += 1
        if self.members > self.limits.members:
            raise ArchiveError(f"more than {self.limits.members:,} members")

    def count_bytes(self, size: int) -> None:
        self.unpacked += size
        if self.unpacked > self.limits.total:
            raise ArchiveError(f"unpacks to more than {self.limits.total:,} bytes")
        if self.unpacked > max(self.limits.ratio * self.packed, _RATIO_THRESHOLD):
            raise ArchiveError(f"unpacks to more than {self.limits.ratio:g} times its size")


def _blocks(source: IO[bytes], budget: _Budget) -> Iterator[bytes]:
    for block in iter(lambda: source.read(_CHUNK), b""):
        budget.count_bytes(len(block))
        yield block


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield (name, open file) of every regular file. Folders are skipped, links and devices are errors."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            for info in file.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise ArchiveError("is a link or a device", place=info.filename)
                if not info.is_dir():
                    with file.open(info) as source:
                        yield info.filename, source
        return
    for info, source in tar_members(archive):
        yield info.name, source


def tar_members(archive: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """Iterate over the regular files of a tar archive (also .gz, .xz, .bz2). Folders are skipped.

    Args:
        archive: the archive.

    Yields:
        The member and its open file, valid until the next one.

    Raises:
        ArchiveError: a link, a device, or headers that would fill the memory.
        Exception: what tarfile raises for a damaged archive.
    """
    with open(archive, "rb") as raw:
        magic = raw.read(6)
    opener = next((opener for start, opener in _OPENERS_BY_MAGIC.items() if magic.startswith(start)), open)
    with opener(archive, "rb") as unpacked:
        source = _BoundedHeaders(unpacked)
        with tarfile.open(fileobj=cast(IO[bytes], source), mode="r:") as file:
            for info in file:
                file.members.clear()  # tarfile would keep every member in memory
                if info.isdir():
                    continue
                if not info.isreg():
                    raise ArchiveError("is a link or a device", place=info.name[:200])
                source.remaining = None
                yield info, file.extractfile(info)
                source.remaining = _MAX_HEADER


class _BoundedHeaders:
    """A file that allows at most `_MAX_HEADER` bytes to be read between two members of a tar archive.

    tarfile reads names and pax records of any size into memory, and follows endless chains of headers.

    Attributes:
        remaining: bytes of headers that may still be read; None while the content of a member is read.
    """

    def __init__(self, file: IO[bytes]):
        self.file = file
        self.remaining: int | None = _MAX_HEADER

    def read(self, size: int) -> bytes:
        if self.remaining is not None:
            self.remaining -= size
            if self.remaining < 0:
                raise ArchiveError(f"the headers of one member (names, pax records) exceed {_MAX_HEADER:,} bytes")
        return self.file.read(size)

    def seek(self, position: int) -> int:
        return self.file.seek(position)

    def tell(self) -> int:
        return self.file.tell()


def _safe_path(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name or not path.parts:
        raise ArchiveError("would be written outside the target folder", place=f"member {name[:200]!r}", value=name)
    return path
