"""Verdicts: compares the runs of a cell with the published number.

With the difference d = ours - published, the standard errors of both means and Welch's degrees of freedom:

    consistent    the published mean is in the 95 % prediction interval of a replication of this size: |d| <= t SE
    better, worse it is not, to the better or worse side. If the true means are equal, this has probability 5 %
    reproduced    consistent, and equivalent: two one-sided Welch tests (TOST) reject |d| >= margin
    undecided     the answer depends on what is not published (the spread, or the number of runs)

The margin is not a free choice. It is the multiple of the published (sample) standard deviation with which equal true
means pass with probability 80 % at the full number of seeds, but at least half a unit of the last published digit. It
is 1.48 for 10 runs against 10 runs and 3.15 for 4 against 4. If the true deviation were known instead of estimated from
these runs, it would be 1.4 and 2.4.

Missing information never makes a verdict easier to reach: each question is answered for both extremes, and the answer
counts only if both agree. docs/statistics.md explains the verdicts to readers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from gt_bench.config.verdict_settings import Rules
from gt_bench.papers.pair_counts import pairs_of
from gt_bench.papers.published import Published
from gt_bench.stats.assumptions import COUNT_STD, Assumption, AssumptionKind, readings_of
from gt_bench.stats.equivalence import equal_passes, margin_factor
from gt_bench.stats.student import quantile, upper_tail
from gt_bench.stats.welch import (
    SPREADLESS,
    Spread,
    first_count,
    p_separated,
    sample_std,
    slack_of,
    standard_error,
)


class VerdictWord(StrEnum):
    """A verdict on a published number, or why there is none."""

    REPRODUCED = "reproduced"
    CONSISTENT = "consistent"
    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"
    # why there is none
    NO_SPREAD = "no spread"  # one run of ours, and none is published
    NO_NUMBER = "no published number"
    NOT_FOUND = "published number not found"
    NO_RESULT = "no result"
    MODIFIED = "modified code"
    FAILED = "failed runs"
    REDUCED = "reduced"  # in more than seeds
    OTHER_MACHINE = "another machine"  # a published cost


@dataclass(frozen=True)
class Verdict:
    """Result of `judge`.

    Attributes:
        word: the verdict, or why there is none.
        interval: interval of the difference (ours minus published), in raw units.
        margin: equivalence margin in raw units.
        margin_std: margin in published (sample) standard deviations.
        power: probability that this number of runs shows equal true means as reproduced, if both sides have the
            published spread.
        p_difference: p value of the test for a difference.
        p_equivalence: p value of the test for equivalence.
        assumptions: assumptions about information that is not published.
        excluded_gap: the two one-sided tests exclude a true difference larger than this, in either direction. At least
            half a unit of the last published digit, as the margin.
        seeds_needed: number of our runs for `rules.power` at the observed spread.
        q_difference: false-discovery rate over the rows of a leaderboard.
    """

    word: VerdictWord
    interval: tuple[float, float] | None = None
    margin: float | None = None
    margin_std: float | None = None
    power: float | None = None
    p_difference: float | None = None
    p_equivalence: float | None = None
    assumptions: tuple[Assumption, ...] = ()
    excluded_gap: float | None = None
    seeds_needed: int | None = None
    q_difference: float | None = None


def judge(
    mean: float,
    std: float,
    runs: int,
    published: Published | None,
    full_runs: int | None = None,
    rules: Rules | None = None,
) -> Verdict:
    """Compares the runs of a cell with the published number.

    Args:
        mean: mean of our runs, in raw units.
        std: population standard deviation of our runs (ddof 0).
        runs: number of our runs.
        published: the published number, if any.
        full_runs: number of runs of the complete cell, which determines the margin. The default is `runs`.
        rules: settings of the tests.
    """
    rules, full_runs = rules or Rules(), full_runs or runs
    if published is None or published.mean is None:
        return Verdict(VerdictWord.NO_NUMBER)
    readings, assumptions = readings_of(published, sample_std(std, runs), runs, rules)
    pairs, difference, slack = pairs_of(published.dataset, published.metric), mean - published.mean, slack_of(mean)
    if not readings and pairs is None:
        return Verdict(VerdictWord.NO_SPREAD, assumptions=assumptions)
    if not readings and pairs is not None:
        errors, assumptions = _errors_of_count(mean, pairs), (Assumption(AssumptionKind.COUNT),)
    elif runs == 1:
        # one run has no spread: it is treated as another run of the authors
        errors = [(theirs.std * math.sqrt(1 + 1 / theirs.runs), theirs.runs - 1) for theirs in readings]
        assumptions = (*assumptions, Assumption(AssumptionKind.ONE_RUN))
    elif std <= slack and runs <= SPREADLESS and published.std:
        # few equal runs do not show their spread
        errors = [standard_error(Spread(theirs.std, runs), theirs) for theirs in readings]
        assumptions = (*assumptions, Assumption(AssumptionKind.EQUAL_RUNS, (runs,)))
    else:
        errors = [standard_error(Spread(sample_std(std, runs), runs), theirs) for theirs in readings]
    widths = [quantile(1 - rules.level / 2, df) * error + published.rounding for error, df in errors]
    # numbers that differ only by floating-point rounding are equal
    inside = [abs(difference) <= width + slack for width in widths]
    wide = int(np.argmax(widths))
    # without a spread on either side, only agreement up to rounding, or many runs, can be judged
    p_equal = None if errors[wide][0] > 0 else 1.0 if published.std is None else p_separated(runs, readings[wide].runs)
    if p_equal is not None and p_equal >= rules.level:
        assumptions = (*assumptions, Assumption(AssumptionKind.NO_SPREAD))
        if not inside[wide]:
            return Verdict(VerdictWord.NO_SPREAD, assumptions=assumptions)
    lowest, highest = bounds_of(published)
    beyond = max(abs(difference) - published.rounding, 0.0)
    verdict = Verdict(
        VerdictWord.CONSISTENT if all(inside) else VerdictWord.UNDECIDED,
        interval=(max(difference - widths[wide], lowest), min(difference + widths[wide], highest)),
        p_difference=(1.0 if beyond <= slack else p_equal)
        if p_equal is not None
        else 2 * upper_tail(beyond / errors[wide][0], errors[wide][1]),
        assumptions=assumptions,
    )
    if not any(inside):
        better = (difference > 0) == (published.direction == "max")
        verdict = replace(verdict, word=VerdictWord.BETTER if better else VerdictWord.WORSE)
    if published.std is None or full_runs < 2:
        return verdict
    margin, small = _margin(full_runs, published, readings, rules)
    verdict = replace(verdict, margin=margin, margin_std=margin / small.std if small.std > 0 else None)
    if runs < 2 or (p_equal is not None and p_equal >= rules.level):
        return verdict
    few = readings[0]
    p_equivalence = max(_p_within(abs(difference), margin, error, df, slack) for error, df in errors)
    shown = verdict.word == VerdictWord.CONSISTENT and p_equivalence < rules.level
    most = max(quantile(1 - rules.level, df) * error if error else 0.0 for error, df in errors)
    return replace(
        verdict,
        word=VerdictWord.REPRODUCED if shown else verdict.word,
        p_equivalence=p_equivalence,
        power=equal_passes(runs, int(few.runs), margin / few.std, rules.level) if few.std > 0 else None,
        excluded_gap=max(abs(difference) + most, published.rounding),
    )


def _p_within(difference: float, margin: float, error: float, df: float, slack: float) -> float:
    """Returns the p value of the test that a true difference is not smaller than the margin."""
    if error == 0.0:
        return 0.0 if difference <= margin + slack else 1.0
    return upper_tail((margin - difference) / error, df)


def bounds_of(published: Published) -> tuple[float, float]:
    """Returns the smallest and largest possible difference of a mean from the published one: shares end at 0 and 1."""
    highest = highest_of(published)
    return (-published.number, highest - published.number) if highest < math.inf else (-highest, highest)


def highest_of(published: Published) -> float:
    """Returns the largest value of the metric: 1 for shares, whose smallest is 0, otherwise infinite."""
    return 1.0 if published.unit == "percent" or published.metric == "accuracy" else math.inf


def _errors_of_count(count: float, pairs: int) -> list[tuple[float, float]]:
    """Standard errors of the difference of two counts without a spread, and their degrees of freedom.

    Pairs are trained independently. The spread of their count is at most that of a binomial distribution with equal
    probabilities (with 1/2 added to both outcomes), and at least that of rounding. The first error assumes the maximum
    on both sides, the second the minimum and an exact published count.
    """
    share = (count + 0.5) / (pairs + 1)
    most = max(COUNT_STD, math.sqrt(pairs * share * (1 - share)))
    return [(math.sqrt(2) * most, math.inf), (COUNT_STD, math.inf)]


def _margin(full_runs: int, published: Published, readings: Sequence[Spread], rules: Rules) -> tuple[float, Spread]:
    """Returns the smallest margin of the readings, which is conservative, and its reading."""
    factor, side = min(
        ((margin_factor(full_runs, int(side.runs), rules), side) for side in readings), key=lambda f: f[0] * f[1].std
    )
    return max(factor * side.std, published.rounding), side


def seeds_needed(
    std: float, runs: int, published: Published, full_runs: int | None = None, rules: Rules | None = None
) -> int | None:
    """Returns the number of our runs with which equal true means pass as reproduced with probability `rules.power`.

    Our true deviation is assumed to be the observed one, or for one run the published one.

    Args:
        std: population standard deviation of our runs (ddof 0).
        runs: number of our runs.
        published: the published number.
        full_runs: number of runs of the complete cell, which determines the margin.
        rules: settings of the tests.

    Returns:
        Number of runs. None if no number suffices, or equivalence is not tested.
    """
    rules, full_runs = rules or Rules(), full_runs or runs
    if published.std is None or published.mean is None or full_runs < 2:
        return None
    readings, _ = readings_of(published, sample_std(std, runs), runs, rules)
    few = readings[0]
    if few.std == 0.0:
        return None
    ratio = _margin(full_runs, published, readings, rules)[0] / few.std
    spread = max(sample_std(std, runs) / few.std, 1e-9) if runs > 1 else 1.0
    # 1e-5 for rounding: at equal spreads the answer is the full number of seeds by construction
    return first_count(lambda n: equal_passes(n, int(few.runs), ratio, rules.level, spread) >= rules.power - 1e-5, 2)
