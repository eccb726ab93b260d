"""A critical-difference diagram as coordinates for SVG (Demšar 2006, Figure 1): ranks on a line, bars over equals."""

from typing import NamedTuple

from gt_bench.reports.over_datasets import Diagram

WIDTH, MARGIN = 960, 290  # of the drawing, and of the names on each side
AXIS, BAR, LINE = 46, 9, 19  # y of the axis, and distances of bars and of names


class Mark(NamedTuple):
    """A method: its name, position on the axis, and position of its name."""

    text: str
    own: bool
    x: float
    y: float
    end: float
    anchor: str


class Drawing(NamedTuple):
    """Coordinates in units of the view box.

    Attributes:
        width: of the view box.
        height: of the view box.
        axis: y of the axis.
        ticks: (rank, x).
        bars: (x, x, y) of the groups that do not differ significantly.
        marks: the methods.
        critical: (x, x) of a line as long as the critical difference; None if it is longer than the axis.
    """

    width: int
    height: float
    axis: int
    ticks: list[tuple[int, float]]
    bars: list[tuple[float, float, int]]
    marks: list[Mark]
    critical: tuple[float, float] | None


def draw(found: Diagram) -> Drawing:
    """Returns the drawing of a diagram: the better half of the methods on the left."""
    count = len(found.methods)

    def x(rank: float) -> float:
        return round(MARGIN + (rank - 1) / (count - 1) * (WIDTH - 2 * MARGIN), 1)

    bars = [
        (x(found.methods[first].rank) - 4, x(found.methods[last].rank) + 4, AXIS + BAR * (n + 1))
        for n, (first, last) in enumerate(found.groups)
    ]
    start, half, marks = AXIS + BAR * len(bars) + 22, (count + 1) // 2, []
    for n, method in enumerate(found.methods):
        left = n < half
        # the outermost methods have the uppermost names, so that no lines cross
        y = start + LINE * (n if left else count - 1 - n)
        end = MARGIN - 10 if left else WIDTH - MARGIN + 10
        text = f"{method.name} {method.rank:.2f}" if left else f"{method.rank:.2f} {method.name}"
        marks.append(Mark(text, method.own, x(method.rank), y, end, "end" if left else "start"))
    fits = 1 + found.critical <= count
    return Drawing(
        WIDTH,
        start + LINE * half,
        AXIS,
        [(rank, x(rank)) for rank in range(1, count + 1)],
        bars,
        marks,
        (x(1), x(1 + found.critical)) if fits else None,
    )
