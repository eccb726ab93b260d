"""Only regular files of bounded size are read, and written files have the permissions of the user's umask."""

import os
import stat
from pathlib import Path

import pytest

from gt_bench.store import shipped_files
from gt_bench.store.attempts import attempts, remember
from gt_bench.store.run_store import Store, StoreError
from gt_bench.store.shipped_files import read, read_result
from gt_bench.utils.io import UnfitFile, WriteError, atomic_file, read_text, write_bytes
from tests.gt_bench.cells import ET, make_record, make_result
from tests.refusals import refused


@pytest.fixture(params=["device", "FIFO"])
def endless(request, tmp_path):
    path = tmp_path / "endless"
    path.symlink_to("/dev/zero") if request.param == "device" else os.mkfifo(path)
    return path


def linked(path: Path, target: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def test_endless_files_are_not_read(tmp_path, endless):
    store = Store(tmp_path / "store")
    record = linked(store.folder("ab12") / "record.json", endless)
    listed = linked(tmp_path / "store/cells" / f"{ET}.jsonl", endless)
    for path, reader in (
        (record, lambda: store.get("ab12")),
        (record, lambda: list(store.records("text"))),
        (listed, lambda: attempts(ET, store)),
        (endless, lambda: read(endless)),
        (endless, lambda: read_result(endless, ET)),
    ):
        with refused(StoreError, file=str(path)) as error:
            reader()
        assert "not a regular file" in error.value.problem


def test_a_file_is_read_up_to_a_bound(tmp_path):
    path = tmp_path / "file"
    path.write_text("x" * 11)
    assert read_text(path, 11) == "x" * 11
    with pytest.raises(UnfitFile, match="more than 10 bytes"):
        read_text(path, 10)


def test_a_shipped_file_that_unpacks_to_more_than_the_bound(tmp_path, monkeypatch):
    import gzip

    path = tmp_path / "row.json.gz"
    path.write_bytes(gzip.compress(b" " * (1 << 20)))
    monkeypatch.setattr(shipped_files, "MAX_BYTES", 1 << 19)
    with refused(StoreError, file=str(path)) as error:
        read(path)
    assert "more than 524,288 bytes after decompression" in error.value.problem


@pytest.mark.parametrize("damage", [b'{"runs": ', b"\x00\xff", b'{"runs": 3}\n', b"[]\n", b"{}\n"])
def test_a_damaged_list_of_attempts_is_set_aside(tmp_path, capsys, damage):
    store, result = Store(tmp_path), make_result(ET, [make_record(ET, 0)])
    remember(result, store)
    path = tmp_path / "cells" / f"{ET}.jsonl"
    damaged = path.read_bytes() + damage
    path.write_bytes(damaged)
    later = make_result(ET, [make_record(ET, 1)])
    remember(later, store)
    assert [one.runs for one in attempts(ET, store)] == [later.runs]
    (aside,) = path.parent.glob("*.damaged-*")
    assert aside.read_bytes() == damaged
    assert aside.name in capsys.readouterr().err


@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_files_have_the_permissions_of_the_umask(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write_bytes(tmp_path / "deep" / "record.json", b"{}")
        with atomic_file(tmp_path / "encoding"):
            pass
    finally:
        os.umask(before)
    for name in ("deep/record.json", "encoding"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (os.mkfifo, "not a regular file"),
        (os.mkdir, "not a regular file"),
        (lambda path: path.symlink_to("/dev/null"), "not a regular file"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    ],
)
def test_only_regular_files_are_replaced(tmp_path, make, problem):
    path = tmp_path / "page.html"
    make(path)
    before = path.lstat()
    with refused(WriteError, file=str(path)) as error:
        write_bytes(path, b"new")
    assert problem in error.value.problem
    after = path.lstat()
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("exists", [True, False])
def test_the_target_of_a_link_is_replaced(tmp_path, exists):
    target, path = tmp_path / "shared/page.html", tmp_path / "page.html"
    path.symlink_to("shared/page.html")
    if exists:
        write_bytes(target, b"old")
    write_bytes(path, b"new")
    assert path.is_symlink()
    assert target.read_bytes() == b"new"


def test_an_exception_while_a_file_is_written_leaves_the_old_one(tmp_path):
    path = write_bytes(tmp_path / "encoding", b"old")

    def interrupted():
        with atomic_file(path) as temporary:
            Path(temporary).write_bytes(b"half")
            raise KeyError("no such array")

    with pytest.raises(KeyError):
        interrupted()
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("encoding", b"old")]
