"""The data of the page's plots."""

import json

from gt_bench.claims.experiments.registry import sealed
from gt_bench.reports.html import plot_data


def test_scaling_is_of_datasets_that_differ_in_a_number():
    def row(dataset, model):
        return {"dataset": dataset, "model": model, "cell": f"s/{dataset}/{model}", "source": "own", "device": "cpu",
                "seconds_per_epoch": 1.0, "peak_memory_mib": 2.0}  # fmt: skip

    found = plot_data.scaling([row("er-1000", "a"), row("er-100", "a"), row("er-100", "b"), row("zinc", "a")])
    assert [(r["model"], r["size"]) for r in found] == [("a", 100), ("a", 1000)]


def test_growth_is_what_was_counted_and_sealed(tmp_path):
    cases = {
        "PPGT": {
            "value": {"sizes": [1, 2], "operations": [3, 12]},
            "command": "c",
            "commit": "c",
            "date": "d",
            "version": 1,
        }
    }
    path = tmp_path / "growth.json"
    path.write_text(json.dumps({"cases": cases, "sha256": sealed(cases)}))
    assert plot_data.growth(tmp_path) == {"PPGT": {"sizes": [1, 2], "operations": [3, 12]}}
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
