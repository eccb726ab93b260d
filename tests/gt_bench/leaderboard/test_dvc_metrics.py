"""Files that DVC reads for a cell and a leaderboard: metrics in the paper's unit, curves, published values."""

import csv
import json

import pytest

from gt_bench.leaderboard.collect import judged
from gt_bench.leaderboard.dvc_metrics import POINTS, curve, metrics_of, write_leaderboard, write_training
from gt_bench.leaderboard.references import References
from gt_bench.leaderboard.rows import absent
from gt_bench.records.events import CellDone
from tests.gt_bench.cells import make_record, make_result, without_data

ET, GCN, TEXAS = (f"edge-transformer/{name}" for name in ("cornell/edge-transformer", "cornell/gcn", "texas/gcn"))


def test_metrics_and_what_was_published(tmp_path):
    records = [make_record(ET, seed, test=0.6 + seed / 10) for seed in (0, 1)]
    failed = [make_record(GCN, 0, "oom", epochs=0)]
    results = [make_result(ET, records), make_result(GCN, failed, method="GCN"), without_data(TEXAS)]
    rows = [
        *judged(results[0], records),
        *judged(results[1], failed),
        *judged(results[2], []),
        absent("edge-transformer/texas/mlp", "not run", None, References()),
    ]
    for _ in range(2):  # files of removed cells are deleted
        write_leaderboard("edge-transformer", rows, tmp_path)
        found = {
            p.relative_to(tmp_path / "metrics").as_posix(): json.loads(p.read_text())
            for p in tmp_path.glob("metrics/*/*/*.json")
        }
        assert sorted(found) == sorted(f"{row.cell}.json" for row in rows)
        (tmp_path / "metrics/edge-transformer/cornell/gone.json").write_text("{}")
    metrics = found[f"{ET}.json"]
    assert (metrics["mean"], metrics["published"], metrics["runs"]) == (65.0, 65.7, 2)
    assert metrics["difference"] == pytest.approx(-0.7)
    assert metrics["verdict"] == rows[0].verdict.word
    assert found[f"{GCN}.json"] == {"published": 56.2, "verdict": "no result", "runs": 0, "status": "oom"}
    assert found[f"{TEXAS}.json"]["status"] == "not run: data"
    with (tmp_path / "published/edge-transformer.csv").open() as file:
        assert [row["cell"] for row in csv.DictReader(file)] == [ET]


def test_metrics_of_training_are_those_of_its_records(tmp_path):
    records = [make_record(ET, seed, test=0.6 + seed / 10) for seed in (0, 1)]
    write_training(CellDone(make_result(ET, records), records), tmp_path)
    found = json.loads((tmp_path / f"{ET}.json").read_text())
    assert (found["test"], found["std"], found["runs"], found["status"]) == (65.0, 5.0, 2, "ok")
    assert found["validation"] == pytest.approx(50 * sum(r.run.val for r in records), rel=1e-5)
    assert [point["epoch"] for point in found["curve"]] == [2, 4, 6, 8, 10, 12]
    assert found["curve"][1]["validation"] == pytest.approx(found["validation"], rel=1e-5), (
        "the best epoch is the fourth"
    )
    failed = [make_record(GCN, 0, "oom", epochs=0)]
    write_training(CellDone(make_result(GCN, failed, method="GCN"), failed), tmp_path)
    assert json.loads((tmp_path / f"{GCN}.json").read_text()) == {"runs": 0, "status": "oom"}
    long = [make_record(ET, 0, epochs=2 * POINTS + 2)]
    write_training(CellDone(make_result(ET, long), long), tmp_path)
    # one run has no deviation
    assert "std" not in json.loads((tmp_path / f"{ET}.json").read_text())
    assert "std" not in metrics_of(judged(make_result(ET, long), long)[0])
    assert POINTS / 2 < len(json.loads((tmp_path / f"{ET}.json").read_text())["curve"]) <= POINTS
    write_training(CellDone(without_data(TEXAS), []), tmp_path)
    assert json.loads((tmp_path / f"{TEXAS}.json").read_text())["status"] == "not run: data"


def test_a_curve_is_the_mean_of_the_runs_that_came_so_far():
    runs = [{"epoch": [1, 2], "val": [0.5, None]}, {"epoch": [1, 2, 3], "val": [0.7, 0.9, float("nan")]}]
    assert curve(runs) == [(1, pytest.approx(0.6)), (2, 0.9)]
