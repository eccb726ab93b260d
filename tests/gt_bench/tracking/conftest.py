"""Fixtures of tracking: a new tracking store, results with records, the content of a store, and a live cell."""

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from gt_bench.records.cell import CellResult
from gt_bench.records.run import RunRecord
from gt_bench.tracking.live import Live
from gt_bench.tracking.mirror import Mirror
from gt_bench.tracking.sqlite import make
from gt_bench.tracking.sync import complete
from tests.gt_bench.cells import ET, make_record, make_result, without_data

GCN = "edge-transformer/cornell/gcn"
SUITE = "edge-transformer"


@pytest.fixture(scope="session")
def empty(tmp_path_factory):
    """A database with its schema."""
    path = tmp_path_factory.mktemp("mlruns") / "mlflow.db"
    make(path)
    return path


@pytest.fixture
def store(empty, tmp_path, monkeypatch):
    """`store("name")` -> URI of a new tracking store; sets MLFLOW_TRACKING_URI."""

    def fresh(name: str) -> str:
        monkeypatch.chdir(tmp_path)
        path = tmp_path / name / "mlflow.db"
        path.parent.mkdir()
        shutil.copy(empty, path)
        uri = f"sqlite:///{path}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        return uri

    return fresh


@pytest.fixture(scope="module")
def world():
    """A successful cell, one with a NaN loss and out of memory, and one without data."""
    et = [make_record(ET, 0, test=0.6), make_record(ET, 1, test=0.7)]
    gcn = [make_record(GCN, 0, "diverged"), make_record(GCN, 1, "oom", epochs=0)]
    results = [make_result(ET, et), make_result(GCN, gcn, method="GCN"), without_data("edge-transformer/texas/gcn")]
    return SimpleNamespace(results=results, by_cell={ET: et, GCN: gcn}, records={r.digest: r for r in et + gcn})


def snapshot(uri: str, suite: str = SUITE, artifacts: Path | None = None) -> dict:
    """Return the content of the store without ids and times. `artifacts`: folder where a server stores them."""
    mirror = Mirror(uri, suite)
    runs = {}
    for run in mirror.runs.values():
        key = (run.data.tags["gt.kind"], run.data.tags["gt.cell"], run.data.tags.get("gt.digest"))
        assert key not in runs, f"duplicate {key}"
        tags = {k: v for k, v in run.data.tags.items() if k not in ("mlflow.parentRunId", "gt.workspace")}
        parent = run.data.tags.get("mlflow.parentRunId")
        folder = Path(run.info.artifact_uri.removeprefix("file://"))
        if artifacts:
            folder = artifacts / run.info.artifact_uri.removeprefix("mlflow-artifacts:/")
        runs[key] = {
            "name": run.info.run_name,
            "status": run.info.status,
            "params": run.data.params,
            "tags": tags,
            "metrics": {k: sorted((s, repr(v)) for s, v in points) for k, points in mirror.history(run).items()},
            "last": {k: repr(v) for k, v in run.data.metrics.items()},
            "inputs": [
                (i.dataset.to_dictionary(), [(t.key, t.value) for t in i.tags]) for i in run.inputs.dataset_inputs
            ],
            "artifacts": {p.name: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()},
            "parent": mirror.runs[parent].data.tags["gt.cell"] if parent else None,
        }
    return runs


@pytest.fixture(scope="module")
def rebuilt(empty, world, tmp_path_factory):
    """Snapshot of the store as created from records."""
    path = tmp_path_factory.mktemp("rebuilt") / "mlflow.db"
    shutil.copy(empty, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path.parent)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
        complete(SUITE, world.results, world.records)
        return snapshot(f"sqlite:///{path}")


def cell_of(result: CellResult) -> SimpleNamespace:
    return SimpleNamespace(
        **{k: getattr(result, k) for k in ("cell", "suite", "dataset", "model")}, key=result.cell.replace("/", "-")
    )


def open_(result: CellResult, record: RunRecord, live: Live) -> None:
    digest = record.run.digests.data
    Live.__init__(live, cell_of(result), result.recipe, {"name": result.dataset, "digest": digest}, after=0)


def start(result: CellResult, record: RunRecord) -> Live:
    live = Live.__new__(Live)
    open_(result, record, live)
    return live


def train(live: Live, record: RunRecord, epochs: range | None = None, begins: bool = True) -> None:
    """Send the messages of one run to `live`, as the training stage does."""
    run = record.run
    if begins:
        live.start_seed(run.seed, record.digest)
    for i, epoch in enumerate(run.epochs["epoch"]):
        if epochs is None or epoch in epochs:
            values = {k: v[i] for k, v in run.epochs.items() if k != "epoch" and v[i] is not None}
            live.log_epoch(record.digest, epoch, values)


class Told(Live):
    """A `Live` without a second process: `lines` has what would go through the pipe."""

    def __init__(self, result: CellResult, record: RunRecord):
        self.lines: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess, "Popen", lambda *_, **__: SimpleNamespace(wait=lambda _: 0, stdin=None))
            patch.setattr(Live, "_write", lambda *_: None)
            open_(result, record, self)
            self._timer.join()

    def _send(self, **message):
        self.lines.append(json.dumps(message) + "\n")
