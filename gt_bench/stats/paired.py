"""Two models on the same seeds and splits: is their difference real? And several models over several datasets.

One dataset: the differences of the pairs, their mean with Student's interval, and how many of such pairs would decide. What both runs of a pair share (the
split, the seed) is in none of the differences, so that fewer runs decide than of two unpaired sets.
Several datasets: ranks of the means per dataset, tested by autorank (Wilcoxon for two models; Friedman with Nemenyi's critical difference for more).
Bayesian: the correlated t-test of one dataset and the signed-rank test of several (Benavoli et al. 2017), by baycomp.
"""

import contextlib
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gt_bench.config.verdict_settings import Rules
from gt_bench.stats.equivalence import first_count, quantile, slack_of, upper_tail

FEWEST_DATASETS = 5  # below, no test over datasets means anything (autorank refuses)
FIRST, SECOND, INCONCLUSIVE, EQUAL = "first", "second", "inconclusive", "equal"


@dataclass(frozen=True)
class Paired:
    """First minus second over `pairs` pairs; a positive difference is in favour of the first, whatever the metric's direction. `effect`: Cohen's d
    of the pairs; `ahead`: in how many the first is; `word`: which is better, `inconclusive`, or `equal` (in every pair). `more_pairs`: how many more would decide at this difference and spread,
    None where decided or beyond MOST_SEEDS."""

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
    """Mean ranks over datasets (1 is best), best first. `test`: wilcoxon or friedman; `critical`: two mean ranks that differ by more are told apart
    (Nemenyi; of three models and more). Without a test there are too few datasets."""

    mean_ranks: Mapping[str, float]
    datasets: int
    test: str | None = None
    p_value: float | None = None
    critical: float | None = None


def paired(first: Sequence[float], second: Sequence[float], direction: str, rules: Rules | None = None) -> Paired:
    """`first[i]` and `second[i]` are of one seed and split; at least one pair. `direction`: max or min."""
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
    # differences that are all the same are certain: t is infinite
    p_value = 2 * upper_tail(abs(mean) / std * math.sqrt(count), count - 1) if std > slack else 0.0
    effect = mean / std if std > slack else math.copysign(math.inf, mean)
    base = Paired(count, mean, (mean - half, mean + half), effect, ahead, ties, p_value, FIRST if mean > 0 else SECOND)
    if abs(mean) > half:
        return base
    total = first_count(lambda runs: abs(mean) > half_width(runs), count + 1) if mean else None
    more = None if total is None else total - count
    return Paired(**{**base.__dict__, "word": INCONCLUSIVE, "more_pairs": more})


def bayesian(
    first: Sequence[float], second: Sequence[float], direction: str, rope: float
) -> tuple[float, float, float]:
    """(P(first better), P(equal within `rope`), P(second better)) on one dataset, by the correlated t-test, which holds the pairs to be as
    dependent as the folds of a cross-validation are."""
    import baycomp
    import numpy as np

    sign = 1 if direction == "max" else -1
    better, same, worse = (
        float(p)
        for p in baycomp.CorrelatedTTest.probs(
            sign * np.asarray(first), sign * np.asarray(second), rope=max(rope, 1e-12)
        )
    )
    return better, same, worse


def bayesian_over_datasets(first: Sequence[float], second: Sequence[float], rope: float) -> tuple[float, float, float]:
    """As `bayesian`, from one mean per dataset (larger is better), by the signed-rank test."""
    import baycomp
    import numpy as np

    better, same, worse = (
        float(p)
        for p in baycomp.SignedRankTest.probs(
            np.asarray(first), np.asarray(second), rope=max(rope, 1e-12), random_state=0
        )
    )
    return better, same, worse


def ranks(means: Mapping[str, Sequence[float]], rules: Rules | None = None) -> Ranks:
    """`means`: model -> a mean per dataset, larger is better, in one order of datasets."""
    from scipy.stats import rankdata

    columns = list(zip(*means.values(), strict=True))
    by_dataset = [rankdata([-value for value in column]) for column in columns]
    mean_ranks = {name: float(statistics.fmean(r[i] for r in by_dataset)) for i, name in enumerate(means)}
    ordered = dict(sorted(mean_ranks.items(), key=lambda item: item[1]))
    if len(columns) < FEWEST_DATASETS:
        return Ranks(ordered, len(columns))
    import warnings

    import pandas
    from autorank import autorank

    # it prints what it assumes, and warns of what is decided here
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = autorank(pandas.DataFrame(means), alpha=(rules or Rules()).level, force_mode="nonparametric")
    critical = None if found.cd is None or len(means) < 3 else float(found.cd)
    return Ranks(ordered, len(columns), found.omnibus, float(found.pvalue), critical)
