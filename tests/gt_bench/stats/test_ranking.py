"""Ranks and strengths: against textbook values, a closed form and data drawn from known strengths."""

import math

import numpy as np
import pytest

from gt_bench.stats import ranking

NAN = float("nan")


def test_ties_share_a_rank_and_missing_results_have_none():
    found = ranking.ranks_of(np.array([[0.9, 0.5, 0.9], [0.1, NAN, 0.3]]))
    assert found[0].tolist() == [1.5, 3, 1.5]
    assert found[1][[0, 2]].tolist() == [2, 1]
    assert math.isnan(found[1, 1])


def test_critical_difference_is_that_of_the_published_table():
    """Demšar 2006, Table 5 (a): q is 2.343 for two models... 2.569 for four, 3.164 for ten, at 0.05."""
    for models, q in ((3, 2.343), (4, 2.569), (10, 3.164)):
        expected = q * math.sqrt(models * (models + 1) / (6 * 14))
        assert ranking.critical_difference(models, 14) == pytest.approx(expected, abs=2e-3)
    assert ranking.critical_difference(4, ranking.FEWEST - 1) is None
    assert ranking.critical_difference(2, 14) is None


def test_holm_multiplies_and_never_decreases():
    from scipy.stats import wilcoxon

    values = np.random.default_rng(1).random((10, 3)) + np.array([0.0, 0.3, 1.0])
    raw = {(i, j): wilcoxon(values[:, i] - values[:, j]).pvalue for i in range(3) for j in range(i)}
    order = sorted(raw, key=raw.get)
    found, largest = ranking.wilcoxon_holm(values), 0.0
    for number, (i, j) in enumerate(order):
        largest = max(largest, min(1.0, raw[i, j] * (3 - number)))
        assert found[i, j] == found[j, i] == pytest.approx(largest)
    assert np.isnan(ranking.wilcoxon_holm(values[:4])).all()


def test_wins_count_common_datasets_and_halves_for_ties():
    won = ranking.wins(np.array([[1.0, 0.0, NAN], [0.5, 0.5, 0.4], [NAN, 2.0, 1.0]]))
    assert won.sum(0).tolist() == [[0, 1.5, 1], [0.5, 0, 2], [0, 0, 0]]


def test_blocks_of_a_dataset_share_its_win():
    values = np.array([[1.0, 0.0, NAN], [0.0, 1.0, 0.5], [3.0, 2.0, NAN]])
    won = ranking.wins(values, np.array([7, 7, 9]))
    assert won.tolist() == [[[0, 0.5, 0], [0.5, 0, 1], [1, 0, 0]], [[0, 1, 0], [0, 0, 0], [0, 0, 0]]]


def test_models_with_equal_records_have_equal_strengths():
    """Four models that all beat the first, and each other in a circle: noise of the fit must not order them."""
    won = np.array([[0, 1, 1, 1, 1], [5, 0, 2, 1, 0], [5, 0, 0, 2, 1], [5, 1, 0, 0, 2], [5, 2, 1, 0, 0]], float)
    first, *others = ranking.bradley_terry(won)
    assert len(set(others)) == 1
    assert first < others[0]


def test_the_signed_rank_test_is_exact_with_and_without_ties():
    from scipy.stats import permutation_test, rankdata, wilcoxon

    rng = np.random.default_rng(0)
    for count in (5, 8, 13, 30):
        differences = rng.normal(0.3, 1, count)
        assert ranking.signed_rank(differences) == pytest.approx(wilcoxon(differences, method="exact").pvalue)
    for differences in (np.ones(5), np.array([1, 1, -1, 2, 2, 3, -0.5]), np.array([0, 0, 1, 1, 1, -2, 3, 4])):
        ranks = rankdata(np.abs(differences))
        exact = permutation_test(
            (ranks * np.sign(differences),), np.sum, permutation_type="samples", n_resamples=np.inf
        ).pvalue
        assert ranking.signed_rank(differences) == pytest.approx(exact)
    assert ranking.signed_rank(np.ones(5)) == 0.0625
    assert ranking.signed_rank(np.zeros(5)) == 1


def test_the_signed_rank_test_keeps_its_level():
    """Ties and few datasets make it conservative, never more often wrong than its level."""
    rng = np.random.default_rng(0)
    for count in (5, 6, 8, 12):
        p = np.array([ranking.signed_rank(np.round(rng.normal(size=count), 1)) for _ in range(1000)])
        for level in (0.05, 0.2):
            assert (p < level).mean() < level + 3 * math.sqrt(level / 1000)


def test_equal_differences_are_ties():
    """0.3 - 0.2 and 0.9 - 0.8 differ in the last bit."""
    values = np.array([[0.3, 0.2], [0.9, 0.8], [0.8, 0.9], [0.7, 0.6], [0.5, 0.4], [0.4, 0.3]])
    assert ranking.wilcoxon_holm(values)[0, 1] == 2 * (1 + 6) / 2**6


def test_friedman_keeps_its_level():
    rng = np.random.default_rng(0)
    p = np.array([ranking.friedman(ranking.ranks_of(rng.normal(size=(8, 4)))) for _ in range(600)])
    assert (p < 0.05).mean() < 0.05 + 3 * math.sqrt(0.05 / 600)


def test_two_models_have_the_log_odds_of_their_wins(monkeypatch):
    monkeypatch.setattr(ranking, "PRIOR", 1e-9)
    found = ranking.bradley_terry(np.array([[0.0, 30.0], [10.0, 0.0]]))
    assert found[0] - found[1] == pytest.approx(math.log(3), rel=1e-4)


def test_strengths_are_found_again_from_drawn_comparisons():
    rng, true = np.random.default_rng(0), np.array([1.0, 0.3, -0.2, -1.1])
    probability = 1 / (1 + np.exp(true[None, :] - true[:, None]))
    won = np.zeros((4, 4))
    for i in range(4):
        for j in range(i):
            won[i, j] = rng.binomial(4000, probability[i, j])
            won[j, i] = 4000 - won[i, j]
    assert ranking.bradley_terry(won) == pytest.approx(true, abs=0.08)


@pytest.mark.slow
def test_a_model_that_wins_or_loses_everything_has_a_strength_and_no_interval():
    elo, low, high = ranking.strengths(ranking.wins(np.tile([3.0, 2.0, 1.0], (8, 1))), draws=50)
    assert (np.diff(elo) < 0).all()
    assert np.isnan([low[0], high[0], low[2], high[2]]).all()
    assert low[1] <= elo[1] <= high[1]
    assert elo.mean() == pytest.approx(1000)


@pytest.mark.slow
def test_the_interval_of_a_strength_contains_it():
    values = np.random.default_rng(3).random((20, 3)) + np.array([0.3, 0.0, 0.0])
    elo, low, high = ranking.strengths(ranking.wins(values), draws=100)
    assert (low <= elo).all()
    assert (elo <= high).all()
    assert (high - low > 10).all()
    assert np.isnan(ranking.strengths(ranking.wins(values[:4]), draws=50)[1:]).all()


def test_a_draw_without_a_model_is_no_result_of_it():
    """One draw of nine has no dataset of the third model; at the prior it would be at the mean there."""
    won = np.zeros((12, 3, 3))
    won[:, 0, 1] = won[:, 1, 0] = 0.5
    won[:2, 2, 0], won[:2, 0, 2] = 0.95, 0.05
    elo, low, _ = ranking.strengths(won, draws=100)
    assert elo[2] > low[2] > 1100


def test_missing_results_are_below_all_known_ones():
    values = np.array([[-5.0, NAN, -9.0], [0.2, 0.1, NAN]])
    found = ranking.with_worst(values)
    assert found[0, 1] < -9
    assert found[1, 2] < 0.1
    assert found[~np.isnan(values)].tolist() == values[~np.isnan(values)].tolist()


def test_models_that_never_meet_the_others_are_not_linked():
    values = np.array([[1, 2, NAN, NAN, NAN], [NAN, 1, 2, NAN, NAN], [NAN, NAN, NAN, 1, 2]])
    assert ranking.linked(values) == [0, 1, 2]
