"""Verdict: the runs of one cell held against the published number.

Two questions are asked, at level alpha = 0.05, from mean, standard deviation and number of runs on each side (scipy, unequal variances):
  equivalence  two one-sided Welch tests (TOST): is |difference| smaller than the margin?
  difference   Welch's two-sided test: is there a difference at all?
and the verdict is
  within        equivalence shown (even where a smaller difference is also shown)
  above, below  not equivalent, and a difference shown: our number is the larger or the smaller one ("better" or "worse" by the metric)
  inconclusive  neither shown: too few runs for so much noise; this is not a reproduction
The margin is `run.margin_std` of params.yaml times the published standard deviation (ours, where none is printed), and never less than half
a unit of the last printed digit. Nothing but a complete, unreduced cell is ever held against a number.
"""

import math
from dataclasses import dataclass

from stages.report.published import Published

ALPHA = 0.05
STD_DDOF = 0


@dataclass(frozen=True)
class Verdict:
    """`word` as above, or why there is none; `margin` in raw units; p values of Welch's test and of TOST, None where untested."""

    word: str
    margin: float | None = None
    p_difference: float | None = None
    p_equivalence: float | None = None
    assumptions: tuple[str, ...] = ()


def judge(mean: float, std: float, runs: int, published: Published | None, margin_std: float) -> Verdict:
    """Verdict on `runs` complete runs with `mean` and population standard deviation `std`, raw units."""
    if published is None:
        return Verdict("no published number")
    if published.mean is None:
        return Verdict(f"published: {published.printed.lower()}")
    assumptions = []
    spread = published.std
    if spread is None:
        spread = std
        assumptions.append("no spread is printed: the published mean is taken as exact, the margin from our runs")
    margin = max(margin_std * spread, published.rounding)
    if runs < 2:
        return Verdict("inconclusive", margin, assumptions=("one run has no spread",))
    published_runs = published.runs
    if published_runs is None and published.std is not None:
        # unstated: how many runs stand behind the printed ±; as many as ours are assumed
        published_runs = runs
        assumptions.append(f"the paper gives no number of runs: {runs} assumed")
    # unstated: the estimator behind a printed ±; taken for the population one (as in the scripts behind the WebKB rows), which makes the
    # sample variance larger and so no claim easier
    ours = _sample_std(std, runs), runs
    theirs = (_sample_std(published.std, published_runs), published_runs) if published.std is not None else (0.0, 2)
    difference = mean - published.mean
    if ours[0] == theirs[0] == 0.0:
        p_difference, p_equivalence = (1.0, 0.0) if abs(difference) <= margin + 1e-12 else (0.0, 1.0)
    else:
        p_difference = _welch(mean, *ours, published.mean, *theirs, "two-sided")
        above_lower = _welch(mean, *ours, published.mean - margin, *theirs, "greater")
        below_upper = _welch(mean, *ours, published.mean + margin, *theirs, "less")
        p_equivalence = max(above_lower, below_upper)
    if p_equivalence < ALPHA:
        word = "within"
    elif p_difference < ALPHA:
        better = (difference > 0) == (published.direction == "max")
        word = f"{'above' if difference > 0 else 'below'} ({'better' if better else 'worse'})"
    else:
        word = "inconclusive"
    return Verdict(word, margin, p_difference, p_equivalence, tuple(assumptions))


def _sample_std(population_std: float, runs: int) -> float:
    return population_std * math.sqrt(runs / max(runs - 1, 1))


def _welch(mean: float, std: float, runs: int, other: float, other_std: float, other_runs: int, alternative: str) -> float:
    from scipy import stats  # half a second, which a training process must not pay

    return float(stats.ttest_ind_from_stats(mean, std, runs, other, other_std, other_runs, equal_var=False, alternative=alternative).pvalue)
