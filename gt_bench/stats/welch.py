"""Arithmetic of Welch's test: standard errors, and numbers of runs that would decide."""

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

STD_DDOF = 0
MOST_SEEDS = 1000  # a question that needs more seeds counts as not decidable by seeds
SPREADLESS = 5  # at most this number of equal values show no spread: by the sign test, six have p value 0.03


class Spread(NamedTuple):
    """Spread of a mean: sample standard deviation (ddof 1) and number of runs."""

    std: float
    runs: float


def sample_std(population_std: float, runs: float) -> float:
    """Converts a standard deviation with ddof 0 to ddof 1. For one run, it is not changed."""
    return population_std * math.sqrt(runs / max(runs - 1, 1))


def standard_error(ours: Spread, theirs: Spread) -> tuple[float, float]:
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


def slack_of(mean: float) -> float:
    """Returns the difference that floating-point rounding can cause for numbers of this size."""
    return 1e-12 + 1e-9 * abs(mean)


def p_separated(runs: float, other_runs: float) -> float:
    """Returns the two-sided permutation p value of two samples that do not overlap, such as equal values on each side.

    It is the smallest p value that is possible with these numbers of runs: 0.1 for 3 against 3.
    """
    return min(1.0, 2 / math.comb(int(runs + other_runs), int(runs)))


def first_count(true: Callable[[int], bool], start: int) -> int | None:
    """Returns the smallest integer from `start` for which a monotonic condition is true. None if above MOST_SEEDS."""
    counts = range(start, MOST_SEEDS + 1)
    index = bisect_left(counts, True, key=true)
    return counts[index] if index < len(counts) else None
