"""MLflow as a mirror: live equals rebuilt, every kind of half-written store is mended, and no store can hurt a training process."""

import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from stages.attempts import attempt_id, remember
from stages.mlflow.content import flatten
from stages.mlflow.experiment import SEAL, Mirror, TrackingError
from stages.mlflow.tracking import WARNED, Live, complete, follow
from stages.mlflow.views import PREFIX
from stages.store import Store
from tests.stages.cells import make_record, make_result, write
from tests.stages.mlflow.conftest import ET, GCN

SUITE = "edge-transformer"


def snapshot(uri: str, suite: str = SUITE, artifacts: Path | None = None) -> dict:
    """Everything in the store but ids and clocks. `artifacts`: where a server keeps them."""
    mirror = Mirror(uri, suite)
    runs = {}
    for run in mirror.runs.values():
        key = (run.data.tags["gt.kind"], run.data.tags["gt.cell"], run.data.tags.get("gt.digest"))
        assert key not in runs, f"{key} stands twice"
        tags = {k: v for k, v in run.data.tags.items() if k != "mlflow.parentRunId"}
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
            "inputs": [(i.dataset.to_dictionary(), [(t.key, t.value) for t in i.tags]) for i in run.inputs.dataset_inputs],
            "artifacts": {p.name: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()},
            "parent": mirror.runs[parent].data.tags["gt.cell"] if parent else None,
        }
    return runs


@pytest.fixture(scope="module")
def rebuilt(empty, world, tmp_path_factory):
    """Snapshot of the store as made from records alone."""
    path = tmp_path_factory.mktemp("rebuilt") / "mlflow.db"
    shutil.copy(empty, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{path}")
        complete(SUITE, world.results, world.records)
    return snapshot(f"sqlite:///{path}")


def cell_of(result: dict) -> SimpleNamespace:
    return SimpleNamespace(**{k: result[k] for k in ("cell", "suite", "dataset", "model")}, key=result["cell"].replace("/", "-"))


def open_(result: dict, record: dict, live: Live) -> None:
    digest = record["deterministic"]["digests"]["data"]
    Live.__init__(live, cell_of(result), result["recipe"], {"name": result["dataset"], "digest": digest}, after=0)


def start(result: dict, record: dict) -> Live:
    live = Live.__new__(Live)
    open_(result, record, live)
    return live


def train(live: Live, record: dict, epochs: range | None = None, begins: bool = True) -> None:
    """What the training stage tells Live of one run."""
    run = record["deterministic"]
    if begins:
        live.start_seed(run["seed"], record["digest"])
    curves = run["epochs"]
    for i, epoch in enumerate(curves["epoch"]):
        if epochs is None or epoch in epochs:
            live.log_epoch(record["digest"], epoch, {k: v[i] for k, v in curves.items() if k != "epoch" and v[i] is not None})


def test_what_a_store_holds(rebuilt, world):
    parent = rebuilt["cell", ET, attempt_id(world.results[0])]
    assert parent["params"]["model.hidden_dim"] == "16"
    assert float(parent["last"]["result/test_mean"]) == pytest.approx(0.65)
    assert (parent["last"]["result/published_mean"], parent["last"]["result/runs_ok"]) == ("0.657", "2.0")
    assert parent["tags"]["gt.published"] == "edge_transformer, Table 3, ET"
    assert set(parent["artifacts"]) == {"result.json", "learning_curves.png"}
    record = world.by_cell[ET][0]
    run = rebuilt["run", ET, record["digest"]]
    assert run["parent"] == ET
    assert run["metrics"]["curve/train_loss"] == [(e, repr(v)) for e, v in enumerate(record["deterministic"]["epochs"]["train_loss"], 1)]
    assert [s for s, _ in run["metrics"]["curve/val"]] == [2, 4, 6, 8, 10, 12]
    assert run["metrics"]["result/best_epoch"] == [(0, "4.0")]
    assert run["tags"]["gt.commit"] == run["tags"]["mlflow.source.git.commit"] == "0123abc"
    assert run["tags"]["mlflow.source.name"] == f"recipes/{ET}.yaml"
    assert {name.partition("/")[0] for name in run["metrics"]} == {"curve", "result", "cost", "system"}
    assert run["params"]["model.dropout"] == "0.1", "a default of the constructor, which the recipe does not give"
    for said in ("65.00", "65.70", "edge_transformer, Table 3, ET", f"python -m stages.train {ET}", f"recipes/{ET}.yaml"):
        assert said in parent["tags"]["mlflow.note.content"]
    assert parent["tags"]["gt.current"] == run["tags"]["gt.current"] == "true"
    assert run["tags"]["gt.digest.code"] == record["deterministic"]["digests"]["code"]
    ((dataset, tags),) = run["inputs"]
    assert (dataset["name"], dataset["digest"]) == ("cornell", record["deterministic"]["digests"]["data"][:36])
    assert tags == [("mlflow.data.context", "train")]
    diverged = rebuilt["run", GCN, world.by_cell[GCN][0]["digest"]]
    assert (diverged["status"], diverged["tags"]["gt.status"]) == ("FAILED", "diverged")
    assert diverged["metrics"]["curve/train_loss"][-1] == (12, "nan")
    missing = rebuilt["cell", "edge-transformer/texas/gcn", attempt_id(world.results[2])]
    assert (missing["tags"]["gt.status"], missing["inputs"]) == ("not run: data", [])
    assert len(rebuilt) == 7


class Told(Live):
    """Live with the far end in this process, which saves the start of another: `lines` is what would go through the pipe."""

    def __init__(self, result: dict, record: dict):
        self.lines: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess, "Popen", lambda *_, **__: SimpleNamespace(wait=lambda _: 0, stdin=None))
            patch.setattr(Live, "_write", lambda *_: None)
            open_(result, record, self)
            self._timer.join()

    def _send(self, **message):
        self.lines.append(json.dumps(message) + "\n")


def test_live_equals_rebuilt(store, world, rebuilt):
    uri = store("live")
    for result, make in zip(world.results[:2], (start, Told)):
        records = world.by_cell[result["cell"]]
        live = make(result, records[0])
        for record in records:
            train(live, record)
            live.finish_seed(record)
        live.close(result, records)
        if make is Told:
            assert follow(live.lines) == 0
    live = snapshot(uri)
    assert live == {k: v for k, v in rebuilt.items() if "texas" not in k[1]}
    complete(SUITE, world.results, world.records)
    assert snapshot(uri) == rebuilt


def test_runs_side_by_side_are_tracked_as_those_one_after_the_other(store, world, rebuilt):
    uri, result, records = store("beside"), world.results[0], world.by_cell[ET]
    live = Told(result, records[0])
    for begins, epochs in ((True, range(1, 6)), (False, range(6, 13))):
        for record in records:
            train(live, record, epochs, begins)
    for record in reversed(records):
        live.finish_seed(record)
    live.close(result, records)
    assert follow(live.lines) == 0
    assert snapshot(uri) == {k: v for k, v in rebuilt.items() if k[1] == ET}


def test_killed_training_is_marked_resumed_and_completed(store, world, rebuilt):
    uri = store("killed")
    result, (record, other) = world.results[0], world.by_cell[ET]
    live = Told(result, record)
    train(live, record, range(1, 9))
    assert follow([*live.lines, live.lines[-1][:20]]) == 0
    runs = Mirror(uri, SUITE).runs.values()
    assert {r.info.status for r in runs} == {"KILLED"}
    assert sorted(r.data.tags["gt.kind"] for r in runs) == ["cell", "run"]
    # goes on from a checkpoint two epochs back
    live = Told(result, record)
    train(live, record, range(7, 13))
    live.finish_seed(record)
    live.close(result, [record, other])
    assert follow(live.lines) == 0
    assert snapshot(uri) == {k: v for k, v in rebuilt.items() if k[1] == ET}
    assert {r.info.run_id for r in runs} < set(Mirror(uri, SUITE).runs), "the runs of before were completed, not replaced"


def test_completion_mends_whatever_is_missing_wrong_or_too_much(store, world, rebuilt):
    uri = store("mend")
    complete(SUITE, world.results, world.records)
    mirror = Mirror(uri, SUITE)
    (et,) = mirror.find("cell", ET)
    first, second = (mirror.find("run", ET, r["digest"])[0] for r in world.by_cell[ET])
    client = mirror.client
    client.log_metric(first.info.run_id, "curve/train_loss", 9.0, step=99)
    client.delete_run(second.info.run_id)
    client.set_tag(et.info.run_id, "gt.status", "oom")
    client.set_tag(mirror.find("cell", GCN)[0].info.run_id, SEAL, "of another time")
    # a run killed before anything but its tags and one metric was there, twice; and a run of a cell and of a record that are no more
    for _ in range(2):
        half = mirror.create("half", {k: second.data.tags[k] for k in ("gt.kind", "gt.cell", "gt.digest")})
        client.log_metric(half.info.run_id, "curve/lr", 5e-4, step=1)
    artifacts = Path(et.info.artifact_uri.removeprefix("file://"))
    (artifacts / ".artifact.uploading.ab_cd012").write_bytes(b"half of a picture")  # as MLflow names it until it is whole
    mirror.create("old", {"gt.kind": "run", "gt.cell": ET, "gt.digest": "0" * 64})
    gone = mirror.create("gone", {"gt.kind": "cell", "gt.cell": "edge-transformer/cornell/mlp"})
    client.set_terminated(gone.info.run_id, "FINISHED")
    mine = mirror.create("a user's own run", {"purpose": "notes"})
    complete(SUITE, world.results, world.records)
    client.delete_run(mine.info.run_id)
    assert snapshot(uri) == rebuilt


def test_completion_of_a_whole_store_writes_nothing(store, world, monkeypatch):
    uri = store("whole")
    complete(SUITE, world.results, world.records)
    written = Path(uri.removeprefix("sqlite:///")).read_bytes()
    for name in ("_fill", "create", "delete", "log"):
        monkeypatch.setattr(Mirror, name, lambda *a, name=name: pytest.fail(f"{name} was called"))
    complete(SUITE, world.results, world.records)
    assert Path(uri.removeprefix("sqlite:///")).read_bytes() == written


def assert_harmless(capfd, world, uri: str, *, during=None, seconds: float = 300.0) -> str:
    """Trains a cell under a tracker that cannot work; returns the warning."""
    result, records = world.results[0], world.by_cell[ET]
    began = time.monotonic()
    live = start(result, records[0])
    for record in records:
        before = time.monotonic()
        train(live, record)
        live.finish_seed(record)
        assert time.monotonic() - before < 0.5, "training waited for the tracker"
        if during:
            during()
    live.close(result, records)
    assert time.monotonic() - began < seconds
    err = capfd.readouterr().err
    assert err.count("warning: MLflow") == 1, err
    assert uri in err
    assert "python -m stages.leaderboard edge-transformer" in err
    assert "Traceback" not in err
    return err


def test_a_server_that_is_down_costs_one_warning(world, monkeypatch, capfd):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert_harmless(capfd, world, "http://127.0.0.1:9")
    with pytest.raises(TrackingError, match=r"127\.0\.0\.1"):
        complete(SUITE, world.results, world.records)


def test_a_server_that_never_answers_costs_one_warning(world, monkeypatch, capfd):
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        assert "timed out" in assert_harmless(capfd, world, uri).lower()


def test_a_server_that_talks_nonsense_costs_one_warning(world, monkeypatch, capfd):
    class Nonsense(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>a login page</html>")

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Nonsense) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
        live = Told(world.results[0], world.by_cell[ET][0])
        assert follow(live.lines) == WARNED
        server.shutdown()
    assert capfd.readouterr().err.count("warning: MLflow at http://127.0.0.1:") == 1


def test_a_store_that_dies_midway_costs_one_warning_and_is_completed_later(store, world, rebuilt, capfd):
    uri = store("dies")
    path = Path(uri.removeprefix("sqlite:///"))
    saved = path.with_suffix(".saved")

    def die():
        deadline = time.monotonic() + 100
        while not saved.exists() and time.monotonic() < deadline:
            if any((path.parent / "artifacts").rglob("record.json")):
                path.rename(saved)
                path.write_bytes(b"this is no database" * 1000)
            time.sleep(0.05)

    assert_harmless(capfd, world, uri, during=die)
    assert saved.exists(), "the tracker never got to its first run"
    os.replace(saved, path)
    complete(SUITE, world.results, world.records)
    assert snapshot(uri) == rebuilt


def test_superseded_attempts_stay_and_say_so(store, tmp_path):
    """The cell was trained, then with another learning rate, then with one more seed: two attempts, of which one is current."""
    uri, kept = store("superseded"), Store(tmp_path / "store")
    old = [make_record(ET, seed, test=0.5) for seed in (0, 1)]
    new = [make_record(ET, seed, test=0.6) for seed in (0, 1, 2)]
    write(tmp_path, [], old + new)
    first, second, third = make_result(ET, old), make_result(ET, new[:2]), make_result(ET, new)
    for result, records in ((first, old), (second, new[:2]), (third, new)):
        remember(result, kept)
        complete(SUITE, [result], {r["digest"]: r for r in records}, store=kept)
    seen = snapshot(uri)
    assert {run["tags"]["gt.current"]: key[2] for key, run in seen.items() if key[0] == "cell"} == {
        "true": attempt_id(third),
        "false": attempt_id(first),
    }
    assert {key[2] for key, run in seen.items() if key[0] == "run" and run["tags"]["gt.current"] == "false"} == {r["digest"] for r in old}
    assert "Superseded" in seen["cell", ET, attempt_id(first)]["tags"]["mlflow.note.content"]
    (tmp_path / "superseded" / "mlflow.db").unlink()
    uri = store("again")
    complete(SUITE, [third], {r["digest"]: r for r in new}, store=kept)
    assert snapshot(uri) == seen, "deleted and made again from the store alone"
    experiment = Mirror(uri, SUITE).client.get_experiment_by_name(SUITE)
    view = json.loads(json.loads(experiment.tags[f"{PREFIX}leaderboard"])["state"])
    current = Mirror(uri, SUITE).client.search_runs([experiment.experiment_id], view["searchFilter"], order_by=[view["orderByKey"]])
    assert [run.data.tags["gt.digest"] for run in current] == [attempt_id(third)]
    held = {"metrics": current[0].data.metrics, "tags": current[0].data.tags}
    shown = [column.replace("`", "").split(".", 1) for column in view["selectedColumns"]]
    assert [name for kind, name in shown if name not in held[kind]] == ["gt.verdict"], "which the leaderboard's rows give"


def test_a_run_ends_after_it_began(store, world):
    uri = store("moments")
    record = json.loads(json.dumps(make_record(ET, 0)))
    record["measured"] |= {"seconds": 0.3, "finished": record["measured"]["started"]}  # within one second
    result = make_result(ET, [record])
    live = Told(result, record)
    train(live, record)
    live.finish_seed(record)
    live.close(result, [record])
    assert follow(live.lines) == 0
    assert all(run.info.end_time > run.info.start_time for run in Mirror(uri, SUITE).runs.values())
    uri = store("moments-rebuilt")
    complete(SUITE, [result], {record["digest"]: record})
    assert [run.info.end_time - run.info.start_time for run in Mirror(uri, SUITE).runs.values()] == [300, 300]


def test_a_short_cell_has_no_process_that_tracks(world, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    result, records = world.results[0], world.by_cell[ET]
    live = Live(cell_of(result), result["recipe"], {"name": "cornell", "digest": "0" * 64})
    train(live, records[0])
    live.finish_seed(records[0])
    live.close(result, records)
    live._timer.join()


def test_params_are_flat_and_within_the_limits():
    flat = flatten({"a": {"b": {"c": 1, "d": []}, "e": "text"}, "f": None, "g": [1, "x"], "h": {}, "odd (key)": True, "long": "y" * 501})
    assert flat.pop("long").startswith("y" * 400)
    assert flat == {"a.b.c": "1", "a.b.d": "[]", "a.e": "text", "f": "null", "g": '[1, "x"]', "h": "{}", "odd _key_": "true"}
    assert len(flatten({"k": "z" * 10_000})["k"]) == 500
    assert flatten({"k": "z" * 10_000}) != flatten({"k": "z" * 9_999 + "y"})
