"""Ranks of models over datasets, and the strength of models from pairwise results.

Average ranks: Friedman's test, the critical difference of Nemenyi, and Wilcoxon's signed-rank test between two models
with Holm's correction (Demšar 2006, "Statistical comparisons of classifiers over multiple data sets"). Strengths: the
model of Bradley and Terry (1952), P(a beats b) = 1 / (1 + exp(s_b - s_a)), fitted by maximum a posteriori and shown on
the scale of Elo (400 points: odds of 10; the mean is 1000).

A row of `values` is a block: the results of one protocol on a dataset. `datasets` has the dataset of each block. Every
test and the bootstrap count datasets, so several blocks of a dataset are one observation.
"""

import math

import numpy as np

FEWEST = 5  # datasets for a test over datasets
PRIOR = 0.1  # precision of the normal prior: strengths stay finite if a model wins or loses every comparison
ELO = 400 / math.log(10)
TIE = 1e-9  # values that differ by less than this fraction are equal
SEEN = 0.5  # an interval needs this share of draws in which the model is compared


def ranks_of(values: np.ndarray) -> np.ndarray:
    """Ranks each row, where 1 is best and ties share their mean rank.

    Args:
        values: larger is better, NaN where a result is missing, [blocks, models].

    Returns:
        Ranks, NaN where a result is missing, [blocks, models].
    """
    from scipy.stats import rankdata

    found = np.full(values.shape, np.nan)
    for row, out in zip(values, found, strict=True):
        known = ~np.isnan(row)
        out[known] = rankdata(-row[known])
    return found


def mean_by_dataset(values: np.ndarray, datasets: np.ndarray) -> np.ndarray:
    """Averages the blocks of each dataset, without those that are NaN.

    Args:
        values: [blocks, ...].
        datasets: index of the dataset of each block, [blocks].

    Returns:
        [datasets, ...], in ascending order of the index; NaN where all blocks are.
    """
    known, groups = ~np.isnan(values), [datasets == one for one in np.unique(datasets)]
    sums = np.stack([np.where(known, values, 0.0)[group].sum(0) for group in groups])
    counts = np.stack([known[group].sum(0) for group in groups])
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


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
        The difference, or None for fewer than `FEWEST` datasets or three models: two are tested by Wilcoxon.
    """
    from scipy.stats import studentized_range

    if datasets < FEWEST or models < 3:
        return None
    q = float(studentized_range.ppf(1 - level, models, np.inf)) / math.sqrt(2)
    return q * math.sqrt(models * (models + 1) / (6 * datasets))


def signed_rank(differences: np.ndarray) -> float:
    """Wilcoxon's signed-rank test, exact with ties: over all signs of the ranks, two-sided.

    Zeros are ranked and then left out (Pratt 1959). Without ties and zeros it is `scipy.stats.wilcoxon` with its exact
    method. With ties scipy takes a normal approximation: 0.025 instead of 0.0625 for five equal differences.

    Args:
        differences: equal ones have the same digits, [datasets].

    Returns:
        The p-value; 1 if all differences are zero.
    """
    from scipy.stats import rankdata

    ranks = np.rint(2 * rankdata(np.abs(differences))).astype(int)[differences != 0]  # doubled: whole numbers
    counts = np.ones(1)  # number of assignments of signs by the sum of the positive ranks
    for rank in ranks:
        shifted = np.pad(counts, (rank, 0))
        counts = (np.pad(counts, (0, rank)) + shifted) / 2
    positive = ranks[differences[differences != 0] > 0].sum()
    distance = np.abs(2 * np.arange(len(counts)) - ranks.sum())
    return min(1.0, float(counts[distance >= abs(2 * positive - ranks.sum())].sum()))


def wilcoxon_holm(values: np.ndarray, datasets: np.ndarray | None = None) -> np.ndarray:
    """Wilcoxon's signed-rank test between all pairs of models, with Holm's correction.

    Args:
        values: as in `ranks_of`, in one unit or divided by a scale of the block. A pair is tested on common datasets.
        datasets: index of the dataset of each block; each block is one by default.

    Returns:
        Corrected p-values, [models, models]. NaN for fewer than `FEWEST` common datasets.
    """
    models = values.shape[1]
    datasets = np.arange(len(values)) if datasets is None else datasets
    tests: list[tuple[float, int, int]] = []
    for i in range(models):
        for j in range(i + 1, models):
            difference = mean_by_dataset(values[:, i] - values[:, j], datasets)
            difference = difference[~np.isnan(difference)]
            # digits that differ by floating-point rounding alone are ties
            difference = np.round(difference, 9 - math.ceil(math.log10(np.abs(difference).max(initial=TIE))))
            if len(difference) >= FEWEST:
                tests.append((signed_rank(difference), i, j))
    found, largest = np.full((models, models), np.nan), 0.0
    for number, (p, i, j) in enumerate(sorted(tests)):
        largest = max(largest, min(1.0, p * (len(tests) - number)))
        found[i, j] = found[j, i] = largest
    return found


def wins(values: np.ndarray, datasets: np.ndarray | None = None) -> np.ndarray:
    """Returns the share of each dataset that a model wins against each other one; a tie is half a win for both.

    Args:
        values: as in `ranks_of`. A pair is compared on the blocks that both have.
        datasets: index of the dataset of each block; each block is one by default.

    Returns:
        Wins of the row over the column, 0 where they are not compared, [datasets, models, models].
    """
    first, second = values[:, :, None], values[:, None, :]
    with np.errstate(invalid="ignore"):
        tie = np.abs(first - second) <= TIE * np.maximum(np.abs(first), np.abs(second))
        found = np.where(tie, 0.5, (first > second).astype(float))
    found[np.isnan(first - second)] = np.nan
    found[:, np.arange(values.shape[1]), np.arange(values.shape[1])] = 0
    return np.nan_to_num(found if datasets is None else mean_by_dataset(found, datasets))


def bradley_terry(won: np.ndarray) -> np.ndarray:
    """Fits strengths to numbers of wins.

    Args:
        won: wins of the row over the column, [models, models].

    Returns:
        Strengths in logits, mean 0, [models], to six decimals: models with equal records are equal on every processor.
    """
    from scipy.optimize import minimize

    def loss(s: np.ndarray) -> tuple[float, np.ndarray]:
        difference = s[:, None] - s[None, :]
        against = won / (1 + np.exp(difference))  # wins times the probability of the opposite
        value = (won * np.logaddexp(0, -difference)).sum() + PRIOR / 2 * (s**2).sum()
        return float(value), against.sum(0) - against.sum(1) + PRIOR * s

    exact = {"gtol": 1e-9, "ftol": 0.0, "maxiter": 1000}
    fitted = minimize(loss, np.zeros(len(won)), jac=True, method="L-BFGS-B", options=exact).x
    return (fitted - fitted.mean()).round(6)


def strengths(won: np.ndarray, draws: int = 200) -> np.ndarray:
    """Fits strengths, with intervals of a bootstrap that draws datasets with replacement (Efron and Tibshirani 1993).

    A draw counts for the models that its comparisons link, at the mean strength that they have in the fit to all
    datasets. A model has no interval if it won or lost every comparison, since no draw shows how much better it is, if
    there are fewer than `FEWEST` datasets, or if fewer than half of the draws link it.

    Args:
        won: of `wins`, [datasets, models, models].
        draws: number of draws.

    Returns:
        Strengths on the scale of Elo, mean 1000, and both ends of their 95 % intervals, NaN without one, [3, models].
    """
    rng, total = np.random.default_rng(0), won.sum(0)
    fit = bradley_terry(total)
    drawn = np.full((draws, len(fit)), np.nan)
    for draw in drawn if len(won) >= FEWEST else ():
        of_draw = won[rng.integers(0, len(won), len(won))].sum(0)
        models = _linked(of_draw + of_draw.T > 0)
        its = bradley_terry(of_draw[np.ix_(models, models)])
        draw[models] = its - its.mean() + fit[models].mean()
    known = (~np.isnan(drawn)).mean(0) >= SEEN
    ends = np.full((2, len(fit)), np.nan)
    known &= (total.sum(1) > 0) & (total.sum(0) > 0)
    ends[:, known] = np.nanquantile(drawn[:, known], [0.025, 0.975], axis=0)
    return 1000 + ELO * np.stack([fit, *ends])


def with_worst(values: np.ndarray) -> np.ndarray:
    """Puts missing results below every known result of their block, as equals of each other.

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
    known = ~np.isnan(values)
    return _linked((known.T.astype(int) @ known.astype(int)) > 0).tolist()


def _linked(met: np.ndarray) -> np.ndarray:
    """Returns the largest set of models that chains link, by whether two of them meet, [models, models]."""
    from scipy.sparse.csgraph import connected_components

    _, label = connected_components(met, directed=False)
    return np.flatnonzero(label == np.bincount(label).argmax())
