"""What a published number may mean where the paper does not state it, and the assumptions behind a verdict."""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from gt_bench.config.verdict_settings import Rules
from gt_bench.papers.pair_counts import COUNT
from gt_bench.papers.published import Published
from gt_bench.stats.welch import Spread, sample_std

# standard deviation of rounding to whole numbers: the minimum spread of a count
COUNT_STD = 1 / math.sqrt(12)


class AssumptionKind(StrEnum):
    """What was assumed because it is not published or cannot be seen in few runs. Values are named in order."""

    SPREAD_UNKNOWN = "spread unknown"  # one run of ours, and no spread is published
    SPREAD_UNSTATED = "spread unstated"  # one run with our spread, and an exact mean are tried
    DEVIATION_UNSTATED = "deviation unstated"  # population and sample deviation are tried
    RUNS_UNSTATED = "runs unstated"  # smallest and largest number that are tried
    ONE_RUN_PUBLISHED = "one run published"  # smallest and largest number that are tried
    ONE_RUN = "one run"  # ours has the published spread
    EQUAL_RUNS = "equal runs"  # number of our runs, which have the same value: the published spread is used
    NO_SPREAD = "no spread"  # all values of each side are equal, and they are too few to exclude a spread
    COUNT = "count"  # pairs are trained independently
    RIVAL_SPREAD_UNSTATED = "rival spread unstated"  # rival
    RIVAL_RUNS_UNSTATED = "rival runs unstated"  # rival, assumed number


class Assumption(NamedTuple):
    """An assumption: its kind, and the values that its sentence contains."""

    kind: AssumptionKind
    values: tuple[str | int, ...] = ()


def readings_of(
    published: Published, our_std: float, runs: int, rules: Rules
) -> tuple[list[Spread], tuple[Assumption, ...]]:
    """Returns the possible spreads behind a published number, widest first, and the assumptions made."""
    std, count = published.std, published.runs
    if std is None:
        if runs < 2:
            return [], (Assumption(AssumptionKind.SPREAD_UNKNOWN),)
        floor = COUNT_STD if published.metric == COUNT else 0.0
        # extremes: one run with at least our spread, or an exact mean
        return [Spread(max(our_std, floor), 1), Spread(0.0, math.inf)], (Assumption(AssumptionKind.SPREAD_UNSTATED),)
    # unstated: the estimator behind a published ±; population and sample deviation are tried, and a verdict only where
    # both agree (suite.yaml states it where a paper or its released code does)
    of_std = (Assumption(AssumptionKind.DEVIATION_UNSTATED),) if published.std_ddof is None and std > 0 else ()
    if count is not None and count > 1:
        return _sides(std, [count], published.std_ddof), of_std
    # unstated: how many runs are behind the printed ±; the smallest and the largest number that these papers state
    # elsewhere, and a verdict only where both agree
    few, most = rules.unstated_runs
    kind = AssumptionKind.RUNS_UNSTATED if count is None else AssumptionKind.ONE_RUN_PUBLISHED
    return _sides(std, sorted({few, most}), published.std_ddof), (Assumption(kind, (few, most)), *of_std)


def _sides(std: float, counts: Sequence[int], ddof: int | None) -> list[Spread]:
    """Returns the spreads that a published deviation can mean, widest first."""
    stds = [[sample_std(std, n)] if ddof == 0 else [std] if ddof == 1 else [sample_std(std, n), std] for n in counts]
    return [Spread(one, n) for n, its in zip(counts, stds, strict=True) for one in dict.fromkeys(its)]
