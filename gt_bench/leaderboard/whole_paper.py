"""A paper as a whole: which row counts for each of its numbers, and on which side of them our runs lie."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gt_bench.config.suite import load_suite
from gt_bench.leaderboard.row import Row
from gt_bench.papers.published import lookup
from gt_bench.stats.direction import Direction, direction

ENOUGH = 3  # a method with at least this many numbers is counted separately


class WholePaper(NamedTuple):
    """The tests of the direction of all numbers.

    Attributes:
        final: over the numbers that suite.yaml declares, the paper's final models in its main tables.
        every: over all its own numbers, for comparison.
        methods: (worse, numbers) of each declared method with at least three.
    """

    final: Direction
    every: Direction
    methods: dict[str, tuple[int, int]]


def judged_numbers(paper: str, rows: Sequence[Row]) -> dict[tuple[str, ...], Row]:
    """Choose one row for each own number of a paper that has a verdict.

    Args:
        paper: The paper.
        rows: Rows of leaderboards.

    Returns:
        {first place of the number: row}, as `counted` chooses.
    """
    return counted(row for row in rows if row.interval is not None and _own(paper, row))


def _own(paper: str, row: Row) -> bool:
    return row.published is not None and row.published.paper == paper and row.published.own


def counted(rows: Iterable[Row]) -> dict[tuple[str, ...], Row]:
    """Chooses a row for each published number, without a look at its result.

    Returns:
        {first place of the number: row}: of several recipes the one with the largest share of its runs, then one that
        the paper describes (`described` in suite.yaml), then the first of the grid. Rows whose epoch was chosen on the
        test split are left out.
    """
    chosen: dict[tuple[str, ...], tuple[tuple[float, bool], Row]] = {}
    for row in rows:
        number = row.published
        if number is None or row.chosen_on_test:
            continue
        order = row.summary.runs / max(row.summary.full, 1), row.model in load_suite(number.paper).described
        other = chosen.get(number.first_place)
        if other is None or order > other[0]:
            chosen[number.first_place] = order, row
    return {place: row for place, (_, row) in chosen.items()}


def several_recipes(paper: str, rows: Sequence[Row]) -> dict[tuple[str, ...], list[Row]]:
    """Returns the complete rows of each own number that several recipes have, the counted one first."""
    by_place: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row.counts and row.published and _own(paper, row):
            by_place.setdefault(row.published.first_place, []).append(row)
    taken = judged_numbers(paper, rows)
    return {
        place: sorted(its, key=lambda row: row.cell != taken[place].cell)
        for place, its in by_place.items()
        if len({row.cell for row in its}) > 1
    }


def whole_paper(paper: str, rows: Sequence[Row]) -> WholePaper:
    """Test the direction of the numbers of a paper, provisional ones included.

    Args:
        paper: The paper.
        rows: Rows of leaderboards.

    Returns:
        The results; each difference is in units of half its 95 % interval.
    """
    declared = load_suite(paper).final
    effects = {place: effect for place, row in judged_numbers(paper, rows).items() if (effect := _effect(row, place))}
    final = {
        place: effect
        for place, effect in effects.items()
        if not declared or any(place[1] in part.tables and place[2] in part.methods for part in declared)
    }
    by_method: dict[str, list[float]] = {}
    for place, effect in final.items():
        by_method.setdefault(place[2], []).append(effect)
    counts = {
        name: (sum(e < 0 for e in values), len(values)) for name, values in by_method.items() if len(values) >= ENOUGH
    }
    return WholePaper(_direction(final), _direction(effects), counts if len(counts) > 1 else {})


def _effect(row: Row, place: Sequence[str]) -> float:
    """Returns a difference in units of half its interval, positive if ours is better; 0 if there is none."""
    (low, high), difference = row.interval or (0.0, 0.0), row.difference
    if difference is None or high == low:
        return 0.0
    half = max(difference - low, high - difference)  # an interval may end at 0 or 100 %
    return (1 if lookup(*place).direction == "max" else -1) * difference / half


def _direction(effects: Mapping[tuple[str, ...], float]) -> Direction:
    by_dataset: dict[str, list[float]] = {}
    for place, effect in effects.items():
        by_dataset.setdefault(place[3], []).append(effect)
    return direction(by_dataset)


def sentence(tests: WholePaper) -> str:
    """Returns the result as sentences: of the declared numbers, and of all if the p value differs."""
    test = tests.final
    if not tests.every.numbers:
        return "No number differs from its published one."
    of = ", ".join(f"{name} {worse} of {count}" for name, (worse, count) in tests.methods.items())
    said = f"Of the final models, {test.worse} of {test.numbers} numbers are worse than published" + (
        f" ({of})" if of else ""
    )
    said += f": {_p_text(test)}."
    if tests.every.numbers != test.numbers:
        said += f" Over all {tests.every.numbers} own numbers, {tests.every.worse} are worse: {_p_text(tests.every)}."
    return said


def _p_text(test: Direction) -> str:
    if test.by_dataset is None:
        return f"too few datasets ({test.datasets}) for a test"
    return f"p = {test.by_dataset:.2g} over {test.datasets} datasets"
