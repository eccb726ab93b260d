"""MLflow as a mirror of the records: incomplete stores are completed, complete ones are not changed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gt_bench.leaderboard.collect import judged
from gt_bench.leaderboard.verdicts import with_claims
from gt_bench.store.attempts import attempt_id, remember
from gt_bench.store.run_store import Store
from gt_bench.tracking.mirror import SEAL, Mirror
from gt_bench.tracking.payload import flatten
from gt_bench.tracking.saved_views import PREFIX
from gt_bench.tracking.sync import complete
from gt_bench.utils.paths import recipe_file
from tests.gt_bench.cells import make_record, make_result, write
from tests.gt_bench.tracking.conftest import ET, GCN, SUITE, snapshot

pytestmark = pytest.mark.slow


def test_a_store_has_parameters_metrics_tags_and_artifacts(rebuilt, world):
    parent = rebuilt["cell", ET, attempt_id(world.results[0])]
    assert parent["params"]["model.hidden_dim"] == "16"
    assert float(parent["last"]["result/test_mean"]) == pytest.approx(0.65)
    assert (parent["last"]["result/published_mean"], parent["last"]["result/runs_ok"]) == ("0.657", "2.0")
    assert parent["tags"]["gt.published"] == "edge-transformer, Table 3, ET"
    assert set(parent["artifacts"]) == {"result.json", "learning_curves.png"}
    record = world.by_cell[ET][0]
    run = rebuilt["run", ET, record.digest]
    assert run["parent"] == ET
    assert run["metrics"]["curve/train_loss"] == [
        (e, repr(v)) for e, v in enumerate(record.run.epochs["train_loss"], 1)
    ]
    assert [s for s, _ in run["metrics"]["curve/val"]] == [2, 4, 6, 8, 10, 12]
    assert run["metrics"]["result/best_epoch"] == [(0, "4.0")]
    commit = record.measured.environment.commit
    assert run["tags"]["gt.commit"] == run["tags"]["mlflow.source.git.commit"] == commit
    assert run["tags"]["mlflow.source.name"] == str(recipe_file(ET))
    assert {name.partition("/")[0] for name in run["metrics"]} == {"curve", "test", "val", "result", "cost", "system"}
    assert run["params"]["model.dropout"] == "0.1", "a default of the constructor, which the recipe does not give"
    for said in ("65.00", "65.70", "edge-transformer, Table 3, ET", f"python -m stages.train {ET}"):
        assert said in parent["tags"]["mlflow.note.content"]
    assert parent["tags"]["gt.current"] == run["tags"]["gt.current"] == "true"
    assert parent["metrics"]["test/accuracy"] == parent["metrics"]["result/test_mean"]
    assert run["metrics"]["test/accuracy"] == [(0, repr(record.run.test))]
    for one in (run, parent):
        assert record.run.digests.encodings in one["tags"]["gt.digests"]
        assert one["tags"]["gt.versions"] == "model version 1, task version 1, trainer version 1"
        assert not {"digest.recipe", "seeds", "origin.model", "published.paper", "model.in_dim"} & set(one["params"])
        assert one["tags"]["mlflow.note.content"].count("\n") <= 2, "three lines"
    ((dataset, tags),) = run["inputs"]
    assert (dataset["name"], dataset["digest"]) == ("cornell", record.run.digests.data[:36])
    assert tags == [("mlflow.data.context", "train")]
    diverged = rebuilt["run", GCN, world.by_cell[GCN][0].digest]
    assert (diverged["status"], diverged["tags"]["gt.status"]) == ("FAILED", "diverged")
    assert diverged["metrics"]["curve/train_loss"][-1] == (12, "nan")
    missing = rebuilt["cell", "edge-transformer/texas/gcn", attempt_id(world.results[2])]
    assert (missing["tags"]["gt.status"], missing["inputs"]) == ("not run: data", [])
    assert len(rebuilt) == 7


def test_completion_fixes_whatever_is_missing_wrong_or_too_much(store, world, rebuilt):
    uri = store("mend")
    complete(SUITE, world.results, world.records)
    mirror = Mirror(uri, SUITE)
    (et,) = mirror.find("cell", ET)
    first, second = (mirror.find("run", ET, r.digest)[0] for r in world.by_cell[ET])
    client = mirror.client
    client.log_metric(first.info.run_id, "curve/train_loss", 9.0, step=99)
    client.delete_run(second.info.run_id)
    client.set_tag(et.info.run_id, "gt.status", "oom")
    client.set_tag(mirror.find("cell", GCN)[0].info.run_id, SEAL, "of another time")
    # twice a run that was killed after its tags and one metric, and runs of a cell and a record that no longer exist
    for _ in range(2):
        half = mirror.create("half", {k: second.data.tags[k] for k in ("gt.kind", "gt.cell", "gt.digest")})
        client.log_metric(half.info.run_id, "curve/lr", 5e-4, step=1)
    artifacts = Path(et.info.artifact_uri.removeprefix("file://"))
    # the name that MLflow gives it until it is complete
    (artifacts / ".artifact.uploading.ab_cd012").write_bytes(b"half of a picture")
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


def test_the_first_row_of_a_cell_gives_its_verdict_to_mlflow(store, world):
    uri, both = store("rows"), world.results[:2]
    (row,) = with_claims(judged(both[0], world.by_cell[ET]))
    complete(SUITE, both, world.records, rows=[row, replace(row, verdict=None)])
    mirror = Mirror(uri, SUITE)
    (first,), (second,) = (mirror.find("cell", result.cell) for result in both)
    assert first.data.tags["gt.verdict"] == row.verdict.word
    assert "gt.verdict" not in second.data.tags


def test_superseded_attempts_stay_and_report_it(store, tmp_path):
    """The cell was trained, then with another learning rate, then with one more seed: two attempts, one is current."""
    uri, kept = store("superseded"), Store(tmp_path / "store")
    old = [make_record(ET, seed, test=0.5) for seed in (0, 1)]
    new = [make_record(ET, seed, test=0.6) for seed in (0, 1, 2)]
    write(tmp_path, [], old + new)
    first, second, third = make_result(ET, old), make_result(ET, new[:2]), make_result(ET, new)
    for result, records in ((first, old), (second, new[:2]), (third, new)):
        remember(result, kept)
        complete(SUITE, [result], {r.digest: r for r in records}, store=kept)
    seen = snapshot(uri)
    current = {key: run["tags"]["gt.current"] for key, run in seen.items()}
    assert [key[2] for key in current if key[0] == "cell" and current[key] == "true"] == [attempt_id(third)]
    assert [key[2] for key in current if key[0] == "cell" and current[key] == "false"] == [attempt_id(first)]
    stale = {key[2] for key in current if key[0] == "run" and current[key] == "false"}
    assert stale == {record.digest for record in old}
    assert "Superseded" in seen["cell", ET, attempt_id(first)]["tags"]["mlflow.note.content"]
    (tmp_path / "superseded" / "mlflow.db").unlink()
    uri = store("again")
    complete(SUITE, [third], {r.digest: r for r in new}, store=kept)
    assert snapshot(uri) == seen, "deleted and made again from the store alone"
    experiment = Mirror(uri, SUITE).client.get_experiment_by_name(SUITE)
    view = json.loads(json.loads(experiment.tags[f"{PREFIX}leaderboard"])["state"])
    current = Mirror(uri, SUITE).client.search_runs(
        [experiment.experiment_id], view["searchFilter"], order_by=[view["orderByKey"]]
    )
    assert [run.data.tags["gt.digest"] for run in current] == [attempt_id(third)]
    held = {"metrics": current[0].data.metrics, "tags": current[0].data.tags}
    shown = [column.replace("`", "").split(".", 1) for column in view["selectedColumns"]]
    # the leaderboard's rows give the verdict
    assert [name for kind, name in shown if name not in held[kind]] == ["gt.verdict"]


def test_two_workspaces_with_one_tracking_store_keep_the_runs_of_each(store, tmp_path, monkeypatch):
    uri, found = store("shared"), {}
    for name, seeds in (("one", [0]), ("other", [0, 1]), ("one", [0])):
        (tmp_path / name).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / name)
        records = [make_record(ET, seed) for seed in seeds]
        complete(SUITE, [make_result(ET, records)], {record.digest: record for record in records})
        runs = sorted(Mirror(uri, SUITE).runs)
        assert len(runs) == 1 + len(seeds)
        assert found.setdefault(name, runs) == runs
    assert not set(found["one"]) & set(found["other"])


def test_params_are_flat_and_within_the_limits():
    nested = {"a": {"b": {"c": 1, "d": []}, "e": "text"}, "f": None, "g": [1, "x"], "h": {}, "odd (key)": True}
    flat = {"a.b.c": "1", "a.b.d": "[]", "a.e": "text", "f": "null", "g": '[1, "x"]', "h": "{}", "odd _key_": "true"}
    assert flatten(nested) == flat
    assert len(flatten({"k": "z" * 10_000})["k"]) == 500
    assert flatten({"k": "z" * 10_000}) != flatten({"k": "z" * 9_999 + "y"})
