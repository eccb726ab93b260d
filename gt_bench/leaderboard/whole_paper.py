"""A paper as a whole: on which side of its published numbers our runs lie."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gt_bench.leaderboard.verdicts import runs_in_full
from gt_bench.papers.published import lookup
from gt_bench.schemas import Row
from gt_bench.stats.direction import Direction, direction

ENOUGH = 3  # a method with at least this many numbers is counted separately


class WholePaper(NamedTuple):
    """The test over all numbers, and (worse, numbers) of each method with at least three."""

    all: Direction
    methods: dict[str, tuple[int, int]]


def judged_numbers(paper: str, rows: Sequence[Row]) -> dict[tuple[str, ...], Row]:
    """Choose one row for each own number of a paper that has a verdict.

    Args:
        paper: The paper.
        rows: Rows of leaderboards.

    Returns:
        {first place of the number: row}. If several recipes are compared with a number, the row with the largest share
        of its runs counts, then the first. A row whose epoch was chosen on the test split never counts.
    """
    judged = [row for row in rows if row["interval_low"] is not None and row["published_place"]]
    numbers = [lookup(*row["published_place"] or ()) for row in judged]
    return most_complete(row for row, n in zip(judged, numbers, strict=True) if n.paper == paper and n.own)


def most_complete(rows: Iterable[Row]) -> dict[tuple[str, ...], Row]:
    """Chooses a row for each published number: that with the largest share of its runs, then the first.

    Returns:
        {first place of the number: row}. Rows whose epoch was chosen on the test split are left out.
    """
    chosen: dict[tuple[str, ...], Row] = {}
    for row in rows:
        if not row["published_place"] or row["chosen_on_test"]:
            continue
        place = lookup(*row["published_place"]).first_place
        other = chosen.get(place)
        if other is None or row["runs"] / runs_in_full(row) > other["runs"] / runs_in_full(other):
            chosen[place] = row
    return chosen


def whole_paper(paper: str, rows: Sequence[Row]) -> WholePaper:
    """Test the direction of all `judged_numbers` of a paper, provisional ones included.

    Args:
        paper: The paper.
        rows: Rows of leaderboards.

    Returns:
        The result; each difference is in units of half its 95 % interval.
    """
    effects: dict[str, list[float]] = {}
    by_method: dict[str, list[float]] = {}
    for place, row in judged_numbers(paper, rows).items():
        low, high, difference = row["interval_low"], row["interval_high"], row["difference"]
        if low is None or high is None or difference is None or high == low:
            continue
        effect = (1 if lookup(*place).direction == "max" else -1) * difference / ((high - low) / 2)
        effects.setdefault(place[3], []).append(effect)
        by_method.setdefault(place[2], []).append(effect)
    counts = {
        name: (sum(e < 0 for e in values), len(values)) for name, values in by_method.items() if len(values) >= ENOUGH
    }
    return WholePaper(direction(effects), counts if len(counts) > 1 else {})


def sentence(found: WholePaper) -> str:
    """Returns the result as a sentence."""
    test, methods = found
    if not test.numbers:
        return "No number differs from its published one."
    of = ", ".join(f"{name} {worse} of {count}" for name, (worse, count) in methods.items())
    said = f"Taken together, {test.worse} of {test.numbers} numbers are worse than published" + (
        f" ({of})" if of else ""
    )
    if test.by_dataset is None:
        return (
            f"{said}, on {test.datasets} dataset{'s' if test.datasets > 1 else ''}: too few for a test of all of them."
        )
    return (
        f"{said}: p = {test.by_dataset:.2g} over {test.datasets} datasets, or p = {test.sign_p:.2g} by a sign test "
        "that takes them for independent."
    )
