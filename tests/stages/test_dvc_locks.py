"""What a killed process left of DVC's own files is mended; what another one is writing stays."""

import fcntl

import pytest

from stages.dvc_locks import mend_lock, set_aside_if_broken


@pytest.mark.parametrize(
    ("content", "mended"), [("", True), ('{"write": {', True), ("{}", False), ('{"read": {}, "write": {}}', False), (None, False)]
)
def test_a_lock_that_a_killed_process_left_broken_is_mended(tmp_path, content, mended):
    path = tmp_path / "rwlock"
    if content is not None:
        path.write_text(content)
    assert mend_lock(tmp_path) is mended
    assert path.exists() == (content is not None and not mended)


def test_a_lock_that_is_being_written_stays(tmp_path):
    (tmp_path / "rwlock").touch()
    with (tmp_path / "rwlock.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        assert mend_lock(tmp_path) is False
    assert (tmp_path / "rwlock").exists()
    assert mend_lock(tmp_path) is True


LOCK = "schema: '2.0'\nstages:\n  train@a:\n    cmd: python -m stages.train a\n    outs:\n    - path: results/a.json\n      md5: {md5}\n"


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
    monkeypatch.setattr("stages.dvc_locks.SETTLED_SECONDS", 0.0)
    path = tmp_path / "dvc.lock"
    if content is not None:
        path.write_text(content)
    aside = set_aside_if_broken(path)
    assert (aside is not None) == broken
    assert path.exists() == (content is not None and not broken)
    assert not broken or aside.read_text() == content


def test_a_lock_file_of_stages_that_is_being_written_stays(tmp_path, monkeypatch):
    path = tmp_path / "dvc.lock"
    path.touch()
    monkeypatch.setattr("stages.dvc_locks.time.sleep", lambda seconds: path.write_text(LOCK))
    assert set_aside_if_broken(path) is None
    assert path.exists()
