"""Verdicts: the runs of one cell held against the published number, and the paper's claim to be best held against its best rival.

The number. With the difference d = ours - printed, the standard errors of both means and Welch's degrees of freedom:
  consistent    the printed mean lies in the 95 % prediction interval of a replication of this size: |d| <= t SE
  higher, lower it does not ("better" or "worse" by the metric); equal truth comes out so in 5 % of cases, by the level
  reproduced    consistent, and equivalence is shown besides: two one-sided Welch tests (TOST) reject |d| >= margin
  undecided     the answer hangs on what the paper does not print (a spread, or the number of runs behind it)
The margin is no choice: it is the multiple of the printed (sample) standard deviation with which equal truth passes in 80 % of cases at the cell's
full number of seeds, and never below half a unit of the last printed digit. It is 1.48 at 10 runs against 10 and 3.15 at 4 against 4; were the true
deviation known instead of estimated from those runs, 1.4 and 2.4 would do.

The claim. Is the paper's method better than the best other number of its column: `claim holds` or `claim fails` where the 95 % interval of that
difference excludes 0, else `undecided`.

What is not printed makes no verdict easier: each question is asked under both extremes, and answered only where both agree.
docs/verdicts.md explains all of it to a reader.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from gt_bench.config.verdict_settings import Rules
from gt_bench.papers.pair_counts import COUNT, pairs_of
from gt_bench.papers.published import Published

STD_DDOF = 0
MOST_SEEDS = 1000  # beyond this many a question counts as one that seeds do not settle
# a count, rounded to whole pairs, has at least the spread of that rounding, however often the same one came out
COUNT_STD = 1 / math.sqrt(12)
NODES = 64  # of the quadrature over either standard deviation; the powers are right to 1e-3


class Side(NamedTuple):
    """A mean of `runs` runs with sample standard deviation `std` (ddof 1)."""

    std: float
    runs: float


@dataclass(frozen=True)
class Verdict:
    """`word` as above, or why there is none. In raw units: `interval`, of the difference (ours minus printed), and `margin`. `margin_std`: the
    margin in printed (sample) standard deviations; `power`: the probability that as many runs show equal truth to be reproduced, where both sides
    scatter alike; p values of the tests; `excluded_gap`: a true difference larger than this, in either direction, is excluded by the two one-sided
    tests."""

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
    """A mean to compare with: `std` is the sample one, None where none is printed; `runs` None where not said."""

    name: str
    mean: float
    std: float | None
    runs: int | None
    rounding: float = 0.0


@dataclass(frozen=True)
class Claim:
    """`word`: claim holds, claim fails, undecided, or why there is none. `interval`: by how much ours is better (raw units, better is positive);
    `more_seeds`: how many more runs of ours would decide, None where decided or where no number would."""

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
    """Verdict on `runs` runs with `mean` and population standard deviation `std`, raw units; `full_runs`: as many as the cell has when complete
    (`runs` where left out), which sets the margin."""
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
        errors = _errors_of_a_count(mean, pairs)
        assumptions = [
            "one run against one number: the pairs, each with a network of its own, say how far a count may scatter"
        ]
    elif runs > 1:
        ours = Side(sample_std(std, runs), runs)
        errors = [_error(ours, theirs) for theirs in readings]
    else:
        # one run has no spread of its own: it is taken for one more of the authors' runs
        errors = [(theirs.std * math.sqrt(1 + 1 / theirs.runs), theirs.runs - 1) for theirs in readings]
        assumptions.append("a single run: judged by the printed spread alone")
    widths = [quantile(1 - rules.level / 2, df) * error + published.rounding for error, df in errors]
    # as in every comparison here, numbers that differ by what floating point adds are the same
    inside = [abs(difference) <= width + slack_of(published.mean) for width in widths]
    wide = int(np.argmax(widths))
    verdict = Verdict(
        "consistent" if all(inside) else "undecided",
        interval=(difference - widths[wide], difference + widths[wide]),
        p_difference=_p_difference(
            max(abs(difference) - published.rounding, 0.0), *errors[wide], slack_of(published.mean)
        ),
        assumptions=tuple(assumptions),
    )
    if published.std is None and readings and readings[0].std == 0.0:
        # neither side shows a spread: what is within the rounding agrees, and nothing says what else would
        alike = "all our runs are alike and no spread is printed: nothing says how far numbers scatter"
        return replace(verdict, p_difference=None, assumptions=(*verdict.assumptions, alike))
    if not any(inside):
        better = (difference > 0) == (published.direction == "max")
        verdict = replace(
            verdict, word=f"{'higher' if difference > 0 else 'lower'} ({'better' if better else 'worse'})"
        )
    if published.std is None or full_runs < 2:
        return verdict
    return _equivalence(verdict, difference, runs, full_runs, published, readings, errors, rules)


def _errors_of_a_count(count: float, pairs: int) -> list[tuple[float, float]]:
    """As `_error`, where neither side has a spread. A count over pairs that are trained apart scatters by at most what it would if each were
    distinguished with the same probability (a binomial; one half added to either outcome), and by no less than its rounding; asked of both sides,
    and with an exact print."""
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
    """The verdict with its margin, power, and `reproduced` where that is shown."""
    margin, small = _margin(full_runs, published, readings, rules)
    verdict = replace(verdict, margin=margin, margin_std=margin / small.std if small.std > 0 else None)
    if runs < 2:
        return verdict
    few, slack = readings[0], slack_of(published.number)
    p_equivalence = max(_p_within(abs(difference), margin, error, df, slack) for error, df in errors)
    shown = verdict.word == "consistent" and p_equivalence < rules.level
    power = equal_passes(runs, int(few.runs), margin / few.std, rules.level) if few.std > 0 else None
    excluded = max(abs(difference) + (quantile(1 - rules.level, df) * error if error else 0.0) for error, df in errors)
    return replace(
        verdict,
        word="reproduced" if shown else verdict.word,
        p_equivalence=p_equivalence,
        power=power,
        excluded_gap=excluded,
    )


def _margin(full_runs: int, published: Published, readings: Sequence[Side], rules: Rules) -> tuple[float, Side]:
    """The smallest margin of the readings (the tests take the fewest runs: neither helps), and the reading that it is from."""
    factor, side = min(
        ((margin_factor(full_runs, int(side.runs), rules), side) for side in readings), key=lambda f: f[0] * f[1].std
    )
    return max(factor * side.std, published.rounding), side


def seeds_needed(
    std: float, runs: int, published: Published, full_runs: int | None = None, rules: Rules | None = None
) -> int | None:
    """Runs of ours with which equal truth would pass as reproduced in `rules.power` of cases, where our true deviation is the one seen (of one
    run: the printed one). None where no number of runs would do, or equivalence is not asked."""
    rules, full_runs = rules or Rules(), full_runs or runs
    if published.std is None or published.mean is None or full_runs < 2:
        return None
    readings, _ = _readings(published, sample_std(std, runs), runs, rules)
    few = readings[0]
    if few.std == 0.0:
        return None
    ratio = _margin(full_runs, published, readings, rules)[0] / few.std
    spread = max(sample_std(std, runs) / few.std, 1e-9) if runs > 1 else 1.0
    # a hair below: at equal spreads the answer is the number of full seeds by construction
    return first_count(lambda n: equal_passes(n, int(few.runs), ratio, rules.level, spread) >= rules.power - 1e-5, 2)


def _readings(published: Published, our_std: float, runs: int, rules: Rules) -> tuple[list[Side], list[str]]:
    """What the print may mean, the widest first: one reading where all is printed."""
    std, count = published.std, published.runs
    if std is None:
        if runs < 2:
            return [], ["one run, and no spread is printed: nothing says how far numbers scatter"]
        floor = COUNT_STD if published.metric == COUNT else 0.0
        # one run at least as noisy as ours, or a mean without noise
        return [Side(max(our_std, floor), 1), Side(0.0, math.inf)], [
            "no spread is printed: held to be one run with a spread like ours, and an exact mean; equivalence cannot be shown"
        ]
    if count is not None and count > 1:
        # unstated: the estimator behind a printed ±; taken for the population one (as in the scripts behind the WebKB rows and in GraphGym), which
        # makes the sample variance larger
        return [Side(sample_std(std, count), count)], []
    # unstated: how many runs are behind the printed ±; as few and as many as these papers state elsewhere, and a verdict only where both agree
    few, most = rules.unstated_runs
    said = (
        f"the paper gives no number of runs: {few} and {most} tried"
        if count is None
        else f"a spread of one run is printed: of {few} to {most} runs it is"
    )
    return [Side(sample_std(std, n), n) for n in sorted({few, most})], [said]


def judge_claim(
    ours: Number,
    rival: Number,
    direction: str,
    spread: float | None = None,
    rules: Rules | None = None,
    floor: float = 0.0,
) -> Claim:
    """Is `ours` better than `rival`? `spread`: the sample deviation that is printed for our method, for the case of a single run of ours; `floor`: the least deviation that numbers
    of this metric have (`COUNT_STD`)."""
    rules = rules or Rules()
    difference = (ours.mean - rival.mean) * (1 if direction == "max" else -1)
    assumptions: list[str] = []
    our_std, our_runs = ours.std, ours.runs or 1
    certainty: int | None = our_runs
    if our_runs == 1 or our_std is None:
        known = [(s, n) for s, n in ((spread, None), (rival.std, rival.runs)) if s is not None]
        if not known:
            return Claim("undecided", rival.name, assumptions=("one run, and no spread is printed",))
        our_std, certainty = known[0]
        if our_std == 0.0 and floor == 0.0:
            return Claim(
                "undecided",
                rival.name,
                assumptions=("one run, and the spread that is printed is 0: nothing says how far ours scatters",),
            )
        assumptions.append("a single run: its spread is the printed one")
    certainty, our_std = certainty or rules.unstated_runs[0], max(our_std, floor)
    if rival.std is None:
        if our_std == 0.0:
            return Claim(
                "undecided",
                rival.name,
                assumptions=(*assumptions, f"all our runs are alike and no spread is printed for {rival.name}"),
            )
        # one run at least as noisy as ours
        theirs, sure = our_std, certainty
        other = Side(theirs, 1)
        assumptions.append(f"no spread is printed for {rival.name}: held to be one run with a spread like ours")
    else:
        count = rival.runs if rival.runs and rival.runs > 1 else rules.unstated_runs[0]
        if count != rival.runs:
            assumptions.append(f"the paper gives no number of runs for {rival.name}: {count} assumed")
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
    """With ddof 1, from that with ddof 0; of one run unchanged."""
    return population_std * math.sqrt(runs / max(runs - 1, 1))


@cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights on [-1, 1]."""
    return np.polynomial.legendre.leggauss(NODES)


@lru_cache(maxsize=4096)
def equal_passes(runs: int, other_runs: int, margin: float, level: float, spread: float = 1.0) -> float:
    """Probability of `reproduced` where both means are equal and the margin is `margin` times the other side's sample deviation.

    `spread`: our true standard deviation over theirs. Exact for normal runs up to the quadrature over both sample variances (Welch's test).
    """
    from scipy import special, stats  # half a second, which a training process must not pay

    nodes, weights = _quadrature()
    # Legendre nodes on the square root of the tail: dense where a variance is small
    quantiles, weights = ((1 + nodes) / 2) ** 2, weights / 2 * (1 + nodes)
    first = spread**2 * stats.chi2.ppf(quantiles, runs - 1) / (runs - 1) / runs  # [NODES]
    second = stats.chi2.ppf(quantiles, other_runs - 1) / (other_runs - 1)
    mine, theirs = first[:, None], (second / other_runs)[None, :]
    df = (mine + theirs) ** 2 / (mine**2 / (runs - 1) + theirs**2 / (other_runs - 1))
    room = margin * np.sqrt(second)[None, :] - special.stdtrit(df, 1 - level) * np.sqrt(mine + theirs)
    room = np.minimum(room, special.stdtrit(df, 1 - level / 2) * np.sqrt(mine + theirs))  # consistent besides
    error = math.sqrt(spread**2 / runs + 1 / other_runs)
    passes = np.where(room > 0, special.erf(room / (error * math.sqrt(2))), 0.0)
    return float(weights @ passes @ weights)


@lru_cache(maxsize=512)
def _margin_factor(runs: int, other_runs: int, level: float, power: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(lambda factor: equal_passes(runs, other_runs, factor, level) - power, 0.01, 1000.0, xtol=1e-6))


def margin_factor(runs: int, other_runs: int, rules: Rules | None = None) -> float:
    """The margin in sample deviations of the print with which equal truth passes in `rules.power` of cases."""
    rules = rules or Rules()
    return _margin_factor(runs, other_runs, rules.level, rules.power)


def false_discovery(p_values: Sequence[float | None]) -> list[float | None]:
    """Benjamini-Hochberg over the p values that are there: the smallest rate of false discoveries at which each would be one."""
    from scipy.stats import false_discovery_control

    there = [p for p in p_values if p is not None]
    adjusted = iter(false_discovery_control(there).tolist() if there else [])
    return [None if p is None else next(adjusted) for p in p_values]


def first_count(true: Callable[[int], bool], start: int) -> int | None:
    """The first whole number from `start` for which `true`, which stays so; None beyond MOST_SEEDS."""
    if true(start):
        return start
    below, above = start, start + 1
    while not true(above):
        if above >= MOST_SEEDS:
            return None
        below, above = above, min(2 * above, MOST_SEEDS)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if true(middle) else (middle, above)
    return above


def _error(ours: Side, theirs: Side) -> tuple[float, float]:
    """Standard error of the difference of two means, and Welch's degrees of freedom."""
    mine, other = ours.std**2 / ours.runs, theirs.std**2 / theirs.runs
    if mine + other == 0.0:
        return 0.0, math.inf
    if theirs.runs == 1:
        # the spread of one run is our own, so that nothing but our runs says how well it is known
        return math.sqrt(mine + other), ours.runs - 1
    return math.sqrt(mine + other), (mine + other) ** 2 / (
        mine**2 / (ours.runs - 1) + (other**2 / (theirs.runs - 1) if other else 0.0)
    )


def quantile(q: float, df: float) -> float:
    """Of Student's t, or of the normal distribution for infinite degrees of freedom."""
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
    """P(T > t)."""
    from scipy import special

    return float(special.ndtr(-t) if math.isinf(df) else special.stdtr(df, -t))


def slack_of(mean: float) -> float:
    """By so much numbers of this size differ for floating point alone."""
    return 1e-12 + 1e-9 * abs(mean)
