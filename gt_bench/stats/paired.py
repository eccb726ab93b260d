"""Comparison of two models on the same seeds and splits, and of several models over several datasets.

One dataset: paired differences, their mean with Student's interval, and how many pairs would decide. Effects of the
split and the seed cancel in the differences, so fewer runs are needed than for unpaired sets. Runs that are tested on
the same examples share what these examples favour, which no number of runs averages out: the variance of the test set
is added. Several datasets: ranks of the means per dataset, with the tests of `gt_bench.stats.ranking` (Wilcoxon for two
models, Friedman with Nemenyi's critical difference for more). Bayesian: the correlated t-test for one dataset and the
signed-rank test for several (Benavoli et al. 2017), with baycomp.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gt_bench.config.verdict_settings import Rules
from gt_bench.stats import ranking
from gt_bench.stats.student import quantile, upper_tail
from gt_bench.stats.welch import SPREADLESS, first_count, slack_of

FIRST, SECOND, INCONCLUSIVE, EQUAL, TOO_FEW = "first", "second", "inconclusive", "equal", "too few runs"
FEWEST_PAIRS = 3


@dataclass(frozen=True)
class ExampleError:
    """What the choice of test examples adds to the uncertainty of a mean difference.

    Attributes:
        error: standard error of the mean difference over draws of the test examples.
        shared: whether all pairs are tested on the same examples. If not, the spread over pairs has most of it.
    """

    error: float
    shared: bool


@dataclass(frozen=True)
class Paired:
    """Result of a paired comparison. Positive differences favour the first model, for either direction of the metric.

    Attributes:
        pairs: number of pairs.
        difference: mean of first minus second.
        interval: its confidence interval. None for fewer than FEWEST_PAIRS pairs, and for equal differences of unknown
            test examples.
        effect: Cohen's d of the pairs. None without a spread.
        ahead: number of pairs in which the first model is better.
        ties: number of pairs with equal values.
        p_value: of the test for a difference. None where nothing can be decided.
        word: FIRST or SECOND for the better model, INCONCLUSIVE, EQUAL if all pairs are equal, or TOO_FEW for fewer
            than three pairs or at most five with the same difference.
        more_pairs: number of additional pairs that would decide at this difference and spread. None if decided, too
            few, or beyond MOST_SEEDS.
        example_error: standard error by the test examples. None if it is unknown.
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
    example_error: float | None = None


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


def paired(
    first: Sequence[float],
    second: Sequence[float],
    direction: str,
    rules: Rules | None = None,
    examples: ExampleError | None = None,
    span: float = math.inf,
) -> Paired:
    """Compares two models on one dataset by the paired t-test (`scipy.stats.ttest_rel` without `examples`).

    With `examples`, the variance of the mean is s^2 / n plus that of the test set, with the degrees of freedom of
    Satterthwaite (1946), or the larger of the two if each pair has examples of its own.

    Args:
        first: values of the first model, at least one.
        second: values of the second model. `second[i]` has the same seed and split as `first[i]`.
        direction: "max" or "min".
        rules: settings of the tests.
        examples: uncertainty by the test examples, if it is known.
        span: largest possible difference of two values of the metric, which ends the interval.

    Raises:
        ValueError: a value is not finite.
    """
    if not np.isfinite([*first, *second]).all():
        raise ValueError(f"a value is not finite: {first} and {second}")
    level, sign = (rules or Rules()).level, 1 if direction == "max" else -1
    differences = [sign * (a - b) for a, b in zip(first, second, strict=True)]
    slack = slack_of(max(map(abs, (*first, *second))))
    differences = [0.0 if abs(d) <= slack else d for d in differences]
    count, mean = len(differences), statistics.fmean(differences)
    std = statistics.stdev(differences) if count > 1 else 0.0
    std = std if std > slack else 0.0
    error = examples.error if examples else 0.0

    def error_of(runs: int) -> tuple[float, float]:
        """Returns the standard error of the mean of `runs` pairs, and its degrees of freedom."""
        of_runs = std**2 / runs
        if examples is None or examples.shared:
            total = of_runs + error**2
            return math.sqrt(total), (total / of_runs) ** 2 * (runs - 1) if of_runs else math.inf
        return math.sqrt(max(of_runs, error**2 * count / runs)), runs - 1

    def half_width(runs: int) -> float:
        se, df = error_of(runs)
        return quantile(1 - level / 2, df) * se

    spread = count >= FEWEST_PAIRS and (std > 0 or error > 0)
    half = half_width(count) if spread else math.nan
    interval = (max(mean - half, -span), min(mean + half, span)) if spread else None
    more = None
    if count < FEWEST_PAIRS or (std == 0 and count <= SPREADLESS):
        word, p_value = TOO_FEW, None
    elif not any(differences):
        word, p_value = EQUAL, None
    else:
        # without any spread: the sign test of equal differences
        p_value = 2 * upper_tail(abs(mean) / error_of(count)[0], error_of(count)[1]) if spread else 2.0 ** (1 - count)
        word = INCONCLUSIVE if p_value >= level else FIRST if mean > 0 else SECOND
        if word == INCONCLUSIVE and mean and spread:
            total = first_count(lambda runs: abs(mean) > half_width(runs), count + 1)
            more = None if total is None else total - count
    return Paired(
        count, mean, interval, mean / std if std else None, sum(d > 0 for d in differences), differences.count(0.0),
        p_value, word, more, examples.error if examples else None,
    )  # fmt: skip


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
