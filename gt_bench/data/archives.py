"""Unpacking files that nobody here wrote: no paths that escape, no links or devices, bounded size, ratio and number of members."""

# mypy: disable-error-code="arg-type, assignment, attr-defined, misc, operator"

import bz2
import gzip
import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from gt_bench.utils.errors import DatasetError

# what the standard library raises on damaged archives
_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    RuntimeError,
    ValueError,
    OverflowError,
)
_CHUNK = 1 << 20


class ArchiveError(DatasetError):
    """An archive that is damaged, too large, or reaches outside its folder. Nothing of it is kept."""


@dataclass(frozen=True)
class Limits:
    """`total` bytes unpacked, `ratio` of unpacked to packed (looked at above 16 MiB), `members` in number."""

    total: int = 64 << 30
    ratio: float = 200.0
    members: int = 1_000_000


def unpack(archive: Path, folder: Path, limits: Limits = Limits()) -> Path:
    """zip, tar, tar.gz, tar.xz or tar.bz2 -> `folder`, all of it or nothing. Raises ArchiveError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        budget = _Budget(archive, limits)
        with _damage(archive):
            for name, source in _members(archive):
                target = temporary.joinpath(*_safe(archive, name).parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                budget.member()
                with open(target, "xb") as out:
                    for block in iter(lambda s=source: s.read(_CHUNK), b""):
                        budget.spend(len(block))
                        out.write(block)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder


def read_member(archive: Path, name: str, limits: Limits = Limits(total=1 << 30)) -> bytes:
    """One member of a zip or tar archive. Raises ArchiveError, also where there is none of that name."""
    budget = _Budget(archive, limits)
    with _damage(archive):
        for found, source in _members(archive):
            budget.member()
            if found == name:
                _safe(archive, name)
                return _read(source, budget)
    raise ArchiveError(f"{archive}: no member named {name!r}")


def decompress(path: Path, limits: Limits = Limits(total=4 << 30)) -> bytes:
    """A .gz, .xz or .bz2 file -> its content. Raises ArchiveError."""
    openers = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    if path.suffix not in openers:
        raise ArchiveError(f"{path}: not a .gz, .xz or .bz2 file")
    with _damage(path), openers[path.suffix](path, "rb") as source:
        return _read(source, _Budget(path, limits))


class _Budget:
    def __init__(self, archive: Path, limits: Limits):
        self.archive, self.limits = archive, limits
        self.packed = max(archive.stat().st_size, 1)
        self.spent = self.count = 0

    def member(self) -> None:
        self.count += 1
        if self.count > self.limits.members:
            raise ArchiveError(f"{self.archive}: more than {self.limits.members:,} members")

    def spend(self, size: int) -> None:
        self.spent += size
        if self.spent > self.limits.total:
            raise ArchiveError(f"{self.archive}: unpacks to more than {self.limits.total:,} bytes")
        if self.spent > max(self.limits.ratio * self.packed, 16 << 20):
            raise ArchiveError(f"{self.archive}: unpacks to more than {self.limits.ratio:g} times its size")


def _read(source: IO[bytes], budget: _Budget) -> bytes:
    blocks = []
    for block in iter(lambda: source.read(_CHUNK), b""):
        budget.spend(len(block))
        blocks.append(block)
    return b"".join(blocks)


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """(name, open file) of every regular file; a link or device is an error, folders are passed over."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            for info in file.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise ArchiveError(f"{archive}: {info.filename!r} is a link or a device")
                if not info.is_dir():
                    with file.open(info) as source:
                        yield info.filename, source
        return
    for info, source in tar_members(archive):
        yield info.name, source


def tar_members(archive: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    """(member, open file) of every regular file of a tar, .gz, .xz and .bz2 too; a link or device is an error, folders are passed over. Raises
    ArchiveError for headers that would fill the memory, and what tarfile raises."""
    with open(archive, "rb") as raw:
        magic = raw.read(6)
    opener = next((opener for start, opener in _MAGIC.items() if magic.startswith(start)), open)
    with opener(archive, "rb") as unpacked:
        source = _Headers(archive, unpacked)
        with tarfile.open(fileobj=cast(IO[bytes], source), mode="r:") as file:
            for info in file:
                file.members.clear()  # else it remembers each of them
                if info.isdir():
                    continue
                if not info.isreg():
                    raise ArchiveError(f"{archive}: {info.name[:200]!r} is a link or a device")
                source.left = None
                yield info, file.extractfile(info)
                source.left = _HEADER


_MAGIC = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open, b"\x5d\x00\x00": lzma.open}
_HEADER = 1 << 20  # bytes of headers, long names and pax records before a member


class _Headers:
    """A tar's bytes, of which at most `_HEADER` are read between two members: tarfile reads names and pax records of any size into memory, and
    chains of headers without end. `left`: how many it still may read; None while a member's content is read."""

    def __init__(self, archive: Path, file: IO[bytes]):
        self.archive, self.file, self.left = archive, file, _HEADER

    def read(self, size: int) -> bytes:
        if self.left is not None:
            self.left -= size
            if self.left < 0:
                raise ArchiveError(
                    f"{self.archive}: the headers of one member (names, pax records) are larger than {_HEADER:,} bytes"
                )
        return self.file.read(size)

    def seek(self, place: int) -> int:
        return self.file.seek(place)

    def tell(self) -> int:
        return self.file.tell()


def _safe(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name or not path.parts:
        raise ArchiveError(f"{archive}: member {name[:200]!r} would be written outside its folder")
    return path


@contextmanager
def _damage(archive: Path) -> Iterator[None]:
    try:
        yield
    except DatasetError:
        raise
    except (*_DAMAGED, OSError) as error:
        raise ArchiveError(f"{archive}: cannot be unpacked ({type(error).__name__}: {error})") from error
