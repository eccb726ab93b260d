"""Only shares for which higher is better are shown as percentages."""

from gt_bench.data.custom.dataset import METRICS as METRICS_OF_TASKS
from gt_bench.data.custom.edges import LINK
from gt_bench.papers.units import PERCENT
from gt_bench.tasks.metrics import METRICS
from gt_bench.tasks.registry import create_task


def test_percentages_are_of_metrics_that_exist_and_never_of_errors():
    of_links = set(METRICS_OF_TASKS[LINK]) - METRICS.keys()
    assert PERCENT - METRICS.keys() == {"ordered-pair-accuracy", *of_links}
    assert {create_task(LINK, name).direction for name in of_links} == {"max"}
    assert create_task("configuration-ranking", "ordered-pair-accuracy").direction == "max"
    assert all(METRICS[name][1] == "max" for name in PERCENT & METRICS.keys())
