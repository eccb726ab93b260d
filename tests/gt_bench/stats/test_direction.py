"""The test whether a whole paper deviates to one side, on cases with obvious p values and on random ones."""

import numpy as np
import pytest

from gt_bench.stats.direction import FEWEST, MOST, direction


def one_sided(datasets, each=1):
    return {f"d{n}": [-1.0] * each for n in range(datasets)}


def test_equal_signs_have_the_smallest_possible_p_value():
    found = direction(one_sided(FEWEST))
    assert (found.numbers, found.worse, found.datasets) == (6, 6, 6)
    assert found.by_dataset == found.sign_p == pytest.approx(2 / 2**6)


def test_numbers_of_one_dataset_do_not_add_evidence_by_their_count():
    found = direction(one_sided(FEWEST, each=10))
    assert found.sign_p < 1e-15
    assert found.by_dataset == pytest.approx(2 / 2**6)


def test_too_few_datasets_equal_numbers_and_none():
    few = direction(one_sided(FEWEST - 1))
    assert (few.by_dataset, few.sign_p) == (None, 2 / 2**5)
    assert direction({}) == direction({"a": [0.0]})
    assert direction({}).sign_p is None
    assert direction({"a": [1.0, -1.0]}).sign_p == 1.0
    with pytest.raises(ValueError, match="expected at most 20"):
        direction(one_sided(MOST + 1))


def test_the_level_is_five_percent_for_correlated_datasets():
    rng = np.random.default_rng(0)
    tests, plain = 0, 0
    for _ in range(1000):
        shared = rng.normal(size=8)
        effects = {f"d{n}": list(value + 0.1 * rng.normal(size=4)) for n, value in enumerate(shared)}
        found = direction(effects)
        tests += found.by_dataset < 0.05
        plain += found.sign_p < 0.05
    assert tests <= 65  # 50 expected, with a deviation of 7
    assert plain > 150  # the plain sign test counts four correlated numbers as four independent ones
