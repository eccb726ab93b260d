"""Comparison of two models on the same seeds and splits, and of several models over several datasets.

One dataset: paired differences, their mean with Student's interval, and how many pairs would decide. Effects of the
split and the seed cancel in the differences, so fewer runs are needed than for unpaired sets. Several datasets: ranks
of the means per dataset, with the tests of `gt_bench.stats.ranking` (Wilcoxon for two models, Friedman with Nemenyi's
critical difference for more). Bayesian: the correlated t-test for one dataset and the signed-rank test for several
(Benavoli et al. 2017), with baycomp.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gt_bench.config.verdict_settings import Rules
from gt_bench.stats import ranking
from gt_bench.stats.equivalence import first_count, quantile, slack_of, upper_tail

FIRST, SECOND, INCONCLUSIVE, EQUAL = "first", "second", "inconclusive", "equal"


@dataclass(frozen=True)
class Paired:
    """Result of a paired comparison. Positive differences favour the first model, for either direction of the metric.

    Attributes:
        pairs: number of pairs.
        difference: mean of first minus second.
        interval: its confidence interval. None for one pair.
        effect: Cohen's d of the pairs.
        ahead: number of pairs in which the first model is better.
        ties: number of pairs with equal values.
        p_value: of the paired t-test.
        word: "first" or "second" for the better model, "inconclusive", or "equal" if all pairs are equal.
        more_pairs: number of additional pairs that would decide at this difference and spread. None if decided, or
            beyond MOST_SEEDS.
    """

    pairs: int
    difference: float
    interval: tuple[float, float] | None
    effect: float | None
    ahead: int
    ties: int
    p_value: float | None
    word: str
    more_pairs: int | None = None


@dataclass(frozen=True)
class Ranks:
    """Ranks of models over datasets.

    Attributes:
        mean_ranks: {model: mean rank}, where 1 is best, best first.
        datasets: number of datasets.
        test: "wilcoxon" or "friedman". None if there are too few datasets.
        p_value: of the test.
        critical: mean ranks that differ by more are significantly different (Nemenyi, for three models or more).
    """

    mean_ranks: Mapping[str, float]
    datasets: int
    test: str | None = None
    p_value: float | None = None
    critical: float | None = None


def paired(first: Sequence[float], second: Sequence[float], direction: str, rules: Rules | None = None) -> Paired:
    """Compares two models on one dataset.

    Args:
        first: values of the first model, at least one.
        second: values of the second model. `second[i]` has the same seed and split as `first[i]`.
        direction: "max" or "min".
        rules: settings of the tests.
    """
    level, sign = (rules or Rules()).level, 1 if direction == "max" else -1
    differences = [sign * (a - b) for a, b in zip(first, second, strict=True)]
    slack = slack_of(max(map(abs, (*first, *second))))
    differences = [0.0 if abs(d) <= slack else d for d in differences]
    count, mean = len(differences), statistics.fmean(differences)
    ahead, ties = sum(d > 0 for d in differences), differences.count(0.0)
    if not any(differences):
        return Paired(count, 0.0, (0.0, 0.0) if count > 1 else None, None, 0, ties, None, EQUAL)
    if count == 1:
        return Paired(count, mean, None, None, ahead, ties, None, INCONCLUSIVE)
    std = statistics.stdev(differences)

    def half_width(runs: int) -> float:
        return quantile(1 - level / 2, runs - 1) * std / math.sqrt(runs)

    half = half_width(count)
    # t is infinite if all differences are equal
    p_value = 2 * upper_tail(abs(mean) / std * math.sqrt(count), count - 1) if std > slack else 0.0
    effect = mean / std if std > slack else math.copysign(math.inf, mean)
    base = Paired(count, mean, (mean - half, mean + half), effect, ahead, ties, p_value, FIRST if mean > 0 else SECOND)
    if abs(mean) > half:
        return base
    total = first_count(lambda runs: abs(mean) > half_width(runs), count + 1) if mean else None
    more = None if total is None else total - count
    return replace(base, word=INCONCLUSIVE, more_pairs=more)


def bayesian(
    first: Sequence[float], second: Sequence[float], direction: str, rope: float
) -> tuple[float, float, float]:
    """Bayesian correlated t-test on one dataset, which assumes that pairs are correlated like cross-validation folds.

    Args:
        first: values of the first model.
        second: values of the second model, paired.
        direction: "max" or "min".
        rope: region of practical equivalence.

    Returns:
        P(first better), P(equal within `rope`), P(second better).
    """
    import baycomp

    sign = 1 if direction == "max" else -1
    sides = sign * np.asarray(first), sign * np.asarray(second)
    better, same, worse = map(float, baycomp.CorrelatedTTest.probs(*sides, rope=max(rope, 1e-12)))
    return better, same, worse


def bayesian_over_datasets(first: Sequence[float], second: Sequence[float], rope: float) -> tuple[float, float, float]:
    """Bayesian signed-rank test over datasets.

    Args:
        first: mean of the first model on each dataset; larger is better.
        second: mean of the second model on each dataset.
        rope: region of practical equivalence.

    Returns:
        P(first better), P(equal within `rope`), P(second better).
    """
    import baycomp

    sides = np.asarray(first), np.asarray(second)
    better, same, worse = map(float, baycomp.SignedRankTest.probs(*sides, rope=max(rope, 1e-12), random_state=0))
    return better, same, worse


def ranks(means: Mapping[str, Sequence[float]], rules: Rules | None = None) -> Ranks:
    """Ranks models over datasets.

    Args:
        means: {model: mean on each dataset}; larger is better; the same order of datasets for all models.
        rules: settings of the test.
    """
    values = np.array(list(means.values())).T  # [datasets, models]
    by_dataset, count = ranking.ranks_of(values), len(values)
    mean_ranks = dict(sorted(zip(means, by_dataset.mean(0).tolist(), strict=True), key=lambda item: item[1]))
    if count < ranking.FEWEST:
        return Ranks(mean_ranks, count)
    if len(means) == 2:
        return Ranks(mean_ranks, count, "wilcoxon", float(ranking.wilcoxon_holm(values)[0, 1]))
    p_value = ranking.friedman(by_dataset)
    critical = ranking.critical_difference(len(means), count, (rules or Rules()).level)
    return Ranks(mean_ranks, count, "friedman", 1.0 if p_value is None else p_value, critical)
