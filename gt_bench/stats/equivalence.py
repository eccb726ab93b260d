"""Power of the equivalence test of verdicts, and the margin that gives it a stated power."""

import math
from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np

from gt_bench.config.verdict_settings import Rules

NODES = 64  # nodes of the quadrature over each standard deviation; powers are accurate to 1e-3


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
    return _passes(runs, other_runs, level, spread)(margin)


def _passes(runs: int, other_runs: int, level: float, spread: float) -> Callable[[float], float]:
    """Returns `equal_passes` as a function of the margin."""
    from scipy import special

    nodes, weights = _quadrature()
    # Legendre nodes on the square root of the quantile: dense where a variance is small
    quantiles, weights = ((1 + nodes) / 2) ** 2, weights / 2 * (1 + nodes)
    # quantiles of chi squared, as scipy.stats, which takes half a second to import, has them
    chi2 = [2 * special.gammaincinv((count - 1) / 2, quantiles) for count in (runs, other_runs)]  # [NODES] each
    first, second = spread**2 * chi2[0] / (runs - 1) / runs, chi2[1] / (other_runs - 1)
    mine, theirs = first[:, None], (second / other_runs)[None, :]
    df = (mine + theirs) ** 2 / (mine**2 / (runs - 1) + theirs**2 / (other_runs - 1))
    equal, consistent = (special.stdtrit(df, 1 - side) * np.sqrt(mine + theirs) for side in (level, level / 2))
    error = math.sqrt(spread**2 / runs + 1 / other_runs)

    def probability(margin: float) -> float:
        room = np.minimum(margin * np.sqrt(second)[None, :] - equal, consistent)
        passes = np.where(room > 0, special.erf(room / (error * math.sqrt(2))), 0.0)
        return float(weights @ passes @ weights)

    return probability


@lru_cache(maxsize=512)
def _margin_factor(runs: int, other_runs: int, level: float, power: float) -> float:
    from scipy.optimize import brentq

    passes = _passes(runs, other_runs, level, 1.0)
    return float(brentq(lambda factor: passes(factor) - power, 0.01, 1000.0, xtol=1e-6))


def margin_factor(runs: int, other_runs: int, rules: Rules | None = None) -> float:
    """Returns the margin, in published sample deviations, with which equal true means pass at `rules.power`.

    Args:
        runs: number of our runs.
        other_runs: number of runs of the other side.
        rules: settings of the tests.
    """
    rules = rules or Rules()
    return _margin_factor(runs, other_runs, rules.level, rules.power)
