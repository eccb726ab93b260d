"""Only shares for which higher is better are shown as percentages."""

import pytest

from gt_bench.config.tasks import LINK
from gt_bench.config.tasks import METRICS as METRICS_OF_TASKS
from gt_bench.papers.units import PERCENT, difference_text, mean_and_std
from gt_bench.tasks.metrics import METRICS
from gt_bench.tasks.registry import create_task


def test_percentages_are_of_metrics_that_exist_and_never_of_errors():
    of_links = set(METRICS_OF_TASKS[LINK]) - METRICS.keys()
    assert PERCENT - METRICS.keys() == {"ordered-pair-accuracy", *of_links}
    assert {create_task(LINK, name).direction for name in of_links} == {"max"}
    assert create_task("configuration-ranking", "ordered-pair-accuracy").direction == "max"
    assert all(METRICS[name][1] == "max" for name in PERCENT & METRICS.keys())


@pytest.mark.parametrize(
    ("mean", "std", "percent", "text"),
    [
        (0.66757, 0.04423, True, "66.76 ± 4.42"),
        (0.66757, 1e-9, True, "66.76 ± 0.00"),
        (0.5607234, 0.0144721, False, "0.5607 ± 0.0145"),
        (0.5 + 1e-9, 8.196e-10, False, "0.5000 ± 0.0000"),
        (0.081, 0.009, False, "0.081 ± 0.009"),  # exact with three decimals
        (0.0700, 0.00412, False, "0.07000 ± 0.00412"),
        (95.0, 0.0, False, "95 ± 0"),
        (0.0123456, 1.98765, False, "0.012 ± 1.988"),  # the larger number decides
        (9.99996, 0.1234, False, "10.00 ± 0.12"),
        (12345.67, 89.12, False, "12346 ± 89"),
        (-0.41666, 0.72169, False, "-0.4167 ± 0.7217"),
        (1.2344e-7, 3e-8, False, "1.234e-07 ± 0.300e-07"),
        (2.5e7, 1e6, False, "2.500e+07 ± 0.100e+07"),
        (float("nan"), float("nan"), False, "nan ± nan"),
        (0.25, None, False, "0.25"),
        (None, None, False, "–"),
    ],
)
def test_a_mean_and_its_spread_have_the_same_decimals(mean, std, percent, text):
    assert mean_and_std(mean, std, percent) == text


def test_a_difference_and_its_interval_have_the_same_decimals():
    assert difference_text(0.08957, (0.02603, 0.15312), False) == "+0.0896 [0.0260, 0.1531]"
    assert difference_text(-0.0052, (-0.0103, 0.00011), True) == "-0.52 [-1.03, 0.01]"
    assert difference_text(0.0, None, True) == "0.00"
    assert difference_text(None, None, True) == "–"
