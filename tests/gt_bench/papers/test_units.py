"""Only shares for which higher is better are shown as percentages."""

from gt_bench.papers.units import PERCENT
from gt_bench.tasks.metrics import METRICS
from gt_bench.tasks.registry import create_task


def test_percentages_are_of_metrics_that_exist_and_never_of_errors():
    assert PERCENT - METRICS.keys() == {"ordered-pair-accuracy"}
    assert create_task("configuration-ranking", "ordered-pair-accuracy").direction == "max"
    assert all(METRICS[name][1] == "max" for name in PERCENT & METRICS.keys())
