"""The run store: digests, atomic writes, settled records, the best run of a cell, and curves of unfinished runs."""

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors.torch import save_file

from gt_bench.store.run_store import Store, StoreError, best_run, curves_reached, run_digest
from gt_bench.utils import io
from gt_bench.utils.io import WriteError
from tests.gt_bench.cells import ET, changed, make_record
from tests.refusals import refused

OK = make_record(ET, 0)
DIGEST = OK.digest


def test_a_record_comes_back_and_its_checkpoint_goes(tmp_path):
    store = Store(tmp_path)
    with store.lock(DIGEST):
        (store.folder(DIGEST) / "checkpoint.safetensors").write_bytes(b"x")
        store.put(OK)
    assert store.get(DIGEST) == OK
    assert not list(store.folder(DIGEST).glob("checkpoint*"))
    assert list(store.records()) == [OK]
    assert store.get("cd34") is None


def test_every_part_of_the_key_decides_the_digest():
    parts = OK.run.digests
    base = {"recipe": {"a": 1}, "seed": 0, "split": 0, "digests": parts, "versions": {"model": 1, "trainer": 1}}
    digests = {run_digest(**base), run_digest(**base, test=False)}
    others = [changed(parts, **{name: "0" * 64}) for name in ("data", "encodings", "files", "modified")]
    changes = [
        ("recipe", {"a": 2}),
        ("seed", 1),
        ("split", 1),
        ("versions", {"model": 2, "trainer": 1}),
        *(("digests", d) for d in others),
    ]
    digests |= {run_digest(**base | {key: value}) for key, value in changes}
    assert len(digests) == 10
    assert run_digest(**base | {"digests": changed(parts, recipe="0" * 64)}) == run_digest(**base), (
        "the recipe itself is in the key"
    )


@pytest.mark.parametrize(
    ("status", "limits", "settled"),
    [
        ("ok", {"time_limit": None, "memory_limit": 1e9}, True),
        ("diverged", {"time_limit": None, "memory_limit": 1e9}, True),
        ("timed-out", {"time_limit": 10.0, "memory_limit": 1.0}, True),
        ("timed-out", {"time_limit": 11.0, "memory_limit": 1.0}, False),
        ("timed-out", {"time_limit": None, "memory_limit": 1.0}, False),
        ("oom", {"time_limit": None, "memory_limit": 100.0}, True),
        ("oom", {"time_limit": None, "memory_limit": 101.0}, False),
    ],
)
def test_runs_that_a_higher_limit_may_change_are_not_settled(tmp_path, status, limits, settled):
    store = Store(tmp_path)
    limited = {"time_limit_seconds": 10.0, "memory_limit_mib": 100.0}
    store.put(changed(make_record(ET, 0), run={"status": status}, measured=limited, checksum=None))
    assert (store.settled(DIGEST, **limits) is not None) is settled


def test_a_damaged_record_names_its_file(tmp_path):
    store = Store(tmp_path)
    path = store.put(OK)
    for content, problem in (
        (path.read_text()[:20], "Unterminated string"),
        ("[]", "is []"),
        (json.dumps(make_record(ET, 1).to_disk()), "contains the record of"),
    ):
        path.write_text(content)
        with refused(StoreError, file=str(path)) as error:
            store.get(DIGEST)
        assert problem in error.value.problem


@pytest.mark.parametrize(
    ("code", "problem"), [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "cannot be written (Permission denied)")]
)
def test_a_full_disk_leaves_everything_as_it_was(tmp_path, monkeypatch, code, problem):
    store = Store(tmp_path)
    store.put(OK)
    checkpoint = store.folder(DIGEST) / "checkpoint.safetensors"
    checkpoint.write_bytes(b"state")

    def full(handle):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(io.os, "fsync", full)
    with refused(WriteError) as error:
        store.put(make_record(ET, 0, status="diverged"))
    assert error.value.file.endswith("record.json")
    assert problem in error.value.problem
    monkeypatch.undo()
    assert store.get(DIGEST) == OK
    assert checkpoint.read_bytes() == b"state"
    assert sorted(p.name for p in store.folder(DIGEST).iterdir()) == ["checkpoint.safetensors", "record.json"]


def test_a_store_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    def refuses(*arguments, **named):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    store = Store(tmp_path)
    with store.lock(DIGEST), store.lock("cd34"):
        pass
    monkeypatch.setattr(FileLock, "acquire", refuses)
    with refused(WriteError) as error, store.lock(DIGEST):
        pass
    assert error.value.file.endswith("lock")
    monkeypatch.setattr(Path, "mkdir", refuses)
    with refused(WriteError, file=str(store.folder(DIGEST))), store.lock(DIGEST):
        pass


# the best run of a cell


def run(val, status="ok", direction="max", test=0.0):
    return changed(OK, run={"status": status, "val": val, "direction": direction, "test": test})


@pytest.mark.parametrize(("direction", "best"), [("max", 0.9), ("min", 0.1)])
def test_the_best_run_is_chosen_on_validation_and_never_on_test(direction, best):
    runs = [run(val, direction=direction, test=1 - val if direction == "max" else val) for val in (0.5, 0.9, 0.1)]
    assert best_run(runs).run.val == best


def test_of_equal_runs_the_first_is_the_best():
    runs = [run(0.5), run(0.7), run(0.7)]
    assert best_run(runs) is runs[1]


def test_failed_runs_and_runs_without_a_finite_validation_are_not_the_best():
    runs = [run(0.99, status="diverged"), run(float("nan")), run(float("inf")), run(None), run(0.2)]
    assert best_run(runs) is runs[4]


def test_without_validation_the_first_run_with_status_ok_is_the_best():
    runs = [run(None, status="oom"), run(None), run(None)]
    assert best_run(runs) is runs[1]
    assert best_run(runs[:1]) is None
    assert best_run([]) is None


# curves of an unfinished run


def test_curves_are_read_from_the_header_of_a_checkpoint(tmp_path):
    header = json.dumps({"curves": {"train_loss": [1.0, 0.5], "val": [0.1, 0.2]}})
    save_file({"weight": torch.zeros(2)}, tmp_path / "checkpoint.safetensors", {"header": header})
    assert curves_reached(tmp_path) == {"train_loss": [1.0, 0.5], "val": [0.1, 0.2]}


@pytest.mark.parametrize("header", [None, {}, {"header": "{"}, {"header": "[]"}, {"header": '{"curves": [1]}'}])
def test_a_checkpoint_that_is_missing_or_damaged_has_no_curves(tmp_path, header):
    if header is not None:
        save_file({"weight": torch.zeros(2)}, tmp_path / "checkpoint.safetensors", header or None)
    assert curves_reached(tmp_path) == {}


def test_a_truncated_checkpoint_has_no_curves(tmp_path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"\x08")
    assert curves_reached(tmp_path) == {}
