"""The claim of a table: whether the paper's method is better than the best other number of its column.

`claim holds` or `claim fails` if the 95 % interval of the difference (Welch) excludes 0, otherwise `undecided`.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from gt_bench.config.verdict_settings import Rules
from gt_bench.stats.assumptions import Assumption, AssumptionKind
from gt_bench.stats.student import quantile
from gt_bench.stats.welch import SPREADLESS, first_count, p_separated, slack_of


class ClaimWord(StrEnum):
    """Whether the paper's method is better than the best other number of its column."""

    HOLDS = "claim holds"
    FAILS = "claim fails"
    UNDECIDED = "undecided"
    NOT_CLAIMED = "not claimed"  # it is not the best of its published column


@dataclass(frozen=True)
class Number:
    """A mean to compare with.

    Attributes:
        name: name of the method.
        mean: the mean.
        std: sample standard deviation. None if it is not published.
        runs: number of runs. None if it is not published.
        rounding: half a unit of the last published digit.
        row: recipe of our runs. None for a published number.
    """

    name: str
    mean: float
    std: float | None
    runs: int | None
    rounding: float = 0.0
    row: str | None = None


@dataclass(frozen=True)
class JudgedClaim:
    """Result of `judge_claim`.

    Attributes:
        word: the verdict.
        rival: the best other number.
        interval: interval of the difference in raw units. Positive if ours is better.
        more_seeds: number of additional runs that would decide. None if decided, or if no number of runs would.
        assumptions: assumptions about information that is not published.
    """

    word: ClaimWord
    rival: Number | None = None
    interval: tuple[float, float] | None = None
    more_seeds: int | None = None
    assumptions: tuple[Assumption, ...] = ()


def judge_claim(
    ours: Number,
    rival: Number,
    direction: str,
    spread: float | None = None,
    rules: Rules | None = None,
    floor: float = 0.0,
    highest: float = math.inf,
) -> JudgedClaim:
    """Decides whether our method is better than its best rival.

    Args:
        ours: our mean.
        rival: the published mean of the rival.
        direction: "max" or "min".
        spread: published sample deviation of our method, used if we have a single run, or few equal ones.
        rules: settings of the tests.
        floor: minimum deviation of numbers of this metric (`COUNT_STD` for counts).
        highest: as of `highest_of`; it ends the interval.
    """
    rules, sign = rules or Rules(), 1 if direction == "max" else -1
    difference, slack = sign * (ours.mean - rival.mean), slack_of(rival.mean)
    assumptions: list[Assumption] = []
    our_runs = ours.runs or 1
    our_std, certainty = max(ours.std or 0.0, floor), our_runs
    single = our_runs == 1 or ours.std is None
    if single or (our_std <= slack and our_runs <= SPREADLESS):
        # our runs do not show their spread
        known = [(s, n) for s, n in ((spread, None), (rival.std, rival.runs)) if s is not None]
        our_std, count = known[0] if single and known else max(known, key=lambda one: one[0], default=(0.0, None))
        our_std, certainty = max(our_std, floor), count or rules.unstated_runs[0]
        if single and (not known or our_std == 0.0):
            return JudgedClaim(ClaimWord.UNDECIDED, rival, assumptions=(Assumption(AssumptionKind.SPREAD_UNKNOWN),))
        if our_std > 0.0:
            kind = AssumptionKind.ONE_RUN if single else AssumptionKind.EQUAL_RUNS
            assumptions.append(Assumption(kind, () if single else (our_runs,)))
    if rival.std is None:
        # assumed: one run with at least our spread
        their_std, their_runs, sure = our_std, 1, certainty
        assumptions.append(Assumption(AssumptionKind.RIVAL_SPREAD_UNSTATED, (rival.name,)))
    else:
        sure = their_runs = rival.runs if rival.runs and rival.runs > 1 else rules.unstated_runs[0]
        their_std = max(rival.std, floor)
        if their_runs != rival.runs:
            assumptions.append(Assumption(AssumptionKind.RIVAL_RUNS_UNSTATED, (rival.name, their_runs)))
    if max(our_std, their_std) <= slack and (rival.std is None or p_separated(our_runs, their_runs) >= rules.level):
        assumptions.append(Assumption(AssumptionKind.NO_SPREAD))
        return JudgedClaim(ClaimWord.UNDECIDED, rival, assumptions=tuple(assumptions))

    def width(runs: int) -> float:
        mine, others = our_std**2 / runs, their_std**2 / their_runs
        error = math.sqrt(mine + others)
        df = (
            (mine + others) ** 2 / (mine**2 / max(max(runs, certainty) - 1, 1) + others**2 / max(sure - 1, 1))
            if error
            else math.inf
        )
        return quantile(1 - rules.level / 2, df) * error + rival.rounding

    half = width(our_runs)
    ends = [sign * (end - rival.mean) for end in (0.0, highest)] if highest < math.inf else [-highest, highest]
    interval = max(difference - half, min(ends)), min(difference + half, max(ends))
    if interval[0] > slack or interval[1] < -slack:
        word = ClaimWord.HOLDS if difference > 0 else ClaimWord.FAILS
        return JudgedClaim(word, rival, interval, None, tuple(assumptions))
    total = first_count(lambda runs: abs(difference) > width(runs), our_runs + 1)
    more = None if total is None else total - our_runs
    return JudgedClaim(ClaimWord.UNDECIDED, rival, interval, more, tuple(assumptions))
