"""The data of the page's plots."""

import json

import pytest

from gt_bench.claims.experiments.registry import sealed
from gt_bench.leaderboard.row import Cost, Row
from gt_bench.papers.units import Unit
from gt_bench.records.run import RunStatus
from gt_bench.records.state import CellState
from gt_bench.reports.html import plot_data
from tests.gt_bench.cells import changed, make_record


def row(dataset, model):
    """A row with the cost of a run."""
    state, cost = CellState(ended=RunStatus.OK), Cost(1, 1.0, 2.0, "cpu")
    return Row(f"s/{dataset}/{model}", "accuracy", "max", Unit.PERCENT, state, cost=cost, source="own")


def test_scaling_is_of_datasets_that_differ_in_a_number():
    found = plot_data.scaling([row("er-1000", "a"), row("er-100", "a"), row("er-100", "b"), row("zinc", "a")], {})
    assert [(r["model"], r["size"]) for r in found] == [("a", 100), ("a", 1000)]


@pytest.mark.parametrize(
    ("percent", "threads", "seconds", "starved"),
    [
        ([99.0, 100.0, 101.0], 1, 1.0, False),
        ([10.0, 10.0, 70.0], 1, 0.3, True),
        ([100.0, 100.0, 10.0], 1, 0.7, True),
        ([160.0], 2, 0.8, False),
        ([], 1, 1.0, False),
    ],
)
def test_the_cost_of_a_run_is_processor_time_and_a_starved_point_is_marked(percent, threads, seconds, starved):
    usage = {"usage": {"cpu_percent": percent}, "threads": threads}
    record = changed(make_record("s/er-100/a", 0), measured=usage)
    rows = [row(dataset, "a") for dataset in ("er-100", "er-1000")]
    first, second = plot_data.scaling(rows, {("own", "s/er-100/a"): [record]})
    assert (first["seconds"], first["starved"]) == (pytest.approx(seconds), starved)
    assert (second["seconds"], second["starved"]) == (1.0, False)


def test_growth_is_what_was_counted_and_sealed(tmp_path):
    sizes = {"sizes": [1, 2], "operations": [3, 12]}
    cases = {"PPGT": {"value": sizes, "command": "c", "commit": "c", "date": "d", "version": 1}}
    path = tmp_path / "growth.json"
    path.write_text(json.dumps({"cases": cases, "sha256": sealed(cases)}))
    assert plot_data.growth(tmp_path) == {"PPGT": sizes}
    path.write_text(json.dumps({"cases": cases, "sha256": "0"}))
    assert plot_data.growth(tmp_path) == {}
    assert plot_data.growth(tmp_path / "nowhere") == {}


def test_the_study_of_run_time_is_what_the_benchmark_wrote(tmp_path):
    from benchmarks import hot_scaling

    row = {"model": "Ours (S)", "nodes": 6, "graph": 0, "device": "cpu", "threads": 1}
    good = row | {"edges": 10, "status": "ok", "forward_seconds": 0.5, "backward_seconds": 1.0, "peak_mib": 3.0}
    hot_scaling.write([good, row | {"edges": 20, "status": "oom"}], tmp_path)
    assert plot_data.hot_scaling(tmp_path / "hot_scaling.csv") == [
        {"model": "Ours (S)", "edges": 10, "seconds": 0.5, "memory": 3.0}
    ]
    assert plot_data.hot_scaling(tmp_path / "nowhere.csv") == []
