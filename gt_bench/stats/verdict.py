"""Verdicts: compares the runs of a cell with the published number, and the paper's method with its best rival.

The number. With the difference d = ours - published, the standard errors of both means and Welch's degrees of freedom:

    consistent    the published mean is in the 95 % prediction interval of a replication of this size: |d| <= t SE
    better, worse it is not, to the better or worse side. If the true means are equal, this has probability 5 %
    reproduced    consistent, and equivalent: two one-sided Welch tests (TOST) reject |d| >= margin
    undecided     the answer depends on what is not published (the spread, or the number of runs)

The margin is not a free choice. It is the multiple of the published (sample) standard deviation with which equal true
means pass with probability 80 % at the full number of seeds, but at least half a unit of the last published digit. It
is 1.48 for 10 runs against 10 runs and 3.15 for 4 against 4. If the true deviation were known instead of estimated from
these runs, it would be 1.4 and 2.4.

The claim. Whether the paper's method is better than the best other number of its column: `claim holds` or `claim fails`
if the 95 % interval of the difference excludes 0, otherwise `undecided`.

Missing information never makes a verdict easier to reach: each question is answered for both extremes, and the answer
counts only if both agree. docs/verdicts.md explains the verdicts to readers.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from gt_bench.config.verdict_settings import Rules
from gt_bench.papers.pair_counts import COUNT, pairs_of
from gt_bench.papers.published import Published

STD_DDOF = 0
MOST_SEEDS = 1000  # a question that needs more seeds counts as not decidable by seeds
# standard deviation of rounding to whole numbers: the minimum spread of a count
COUNT_STD = 1 / math.sqrt(12)
NODES = 64  # nodes of the quadrature over each standard deviation; powers are accurate to 1e-3


class Side(NamedTuple):
    """Spread of a mean: sample standard deviation (ddof 1) and number of runs."""

    std: float
    runs: float


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
    """

    word: str
    interval: tuple[float, float] | None = None
    margin: float | None = None
    margin_std: float | None = None
    power: float | None = None
    p_difference: float | None = None
    p_equivalence: float | None = None
    assumptions: tuple[str, ...] = ()
    excluded_gap: float | None = None


@dataclass(frozen=True)
class Number:
    """A mean to compare with.

    Attributes:
        name: name of the method.
        mean: the mean.
        std: sample standard deviation. None if it is not published.
        runs: number of runs. None if it is not published.
        rounding: half a unit of the last published digit.
    """

    name: str
    mean: float
    std: float | None
    runs: int | None
    rounding: float = 0.0


@dataclass(frozen=True)
class Claim:
    """Result of `judge_claim`.

    Attributes:
        word: "claim holds", "claim fails", "undecided", or why there is none.
        rival: name of the best other method.
        interval: interval of the difference in raw units. Positive if ours is better.
        more_seeds: number of additional runs that would decide. None if decided, or if no number of runs would.
        assumptions: assumptions about information that is not published.
    """

    word: str
    rival: str | None = None
    interval: tuple[float, float] | None = None
    more_seeds: int | None = None
    assumptions: tuple[str, ...] = ()


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
    if published is None:
        return Verdict("no published number")
    if published.mean is None:
        return Verdict(f"published: {published.printed.lower()}")
    readings, assumptions = _readings(published, sample_std(std, runs), runs, rules)
    pairs = pairs_of(published.dataset, published.metric)
    if not readings and pairs is None:
        return Verdict("not judged", assumptions=tuple(assumptions))
    difference = mean - published.mean
    if not readings and pairs is not None:
        errors = _errors_of_count(mean, pairs)
        assumptions = ["one run against one number: independently trained pairs limit the spread of the count"]
    elif runs > 1:
        ours = Side(sample_std(std, runs), runs)
        errors = [_error(ours, theirs) for theirs in readings]
    else:
        # one run has no spread: it is treated as another run of the authors
        errors = [(theirs.std * math.sqrt(1 + 1 / theirs.runs), theirs.runs - 1) for theirs in readings]
        assumptions.append("a single run: judged by the published spread alone")
    widths = [quantile(1 - rules.level / 2, df) * error + published.rounding for error, df in errors]
    # numbers that differ only by floating-point rounding are equal
    inside = [abs(difference) <= width + slack_of(published.mean) for width in widths]
    wide = int(np.argmax(widths))
    lowest, highest = bounds_of(published)
    verdict = Verdict(
        "consistent" if all(inside) else "undecided",
        interval=(max(difference - widths[wide], lowest), min(difference + widths[wide], highest)),
        p_difference=_p_difference(
            max(abs(difference) - published.rounding, 0.0), *errors[wide], slack_of(published.mean)
        ),
        assumptions=tuple(assumptions),
    )
    if published.std is None and readings and readings[0].std == 0.0:
        # no side has a spread: only agreement up to rounding can be judged
        alike = "all our runs are equal and no spread is published: the spread of the numbers is unknown"
        return replace(verdict, p_difference=None, assumptions=(*verdict.assumptions, alike))
    if not any(inside):
        better = (difference > 0) == (published.direction == "max")
        verdict = replace(verdict, word="better" if better else "worse")
    if published.std is None or full_runs < 2:
        return verdict
    return _equivalence(verdict, difference, runs, full_runs, published, readings, errors, rules)


def bounds_of(published: Published) -> tuple[float, float]:
    """Returns the smallest and largest possible difference of a mean from the published one: shares end at 0 and 1."""
    if published.unit == "percent" or published.metric == "accuracy":
        return -published.number, 1 - published.number
    return -math.inf, math.inf


def _errors_of_count(count: float, pairs: int) -> list[tuple[float, float]]:
    """Standard errors of the difference of two counts without a spread, and their degrees of freedom.

    Pairs are trained independently. The spread of their count is at most that of a binomial distribution with equal
    probabilities (with 1/2 added to both outcomes), and at least that of rounding. The first error assumes the maximum
    on both sides, the second the minimum and an exact published count.
    """
    share = (count + 0.5) / (pairs + 1)
    most = max(COUNT_STD, math.sqrt(pairs * share * (1 - share)))
    return [(math.sqrt(2) * most, math.inf), (COUNT_STD, math.inf)]


def _equivalence(
    verdict: Verdict,
    difference: float,
    runs: int,
    full_runs: int,
    published: Published,
    readings: Sequence[Side],
    errors: Sequence[tuple[float, float]],
    rules: Rules,
) -> Verdict:
    """Adds margin, power and p value to a verdict, and changes "consistent" to "reproduced" if equivalence is shown."""
    margin, small = _margin(full_runs, published, readings, rules)
    verdict = replace(verdict, margin=margin, margin_std=margin / small.std if small.std > 0 else None)
    if runs < 2:
        return verdict
    few, slack = readings[0], slack_of(published.number)
    p_equivalence = max(_p_within(abs(difference), margin, error, df, slack) for error, df in errors)
    shown = verdict.word == "consistent" and p_equivalence < rules.level
    power = equal_passes(runs, int(few.runs), margin / few.std, rules.level) if few.std > 0 else None
    widths = [quantile(1 - rules.level, df) * error if error else 0.0 for error, df in errors]
    return replace(
        verdict,
        word="reproduced" if shown else verdict.word,
        p_equivalence=p_equivalence,
        power=power,
        excluded_gap=max(abs(difference) + max(widths), published.rounding),
    )


def _margin(full_runs: int, published: Published, readings: Sequence[Side], rules: Rules) -> tuple[float, Side]:
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
    readings, _ = _readings(published, sample_std(std, runs), runs, rules)
    few = readings[0]
    if few.std == 0.0:
        return None
    ratio = _margin(full_runs, published, readings, rules)[0] / few.std
    spread = max(sample_std(std, runs) / few.std, 1e-9) if runs > 1 else 1.0
    # 1e-5 for rounding: at equal spreads the answer is the full number of seeds by construction
    return first_count(lambda n: equal_passes(n, int(few.runs), ratio, rules.level, spread) >= rules.power - 1e-5, 2)


def _readings(published: Published, our_std: float, runs: int, rules: Rules) -> tuple[list[Side], list[str]]:
    """Returns the possible spreads behind a published number, widest first, and the assumptions made."""
    std, count = published.std, published.runs
    if std is None:
        if runs < 2:
            return [], ["one run, and no spread is published: the spread of the numbers is unknown"]
        floor = COUNT_STD if published.metric == COUNT else 0.0
        # extremes: one run with at least our spread, or an exact mean
        return [Side(max(our_std, floor), 1), Side(0.0, math.inf)], [
            "no spread is published: one run with our spread, and an exact mean are tried; equivalence cannot be shown"
        ]
    # unstated: the estimator behind a published ±; population and sample deviation are tried, and a verdict only where
    # both agree (suite.yaml states it where a paper or its released code does)
    assumptions = []
    if published.std_ddof is None and std > 0:
        assumptions.append("which deviation is published is not stated: population and sample deviation are tried")
    if count is not None and count > 1:
        return _sides(std, [count], published.std_ddof), assumptions
    # unstated: how many runs are behind the printed ±; the smallest and the largest number that these papers state
    # elsewhere, and a verdict only where both agree
    few, most = rules.unstated_runs
    said = (
        f"the number of runs is not published: {few} and {most} are tried"
        if count is None
        else f"the spread of a single run is published: {few} and {most} runs are tried"
    )
    return _sides(std, sorted({few, most}), published.std_ddof), [said, *assumptions]


def _sides(std: float, counts: Sequence[int], ddof: int | None) -> list[Side]:
    """Returns the spreads that a published deviation can mean, widest first."""
    stds = [[sample_std(std, n)] if ddof == 0 else [std] if ddof == 1 else [sample_std(std, n), std] for n in counts]
    return [Side(one, n) for n, its in zip(counts, stds, strict=True) for one in dict.fromkeys(its)]


def judge_claim(
    ours: Number,
    rival: Number,
    direction: str,
    spread: float | None = None,
    rules: Rules | None = None,
    floor: float = 0.0,
) -> Claim:
    """Decides whether our method is better than its best rival.

    Args:
        ours: our mean.
        rival: the published mean of the rival.
        direction: "max" or "min".
        spread: published sample deviation of our method, used if we have a single run.
        rules: settings of the tests.
        floor: minimum deviation of numbers of this metric (`COUNT_STD` for counts).
    """
    rules = rules or Rules()
    difference = (ours.mean - rival.mean) * (1 if direction == "max" else -1)
    assumptions: list[str] = []
    our_std, our_runs = ours.std, ours.runs or 1
    certainty: int | None = our_runs
    if our_runs == 1 or our_std is None:
        known = [(s, n) for s, n in ((spread, None), (rival.std, rival.runs)) if s is not None]
        if not known:
            return Claim("undecided", rival.name, assumptions=("one run, and no spread is published",))
        our_std, certainty = known[0]
        if our_std == 0.0 and floor == 0.0:
            return Claim(
                "undecided",
                rival.name,
                assumptions=("one run, and the published spread is 0: the spread of our runs is unknown",),
            )
        assumptions.append("a single run: its spread is assumed to be the published one")
    certainty, our_std = certainty or rules.unstated_runs[0], max(our_std, floor)
    if rival.std is None:
        if our_std == 0.0:
            return Claim(
                "undecided",
                rival.name,
                assumptions=(*assumptions, f"all our runs are equal and no spread is published for {rival.name}"),
            )
        # assumed: one run with at least our spread
        theirs, sure = our_std, certainty
        other = Side(theirs, 1)
        assumptions.append(f"no spread is published for {rival.name}: assumed to be one run with our spread")
    else:
        count = rival.runs if rival.runs and rival.runs > 1 else rules.unstated_runs[0]
        if count != rival.runs:
            assumptions.append(f"the number of runs of {rival.name} is not published: {count} assumed")
        other, sure = Side(max(rival.std, floor), count), count

    def width(runs: int) -> float:
        mine, others = our_std**2 / runs, other.std**2 / other.runs
        error = math.sqrt(mine + others)
        df = (
            (mine + others) ** 2 / (mine**2 / max(max(runs, certainty) - 1, 1) + others**2 / max(sure - 1, 1))
            if error
            else math.inf
        )
        return quantile(1 - rules.level / 2, df) * error + rival.rounding

    half = width(our_runs)
    interval, slack = (difference - half, difference + half), slack_of(rival.mean)
    if interval[0] > slack or interval[1] < -slack:
        return Claim("claim holds" if difference > 0 else "claim fails", rival.name, interval, None, tuple(assumptions))
    total = first_count(lambda runs: abs(difference) > width(runs), our_runs + 1)
    return Claim("undecided", rival.name, interval, None if total is None else total - our_runs, tuple(assumptions))


def sample_std(population_std: float, runs: float) -> float:
    """Converts a standard deviation with ddof 0 to ddof 1. For one run, it is not changed."""
    return population_std * math.sqrt(runs / max(runs - 1, 1))


@cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-1, 1]."""
    return np.polynomial.legendre.leggauss(NODES)


@lru_cache(maxsize=4096)
def equal_passes(runs: int, other_runs: int, margin: float, level: float, spread: float = 1.0) -> float:
    """Returns the probability of the verdict "reproduced" if the true means are equal.

    It is exact for normally distributed runs, up to the quadrature over both sample variances (Welch's test).

    Args:
        runs: number of our runs.
        other_runs: number of runs of the other side.
        margin: margin in sample deviations of the other side.
        level: level of the tests.
        spread: our true standard deviation divided by that of the other side.
    """
    from scipy import special, stats  # imported here: takes half a second

    nodes, weights = _quadrature()
    # Legendre nodes on the square root of the quantile: dense where a variance is small
    quantiles, weights = ((1 + nodes) / 2) ** 2, weights / 2 * (1 + nodes)
    first = spread**2 * stats.chi2.ppf(quantiles, runs - 1) / (runs - 1) / runs  # [NODES]
    second = stats.chi2.ppf(quantiles, other_runs - 1) / (other_runs - 1)
    mine, theirs = first[:, None], (second / other_runs)[None, :]
    df = (mine + theirs) ** 2 / (mine**2 / (runs - 1) + theirs**2 / (other_runs - 1))
    room = margin * np.sqrt(second)[None, :] - special.stdtrit(df, 1 - level) * np.sqrt(mine + theirs)
    room = np.minimum(room, special.stdtrit(df, 1 - level / 2) * np.sqrt(mine + theirs))  # and consistent
    error = math.sqrt(spread**2 / runs + 1 / other_runs)
    passes = np.where(room > 0, special.erf(room / (error * math.sqrt(2))), 0.0)
    return float(weights @ passes @ weights)


@lru_cache(maxsize=512)
def _margin_factor(runs: int, other_runs: int, level: float, power: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(lambda factor: equal_passes(runs, other_runs, factor, level) - power, 0.01, 1000.0, xtol=1e-6))


def margin_factor(runs: int, other_runs: int, rules: Rules | None = None) -> float:
    """Returns the margin, in published sample deviations, with which equal true means pass at `rules.power`.

    Args:
        runs: number of our runs.
        other_runs: number of runs of the other side.
        rules: settings of the tests.
    """
    rules = rules or Rules()
    return _margin_factor(runs, other_runs, rules.level, rules.power)


def false_discovery(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusts p values by the procedure of Benjamini and Hochberg. None values are left out and remain None."""
    from scipy.stats import false_discovery_control

    given = [p for p in p_values if p is not None]
    adjusted = iter(false_discovery_control(given).tolist() if given else [])
    return [None if p is None else next(adjusted) for p in p_values]


def first_count(true: Callable[[int], bool], start: int) -> int | None:
    """Returns the smallest integer from `start` for which a monotonic condition is true. None if above MOST_SEEDS."""
    counts = range(start, MOST_SEEDS + 1)
    index = bisect_left(counts, True, key=true)
    return counts[index] if index < len(counts) else None


def _error(ours: Side, theirs: Side) -> tuple[float, float]:
    """Returns the standard error of the difference of two means, and Welch's degrees of freedom."""
    mine, other = ours.std**2 / ours.runs, theirs.std**2 / theirs.runs
    if mine + other == 0.0:
        return 0.0, math.inf
    if theirs.runs == 1:
        # the spread assumed for one run is that of our runs, which also determine the degrees of freedom
        return math.sqrt(mine + other), ours.runs - 1
    return math.sqrt(mine + other), (mine + other) ** 2 / (
        mine**2 / (ours.runs - 1) + (other**2 / (theirs.runs - 1) if other else 0.0)
    )


def quantile(q: float, df: float) -> float:
    """Returns a quantile of Student's t, or of the normal distribution for infinite degrees of freedom."""
    from scipy import special

    return float(special.ndtri(q) if math.isinf(df) else special.stdtrit(df, q))


def _p_difference(difference: float, error: float, df: float, slack: float) -> float:
    if error == 0.0:
        return 1.0 if difference <= slack else 0.0
    return 2 * upper_tail(difference / error, df)


def _p_within(difference: float, margin: float, error: float, df: float, slack: float) -> float:
    if error == 0.0:
        return 0.0 if difference <= margin + slack else 1.0
    return upper_tail((margin - difference) / error, df)


def upper_tail(t: float, df: float) -> float:
    """Returns P(T > t) for Student's t, or for the normal distribution for infinite degrees of freedom."""
    from scipy import special

    return float(special.ndtr(-t) if math.isinf(df) else special.stdtr(df, -t))


def slack_of(mean: float) -> float:
    """Returns the difference that floating-point rounding can cause for numbers of this size."""
    return 1e-12 + 1e-9 * abs(mean)
