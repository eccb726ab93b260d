"""Distributions are those of scipy, and helpers those of numpy and pandas."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from gt_bench.stats import ranking
from gt_bench.stats.student import quantile, upper_tail
from gt_bench.stats.welch import first_count, sample_std


@pytest.mark.parametrize("df", [1, 2.6, 9, 150, np.inf])
def test_quantiles_and_tails_are_those_of_student_s_distribution(df):
    for q in (0.6, 0.975, 0.9999):
        assert quantile(q, df) == pytest.approx(scipy.stats.t.ppf(q, df), rel=1e-9)
        assert upper_tail(quantile(q, df), df) == pytest.approx(1 - q, rel=1e-9)


def test_small_helpers():
    values = np.array([0.2, 0.5, 0.9])
    assert sample_std(float(values.std()), 3) == pytest.approx(values.std(ddof=1))
    assert [first_count(lambda n: n * n > 50, start) for start in (1, 9)] == [8, 9]
    table, datasets = np.random.default_rng(0).random((6, 2)), np.array([0, 1, 0, 2, 1, 0])
    wanted = pd.DataFrame(table).groupby(datasets).mean().to_numpy()
    assert ranking.mean_by_dataset(table, datasets) == pytest.approx(wanted)
