"""Which files count as read."""

import json

import numpy as np

from gt_bench.runtime.opened_files import files_read, shown_path


def test_files_that_are_read_by_python_numpy_and_pathlib_are_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text("{}")
    np.save(tmp_path / "b.npy", np.zeros(2))
    (tmp_path / "not_read.csv").write_text("")
    with files_read() as files:
        with open("a.json") as text:
            json.load(text)
        np.load("b.npy")
        (tmp_path / "a.json").read_bytes()
    assert [shown_path(file) for file in files] == ["a.json", "b.npy"]
    (tmp_path / "not_read.csv").read_text()
    assert len(files) == 2  # the block is over


def test_written_hidden_and_code_files_do_not_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "old").write_text("")
    (tmp_path / "code.py").write_text("")
    with files_read() as files:
        (tmp_path / "made.txt").write_text("x")
        (tmp_path / "made.txt").read_text()
        (tmp_path / ".cache" / "old").read_text()
        (tmp_path / "code.py").read_text()
        open("/etc/hostname").close()
        assert (tmp_path / "absent").exists() is False
    assert files == []


def test_blocks_inside_each_other_see_their_own_files(tmp_path):
    for name in ("outer", "inner"):
        (tmp_path / name).write_text("")
    with files_read() as outer:
        (tmp_path / "outer").read_text()
        with files_read() as inner:
            (tmp_path / "inner").read_text()
    assert [file.name for file in inner] == ["inner"]
    assert [file.name for file in outer] == ["inner", "outer"]
