"""Tests whether all numbers of a paper lie to one side of the published ones, with correlated numbers.

Each number may agree with the published one, and all may still be lower. `by_dataset` tests that.

Assumptions: under the null hypothesis the differences of a dataset are as likely to be all of opposite sign, and
datasets are independent. Numbers of one dataset may depend on each other in any way (the same data, splits and seeds).
The test shows neither the cause nor the size of the common difference. `sign_p` is the plain sign test; it
treats all numbers as independent, so it is too small if they are not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import comb

FEWEST = 6  # with fewer datasets the smallest p value that is possible, 2 / 2**n, exceeds 0.05
MOST = 20  # sign flips of more datasets are too many to enumerate


@dataclass(frozen=True)
class Direction:
    """The result of the test.

    Attributes:
        numbers: Numbers that differ from the published ones at all.
        worse: Those of them that are worse.
        sign_p: Two-sided p value of the sign test over numbers, as if they were independent; None without numbers.
        datasets: Datasets with such a number.
        by_dataset: Two-sided p value over datasets; None with fewer than six.
    """

    numbers: int
    worse: int
    sign_p: float | None
    datasets: int
    by_dataset: float | None


def direction(effects: Mapping[str, Sequence[float]]) -> Direction:
    """Test whether effects are centred at zero.

    Args:
        effects: For each dataset the differences, ours minus published, positive if better, each in units of its own
            uncertainty.

    Returns:
        Counts and both p values.

    Raises:
        ValueError: More than 20 datasets.
    """
    clusters = {name: [e for e in values if e != 0.0] for name, values in effects.items()}
    clusters = {name: values for name, values in clusters.items() if values}
    if len(clusters) > MOST:
        raise ValueError(f"{len(clusters)} datasets: expected at most {MOST}, whose sign flips can be enumerated")
    every = [e for values in clusters.values() for e in values]
    worse = sum(e < 0 for e in every)
    if len(clusters) < FEWEST:
        return Direction(len(every), worse, _sign_test(worse, len(every)), len(clusters), None)
    sums = [sum(values) for values in clusters.values()]
    seen = abs(sum(sums)) * (1 - 1e-12)
    flips = [
        abs(sum(s * value for s, value in zip(signs, sums, strict=True)))
        for signs in product((1, -1), repeat=len(sums))
    ]
    p_value = sum(flip >= seen for flip in flips) / len(flips)
    return Direction(len(every), worse, _sign_test(worse, len(every)), len(clusters), p_value)


def _sign_test(worse: int, count: int) -> float | None:
    """Two-sided p value of `worse` in `count` fair coin flips."""
    if not count:
        return None
    tail = sum(comb(count, k) for k in range(min(worse, count - worse) + 1)) / 2**count
    return min(1.0, 2 * tail)
