"""Ranks of models over datasets, and the strength of models from pairwise results.

Average ranks: Friedman's test, the critical difference of Nemenyi, and Wilcoxon's signed-rank test between two models
with Holm's correction (Demšar 2006, "Statistical comparisons of classifiers over multiple data sets"). Strengths: the
model of Bradley and Terry (1952), P(a beats b) = 1 / (1 + exp(s_b - s_a)), fitted by maximum a posteriori and shown on
the scale of Elo (400 points: odds of 10; the mean is 1000).
"""

import math

import numpy as np

FEWEST = 5  # datasets for a test over datasets
PRIOR = 0.1  # precision of the normal prior: strengths stay finite if a model wins or loses every comparison
ELO = 400 / math.log(10)
# values that differ by less than this fraction are equal
TIE = 1e-9


def ranks_of(values: np.ndarray) -> np.ndarray:
    """Ranks each row, where 1 is best and ties share their mean rank.

    Args:
        values: larger is better, NaN where a result is missing, [datasets, models].

    Returns:
        Ranks, NaN where a result is missing, [datasets, models].
    """
    from scipy.stats import rankdata

    found = np.full(values.shape, np.nan)
    for row, out in zip(values, found, strict=True):
        known = ~np.isnan(row)
        out[known] = rankdata(-row[known])
    return found


def friedman(ranks: np.ndarray) -> float | None:
    """Returns the p-value of Friedman's test that all models have the same mean rank.

    Args:
        ranks: complete ranks, [datasets, models].

    Returns:
        The p-value, or None for fewer than `FEWEST` datasets or three models, or if all ranks are equal.
    """
    from scipy.stats import friedmanchisquare

    if ranks.shape[0] < FEWEST or ranks.shape[1] < 3 or np.ptp(ranks) == 0:
        return None
    return float(friedmanchisquare(*ranks.T).pvalue)


def critical_difference(models: int, datasets: int, level: float = 0.05) -> float | None:
    """Returns the difference of two mean ranks from which on they differ significantly (Nemenyi).

    Args:
        models: number of models.
        datasets: number of datasets.
        level: significance level.

    Returns:
        The difference, or None for fewer than `FEWEST` datasets or two models.
    """
    from scipy.stats import studentized_range

    if datasets < FEWEST or models < 2:
        return None
    q = float(studentized_range.ppf(1 - level, models, np.inf)) / math.sqrt(2)
    return q * math.sqrt(models * (models + 1) / (6 * datasets))


def wilcoxon_holm(values: np.ndarray) -> np.ndarray:
    """Wilcoxon's signed-rank test between all pairs of models, with Holm's correction.

    The sizes of differences are compared over datasets, so metrics of one kind are assumed.

    Args:
        values: as in `ranks_of`. A pair is tested on the datasets that both have.

    Returns:
        Corrected p-values, [models, models]. NaN for fewer than `FEWEST` common datasets.
    """
    from scipy.stats import wilcoxon

    models = values.shape[1]
    tests: list[tuple[float, int, int]] = []
    for i in range(models):
        for j in range(i + 1, models):
            difference = values[:, i] - values[:, j]
            difference = difference[~np.isnan(difference)]
            if len(difference) >= FEWEST:
                p = 1.0 if not difference.any() else float(wilcoxon(difference, zero_method="zsplit").pvalue)
                tests.append((p, i, j))
    found, largest = np.full((models, models), np.nan), 0.0
    for number, (p, i, j) in enumerate(sorted(tests)):
        largest = max(largest, min(1.0, p * (len(tests) - number)))
        found[i, j] = found[j, i] = largest
    return found


def wins(values: np.ndarray) -> np.ndarray:
    """Counts on how many datasets each model is better than each other one; a tie is half a win for both.

    Args:
        values: as in `ranks_of`. A pair counts on the datasets that both have.

    Returns:
        Wins of the row over the column, [models, models].
    """
    return _wins_by_dataset(values).sum(0)


def _wins_by_dataset(values: np.ndarray) -> np.ndarray:
    """Wins of the row over the column on each dataset, [datasets, models, models]."""
    first, second = values[:, :, None], values[:, None, :]
    with np.errstate(invalid="ignore"):
        tie = np.abs(first - second) <= TIE * np.maximum(np.abs(first), np.abs(second))
        found = np.where(tie, 0.5, (first > second).astype(float))
    found[np.isnan(first - second)] = 0
    found[:, np.arange(values.shape[1]), np.arange(values.shape[1])] = 0
    return found


def bradley_terry(won: np.ndarray) -> np.ndarray:
    """Fits strengths to numbers of wins.

    Args:
        won: wins of the row over the column, [models, models].

    Returns:
        Strengths in logits, mean 0, [models].
    """
    from scipy.optimize import minimize

    def loss(s: np.ndarray) -> tuple[float, np.ndarray]:
        difference = s[:, None] - s[None, :]
        against = won / (1 + np.exp(difference))  # wins times the probability of the opposite
        value = (won * np.logaddexp(0, -difference)).sum() + PRIOR / 2 * (s**2).sum()
        return float(value), against.sum(0) - against.sum(1) + PRIOR * s

    found = minimize(loss, np.zeros(len(won)), jac=True, method="L-BFGS-B").x
    return found - found.mean()


def strengths(values: np.ndarray, draws: int = 200) -> np.ndarray:
    """Fits strengths, with intervals of a bootstrap that draws datasets with replacement.

    Args:
        values: as in `ranks_of`.
        draws: number of draws.

    Returns:
        Strengths on the scale of Elo, mean 1000, and both ends of their 95 % intervals, [3, models].
    """
    by_dataset, rng = _wins_by_dataset(values), np.random.default_rng(0)
    found = bradley_terry(by_dataset.sum(0))
    drawn = [bradley_terry(by_dataset[rng.integers(0, len(values), len(values))].sum(0)) for _ in range(draws)]
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return 1000 + ELO * np.stack([found, low, high])


def with_worst(values: np.ndarray) -> np.ndarray:
    """Puts missing results below every known result of their dataset, as equals of each other.

    Args:
        values: as in `ranks_of`.
    """
    lowest = np.nanmin(values, axis=1, keepdims=True)
    return np.where(np.isnan(values), lowest - np.maximum(np.abs(lowest), 1.0), values)


def linked(values: np.ndarray) -> list[int]:
    """Returns the largest set of models that chains of comparisons link; the strengths of others are not comparable.

    Args:
        values: as in `ranks_of`.
    """
    from scipy.sparse.csgraph import connected_components

    known = ~np.isnan(values)
    _, label = connected_components((known.T.astype(int) @ known.astype(int)) > 0, directed=False)
    return np.flatnonzero(label == np.bincount(label).argmax()).tolist()
