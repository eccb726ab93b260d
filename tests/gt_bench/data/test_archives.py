"""Archives: correct members or a clean error; no file outside the folder, no partial folder."""

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import tracemalloc
import zipfile
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gt_bench.data.archives import ArchiveError, UnpackLimits, decompress, read_member, unpack
from tests.gt_bench.data.checks import mutated
from tests.refusals import refused


def make_zip(path, members: dict[str, bytes], compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def make_tar(path, members: dict[str, bytes], mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


MEMBERS = {"a.txt": b"alpha", "deep/er/b.bin": bytes(range(256))}


@pytest.mark.parametrize(
    "make", [lambda p: make_zip(p / "x.zip", MEMBERS), lambda p: make_tar(p / "x.tar.gz", MEMBERS)]
)
def test_members_come_out(tmp_path, make):
    archive = make(tmp_path)
    unpack(archive, tmp_path / "out")
    for name, content in MEMBERS.items():
        assert (tmp_path / "out" / name).read_bytes() == content
        assert read_member(archive, name) == content
    with refused(ArchiveError, file=str(archive), value="c"):
        read_member(archive, "c")


def with_entry(path, kind: int | bytes):
    """A zip with a link, or a tar with an entry of this kind."""
    if isinstance(kind, bytes):
        with tarfile.open(path, "w") as archive:
            info = tarfile.TarInfo("link")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            entry = zipfile.ZipInfo("link")
            entry.external_attr = (kind | 0o777) << 16
            archive.writestr(entry, "/etc/passwd")


OUTSIDE = ["../evil", "/evil", "a/../../evil", "..\\evil", "C:evil"]
KINDS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, stat.S_IFLNK]


@pytest.mark.parametrize(
    "make",
    [partial(make, members={"good": b"1", name: b"2"}) for make in (make_zip, make_tar) for name in OUTSIDE]
    + [partial(with_entry, kind=kind) for kind in KINDS],
)
def test_paths_outside_the_folder_links_and_devices_write_nothing(tmp_path, make):
    make(tmp_path / "x")
    with pytest.raises(ArchiveError):
        unpack(tmp_path / "x", tmp_path / "box/out")
    assert not list(tmp_path.glob("box/*"))
    assert {p.name for p in tmp_path.iterdir()} <= {"box", "x"}


@pytest.mark.slow
def test_bombs_are_stopped_early(tmp_path):
    zeros = b"\0" * (20 << 20)
    for archive in (make_zip(tmp_path / "x.zip", {"z": zeros}), make_tar(tmp_path / "x.tar.xz", {"z": zeros}, "w:xz")):
        with refused(ArchiveError, file=str(archive), problem="unpacks to more than 200 times its size"):
            unpack(archive, tmp_path / "out")
    (tmp_path / "z.gz").write_bytes(gzip.compress(zeros))
    (tmp_path / "z.xz").write_bytes(lzma.compress(zeros))
    for name in ("z.gz", "z.xz"):
        with refused(ArchiveError, file=str(tmp_path / name), problem="unpacks to more than 200 times its size"):
            decompress(tmp_path / name)
    with refused(ArchiveError, problem="unpacks to more than 100 bytes"):
        unpack(
            make_zip(tmp_path / "y.zip", {"a": b"x" * 60, "b": b"x" * 60}), tmp_path / "out", UnpackLimits(total=100)
        )
    with refused(ArchiveError, problem="more than 2 members"):
        unpack(make_zip(tmp_path / "w.zip", {f"{i}": b"" for i in range(3)}), tmp_path / "out", UnpackLimits(members=2))
    assert not (tmp_path / "out").exists()
    assert [p for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def _header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.USTAR_FORMAT)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
@pytest.mark.parametrize("mode", ["one", "many"])
def test_headers_that_would_fill_the_memory_are_refused(tmp_path, kind, mode):
    size = 64 << 20 if mode == "one" else 100 << 10
    with gzip.open(tmp_path / "x.tar.gz", "wb", 1) as file:
        for number in range(1 if mode == "one" else 20):
            record = b"%d %d=" % (size, number)
            file.write(
                _header(kind, size)
                + (record + b"a" * (size - len(record) - 1) + b"\n").ljust(-(-size // 512) * 512, b"\0")
            )
        file.write(_header(tarfile.REGTYPE, 0) + b"\0" * 1024)
    tracemalloc.start()
    with refused(ArchiveError, file=str(tmp_path / "x.tar.gz")):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out")
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_long_names_are_read(tmp_path, mode):
    name = "/".join(["folder" * 20] * 4)
    make_tar(tmp_path / "x.tar", {name: b"1" * 5000, "b": b"2"}, mode)
    unpack(tmp_path / "x.tar", tmp_path / "out")
    assert (tmp_path / "out" / name).read_bytes() == b"1" * 5000
    assert (tmp_path / "out" / "b").read_bytes() == b"2"


def test_an_old_folder_stays_when_the_new_archive_is_bad(tmp_path):
    unpack(make_zip(tmp_path / "x.zip", MEMBERS), tmp_path / "out")
    with pytest.raises(ArchiveError):
        unpack(make_zip(tmp_path / "y.zip", {"../z": b""}), tmp_path / "out")
    assert (tmp_path / "out/a.txt").read_bytes() == b"alpha"


@settings(max_examples=80)
@given(data=st.data())
def test_mutated_archives_give_the_right_data_or_a_clean_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    kind = data.draw(st.sampled_from(["zip", "tar", "tgz", "txz", "gz", "xz", "bz2"]))
    path = folder / f"x.{kind}"
    if kind == "zip":
        make_zip(path, MEMBERS)
    elif kind.startswith("t"):
        make_tar(path, MEMBERS, {"tar": "w", "tgz": "w:gz", "txz": "w:xz"}[kind])
    else:
        path.write_bytes({"gz": gzip.compress, "xz": lzma.compress, "bz2": bz2.compress}[kind](b"alpha" * 100))
    path.write_bytes(mutated(data, path.read_bytes()))
    try:
        if kind in ("gz", "xz", "bz2"):
            assert len(decompress(path)) <= 500
        else:
            unpack(path, folder / "out")
    except ArchiveError:
        assert not (folder / "out").exists()
    assert sorted(p.name for p in folder.iterdir() if p.name != "out") == [path.name]
    assert not (folder.parent / "evil").exists()
