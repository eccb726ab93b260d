"""Paired tests on one dataset, and ranks over several."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from gt_bench.config.verdict_settings import Rules
from gt_bench.stats.paired import TOO_FEW, ExampleError, bayesian, bayesian_over_datasets, paired, ranks


def draws(count: int, shift: float, spread: float, shared: float, seed: int = 0) -> tuple[list[float], list[float]]:
    """Draws pairs whose values share an effect of standard deviation `shared`."""
    rng = np.random.default_rng(seed)
    both = shared * rng.standard_normal(count)
    first, second = (0.5 + both + spread * rng.standard_normal(count) for _ in range(2))
    return (first + shift).tolist(), second.tolist()


def test_the_interval_and_p_value_are_those_of_the_paired_t_test():
    first, second = draws(10, 0.02, 0.02, 0.1)
    found, test = paired(first, second, "max"), stats.ttest_rel(first, second)
    assert found.p_value == pytest.approx(test.pvalue, rel=1e-9)
    assert found.interval == pytest.approx(tuple(test.confidence_interval(0.95)), rel=1e-9)
    differences = np.subtract(first, second)
    assert found.effect == pytest.approx(differences.mean() / differences.std(ddof=1))
    assert found.ahead == (differences > 0).sum()


def test_effects_common_to_a_pair_cancel():
    first, second = draws(10, 0.05, 0.02, 0.5)
    assert paired(first, second, "max").word == "first"
    assert stats.ttest_ind(first, second).pvalue > 0.5


def test_smaller_is_better_where_the_metric_states_it():
    first, second = draws(10, 0.1, 0.02, 0.1)
    assert paired(first, second, "max").word == "first"
    turned = paired(first, second, "min")
    assert (turned.word, turned.difference < 0) == ("second", True)


def test_the_number_of_deciding_pairs_is_the_smallest():
    first, second = draws(6, 0.01, 0.02, 0.1, seed=3)
    found = paired(first, second, "max")
    assert found.word == "inconclusive"
    std = np.subtract(first, second).std(ddof=1)

    def decided(pairs: int) -> bool:
        return abs(found.difference) > stats.t.ppf(0.975, pairs - 1) * std / math.sqrt(pairs)

    assert decided(6 + found.more_pairs)
    assert not decided(6 + found.more_pairs - 1)


@pytest.mark.parametrize(
    ("first", "second", "word", "interval", "p"),
    [
        ([0.5], [0.6], TOO_FEW, False, None),
        ([0.5, 0.6], [0.6, 0.8], TOO_FEW, False, None),
        ([0.5, 0.6], [0.5, 0.6], TOO_FEW, False, None),
        ([0.5] * 5, [0.4] * 5, TOO_FEW, False, None),
        ([0.5] * 5, [0.5] * 5, TOO_FEW, False, None),
        ([0.5] * 6, [0.4] * 6, "first", False, 2 / 2**6),
        ([0.5] * 6, [0.5] * 6, "equal", False, None),
        ([0.6, 0.7, 0.85], [0.5, 0.6, 0.7], "first", True, None),
        ([0.5, 0.6, 0.5, 0.6], [0.6, 0.5, 0.6, 0.5], "inconclusive", True, 1),
    ],
)
def test_few_pairs_and_pairs_without_a_spread_decide_nothing(first, second, word, interval, p):
    found = paired(first, second, "max")
    assert (found.word, found.interval is not None) == (word, interval)
    assert p is None or found.p_value == pytest.approx(p)
    assert found.effect is None or math.isfinite(found.effect)
    if word in (TOO_FEW, "equal") or not found.difference:
        assert found.more_pairs is None


def test_the_error_of_test_examples_is_added_to_that_of_runs():
    first, second = draws(6, 0.02, 0.02, 0.1)
    alone, found = paired(first, second, "max"), paired(first, second, "max", examples=ExampleError(0.03, True))
    variance = np.subtract(first, second).var(ddof=1) / 6
    total = variance + 0.03**2
    half = stats.t.ppf(0.975, 5 * (total / variance) ** 2) * math.sqrt(total)
    assert found.interval == pytest.approx((found.difference - half, found.difference + half))
    assert found.example_error == 0.03
    # runs with examples of their own: at least that error, and it is not counted twice
    assert paired(first, second, "max", examples=ExampleError(1e-6, False)) == replace(alone, example_error=1e-6)
    own = paired(first, second, "max", examples=ExampleError(0.03, False)).interval
    assert own[1] - own[0] == pytest.approx(2 * stats.t.ppf(0.975, 5) * 0.03)


def test_one_example_of_thirty_decides_nothing():
    """Both seeds, or six of them, have one node less right: -3.33."""
    error = math.sqrt((1 / 30) * (29 / 30) / 30)
    for count, word in ((2, TOO_FEW), (6, "inconclusive")):
        found = paired([0.5] * count, [0.5 + 1 / 30] * count, "max", examples=ExampleError(error, True), span=1.0)
        assert found.word == word
        assert (found.interval is None) == (word == TOO_FEW)
    assert found.interval[0] < -1 / 30 < 0 < found.interval[1]


def test_no_accuracy_is_above_one():
    assert paired([1.0, 0.9, 0.1], [0.0] * 3, "max", span=1.0).interval[1] == 1.0


def test_a_value_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="not finite"):
        paired([0.5, 0.6, math.nan], [0.5] * 3, "max")


@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False])
def test_equal_models_on_drawn_examples_are_called_different_in_at_most_five_cases_of_a_hundred(shared):
    """Each example has an effect in favour of one model, each run a noise; without `examples` shared sets fail."""
    rng, wrong, naive = np.random.default_rng(0), 0, 0
    for _ in range(1500):
        runs = []
        own = rng.standard_normal(100)
        for _ in range(5):
            own = own if shared else rng.standard_normal(100)
            runs.append((own, 0.05 * rng.standard_normal()))
        differences = [effects.mean() + noise for effects, noise in runs]
        deviations = [effects.std(ddof=1) / 10 for effects, _ in runs]
        error = deviations[0] if shared else math.sqrt(sum(d**2 for d in deviations)) / 5
        words = [
            paired(differences, [0.0] * 5, "max", examples=given).word for given in (ExampleError(error, shared), None)
        ]
        wrong += words[0] in ("first", "second")
        naive += words[1] in ("first", "second")
    assert wrong / 1500 < 0.065
    assert (naive / 1500 > 0.3) == shared


def test_equal_truth_is_called_better_in_five_cases_of_a_hundred():
    words = [paired(*draws(5, 0.0, 0.02, 0.1, seed), "max").word for seed in range(1000)]
    assert 0.03 < sum(word in ("first", "second") for word in words) / 1000 < 0.07
    strict = [paired(*draws(5, 0.0, 0.02, 0.1, seed), "max", Rules(level=0.01)).word for seed in range(1000)]
    assert sum(word in ("first", "second") for word in strict) / 1000 < 0.025


def test_bayesian_probabilities_are_of_the_side_that_is_better():
    first, second = draws(10, 0.1, 0.02, 0.1)
    better, same, worse = bayesian(first, second, "max", 0.01)
    assert better > 0.95
    assert better + same + worse == pytest.approx(1)
    assert bayesian(first, second, "min", 0.01)[2] == pytest.approx(better)
    assert bayesian(first, first, "max", 0.01) == (0.0, 1.0, 0.0)
    assert bayesian_over_datasets([0.6] * 8, [0.5] * 8, 0.01)[0] > 0.95


def test_mean_ranks_and_the_critical_difference():
    rng = np.random.default_rng(0)
    means = {
        name: (shift + 0.1 * rng.standard_normal(8)).tolist() for name, shift in (("a", 0.0), ("b", 1.0), ("c", 2.0))
    }
    found = ranks(means)
    assert list(found.mean_ranks.items()) == [("c", 1.0), ("b", 2.0), ("a", 3.0)]
    assert found.test == "friedman"
    # Demsar 2006, Equation for Nemenyi's critical difference: q_0.05 of three models is 2.343
    assert found.critical == pytest.approx(2.343 * math.sqrt(3 * 4 / (6 * 8)), rel=1e-3)
    assert found.p_value == pytest.approx(stats.friedmanchisquare(*means.values()).pvalue)


def test_two_models_have_no_critical_difference_and_few_datasets_no_test():
    assert ranks({"a": [1, 2, 3, 4, 5, 6], "b": [0, 1, 2, 3, 4, 5.5]}).critical is None
    few = ranks({"a": [1, 2], "b": [0, 3], "c": [2, 1]})
    assert (few.test, few.critical, few.datasets) == (None, None, 2)


def test_two_models_are_tested_on_both_sides():
    """A side that is chosen after a look at the data would halve the p value."""
    first, second = draws(8, 0.01, 0.02, 0.1)
    found = ranks({"a": first, "b": second})
    assert found.test == "wilcoxon"
    assert found.p_value == pytest.approx(stats.wilcoxon(first, second).pvalue)
    assert ranks({"a": first, "b": first}).p_value == 1


def test_three_equal_models_are_not_distinguished():
    found = ranks({name: [0.1, 0.2, 0.3, 0.4, 0.5] for name in "abc"})
    assert (found.test, found.p_value) == ("friedman", 1)
