"""`Experiment`: the digest of a run, and its record from the store or by training."""

import contextlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from gt_bench.config.schema import RecipeError
from gt_bench.experiment import modified_code, setup
from gt_bench.runtime import checkout, environment
from gt_bench.store.record_checks import record_problems
from gt_bench.store.uncommitted import is_uncommitted
from gt_bench.training.failures import OutOfMemory
from tests.conftest import ROOT
from tests.gt_bench.conftest import pack_web
from tests.gt_bench.runs import Killed, kill_at
from tests.refusals import refused


def test_a_run_is_computed_once_and_then_read_from_the_store(make):
    experiment = make()
    seen = []
    record, computed = experiment.run(
        0, on_start=lambda *run: seen.append(run), on_epoch=lambda epoch, values: seen.append(epoch)
    )
    assert computed
    assert seen == [(0, record.digest), 1, 2, 3, 4, 5, 6]
    assert record.digest == experiment.digest(0)
    assert record_problems(record) == []
    again, computed = experiment.run(0, on_start=lambda *run: pytest.fail("computed again"))
    assert (again, computed) == (record, False)
    assert experiment.settled(0) == record
    assert experiment.settled(1) is None


def test_each_session_of_a_resumed_run_is_recorded(make, monkeypatch):
    experiment, commits = make(run={"checkpoint_seconds": 0}), ["a" * 40 + "-dirty", "b" * 40]
    for session, ends_in in enumerate((3, None)):
        monkeypatch.setattr(checkout, "commit", lambda session=session: commits[session])
        monkeypatch.setattr(environment, "now", lambda session=session: f"2026-01-0{session + 1}T00:00:00+00:00")
        with contextlib.nullcontext() if ends_in is None else pytest.raises(Killed):
            record, _ = experiment.run(0, on_epoch=kill_at(ends_in) if ends_in else None)
    measured = record.measured
    assert [(one.started[:10], one.commit, one.device) for one in measured.sessions] == [
        ("2026-01-01", commits[0], "cpu"),
        ("2026-01-02", commits[1], "cpu"),
    ]
    assert (measured.started, measured.environment.commit) == ("2026-01-01T00:00:00+00:00", commits[1])
    assert record_problems(record) == []
    assert is_uncommitted(record), "its first session was"
    assert not experiment.run(1)[0].measured.sessions


def test_a_trial_has_a_digest_of_its_own_and_no_test_value(make):
    experiment = make()
    record, _ = experiment.run(0, test=False)
    assert record.digest == experiment.digest(0, test=False) != experiment.digest(0)
    assert (record.run.test, record.run.test_metrics, record.run.val is None) == (None, {}, False)


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"epochs": 7}, False),
        ({"loss": "weighted-cross-entropy"}, False),
        ({"precision": "float64"}, False),
        ({"split": 1}, False),
        ({"seeds": [0, 1, 2]}, True),
        ({"keep_weights": True}, True),
        ({"run": {"time_limit_hours": 1.0, "checkpoint_seconds": 5.0}}, True),
    ],
)
def test_the_digest_depends_on_what_decides_numbers_only(make, changes, same):
    assert (make().digest(0) == make(**changes).digest(0)) is same


def test_the_digest_depends_on_data_versions_and_modified_code(make, monkeypatch):
    experiment = make()
    digests = {experiment.digest(0), experiment.digest(1)}
    with monkeypatch.context() as patched:
        patched.setattr(setup, "run_versions", lambda *_: {"model": 2, "task": 1, "trainer": 1})
        digests.add(make().digest(0))
    with monkeypatch.context() as patched:
        patched.setattr(modified_code, "differences", lambda wanted: dict.fromkeys(wanted, "losses[0] differs"))
        digests.add(make().digest(0))
    assert make().digest(0) in digests
    pack_web(Path("data"), seed=1)
    digests.add(make().digest(0))
    assert len(digests) == 5


@pytest.mark.slow
def test_a_copy_in_another_process_has_the_same_digest(make):
    """Spawned processes receive an experiment and the one that it starts from."""
    source = make(row="other", keep_weights=True)
    experiment = make(start={"cell": "small/web/other"})
    experiment.source = source
    Path("experiment.pickle").write_bytes(pickle.dumps(experiment))
    code = "import pickle; print(pickle.load(open('experiment.pickle', 'rb')).digest(0))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == experiment.digest(0)


def test_out_of_memory_is_stored_only_if_the_run_had_the_memory_for_itself(make, monkeypatch):
    experiment = make()

    def no_memory():
        raise OutOfMemory("no memory left")

    monkeypatch.setattr(experiment, "build", no_memory)
    record, computed = experiment.run(0, shared=True)
    assert (record.run.status, computed) == ("oom", True)
    assert experiment.store.get(experiment.digest(0)) is None
    record, _ = experiment.run(0)
    assert experiment.store.get(experiment.digest(0)) == record


def test_a_record_without_the_weights_that_another_cell_needs_is_computed_again(make):
    experiment = make(keep_weights=True)
    digest = experiment.run(0)[0].digest
    folder = experiment.store.folder(digest)
    (folder / "weights.safetensors").unlink()
    (checkpoint := folder / "checkpoint.safetensors").write_bytes(b"x")
    assert experiment.settled(0) is None
    assert experiment.take(digest) is None
    assert checkpoint.exists()
    assert experiment.run(0)[1]
    assert (folder / "weights.safetensors").exists()
    assert experiment.take(digest) is not None


def test_a_recipe_that_starts_from_another_cell_needs_its_experiment(make):
    source = make(row="other", keep_weights=True)
    tuned = make(start={"cell": "small/web/other"})
    with refused(RecipeError, place="start", value="small/web/other"):
        tuned.digest(0)
    tuned.source = source
    assert tuned.decisive(0)["start"] == {"load": "all", "run": source.digest(0)}
