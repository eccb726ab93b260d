"""DVC's files that a killed process left broken are repaired; files that another process writes are not changed."""

import fcntl
import shutil
from pathlib import Path

import pytest

from gt_bench.utils.dvc import keep_in_memory, repair_lock, set_aside_if_broken


@pytest.mark.parametrize(
    ("content", "mended"),
    [("", True), ('{"write": {', True), ("{}", False), ('{"read": {}, "write": {}}', False), (None, False)],
)
def test_a_lock_that_a_killed_process_left_broken_is_fixed(tmp_path, content, mended):
    path = tmp_path / "rwlock"
    if content is not None:
        path.write_text(content)
    assert repair_lock(tmp_path) is mended
    assert path.exists() == (content is not None and not mended)


def test_a_lock_that_is_being_written_stays(tmp_path):
    (tmp_path / "rwlock").touch()
    with (tmp_path / "rwlock.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        assert repair_lock(tmp_path) is False
    assert (tmp_path / "rwlock").exists()
    assert repair_lock(tmp_path) is True


HELD = '{"write": {}, "read": {"data/packed/a": [{"pid": 1, "cmd": "dvc repro"}]}}'


@pytest.fixture
def places(tmp_path):
    """DVC's folder of a workspace, and a folder in memory."""
    places = tmp_path / "a" / ".dvc" / "tmp", tmp_path / "memory"
    for place in places:
        place.mkdir(parents=True)
    return places


def test_a_link_in_memory_is_replaced_and_not_followed(places, tmp_path):
    folder, memory = places
    keep_in_memory(folder, memory)
    (held,) = memory.iterdir()
    (folder / "rwlock").unlink()
    held.unlink()
    held.symlink_to(tmp_path / "private")
    (tmp_path / "private").write_text("mine")
    keep_in_memory(folder, memory)
    assert (held.is_symlink(), held.read_text(), list(memory.iterdir())) == (False, "{}", [held])
    assert (tmp_path / "private").read_text() == "mine"


@pytest.mark.parametrize("content", [HELD, None])
def test_the_list_of_locked_paths_goes_to_memory_as_it_is(places, content):
    folder, memory = places
    path = folder / "rwlock"
    if content is not None:
        path.write_text(content)
    keep_in_memory(folder, memory)
    (held,) = memory.iterdir()
    assert (path.readlink(), path.read_text()) == (held, content or "{}")
    path.write_text(HELD)  # as DVC does
    keep_in_memory(folder, memory)
    assert (path.readlink(), held.read_text(), list(memory.iterdir())) == (held, HELD, [held])


def test_dvc_continues_where_memory_was_emptied(places):
    from dvc.fs import localfs
    from dvc.rwlock import rwlock

    folder, memory = places
    keep_in_memory(folder, memory)
    next(memory.iterdir()).unlink()
    with rwlock(str(folder), localfs, "test", ["data"], [], False):
        assert '"data"' in (folder / "rwlock").read_text()
    assert (folder / "rwlock").is_symlink()


def test_a_copied_workspace_has_a_list_of_its_own(places):
    folder, memory = places
    keep_in_memory(folder, memory)
    copy = Path(shutil.copytree(folder.parents[1], folder.parents[2] / "b", symlinks=True)) / ".dvc" / "tmp"
    keep_in_memory(copy, memory)
    assert (copy / "rwlock").resolve() != (folder / "rwlock").resolve()
    assert len(list(memory.iterdir())) == 2


def test_a_list_that_is_being_written_or_has_no_memory_stays_on_disk(places):
    folder, memory = places
    (folder / "rwlock").write_text(HELD)
    with (folder / "rwlock.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        keep_in_memory(folder, memory)
    keep_in_memory(folder, memory / "nowhere")
    assert not (folder / "rwlock").is_symlink()
    assert sorted(path.name for path in folder.iterdir()) == ["rwlock", "rwlock.lock"]


LOCK = (
    "schema: '2.0'\nstages:\n  train@a:\n    cmd: python -m stages.train a\n    outs:\n    - path: results/a.json\n   "
    "   md5: {md5}\n"
)


@pytest.mark.parametrize(
    ("content", "broken"),
    [
        (LOCK.format(md5="a" * 32), False),
        ("schema: '2.0'\nstages: {}\n", False),
        (None, False),
        ("", True),
        (LOCK[:22], True),
        (LOCK[:40], True),
        (LOCK.format(md5="[0"), True),
        ("\0\0\0\0", True),
        ("<<<<<<< HEAD\n" + LOCK.format(md5="a" * 32), True),
    ],
)
def test_a_lock_file_of_stages_that_was_left_broken_is_set_aside(tmp_path, monkeypatch, content, broken):
    monkeypatch.setattr("gt_bench.utils.dvc.SETTLED_SECONDS", 0.0)
    path = tmp_path / "dvc.lock"
    if content is not None:
        path.write_text(content)
    aside = set_aside_if_broken(path)
    assert (aside is not None) == broken
    assert path.exists() == (content is not None and not broken)
    assert not broken or aside.read_text() == content
