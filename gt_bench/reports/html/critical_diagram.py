"""A critical-difference diagram as coordinates for SVG (Demšar 2006, Figure 1): ranks on a line, bars over equals."""

from typing import NamedTuple

from gt_bench.reports.over_datasets import Diagram

WIDTH, CHARACTER = 960, 8.2  # of the drawing, and of a character of a name at most
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


def draw(diagram: Diagram) -> Drawing:
    """Returns the drawing of a diagram: the better half of the methods on the left."""
    count = len(diagram.methods)
    margin = 14 + CHARACTER * max(len(f"{method.name} {method.rank:.2f}") for method in diagram.methods)

    def x(rank: float) -> float:
        return round(margin + (rank - 1) / (count - 1) * (WIDTH - 2 * margin), 1)

    bars = [
        (x(diagram.methods[first].rank) - 4, x(diagram.methods[last].rank) + 4, AXIS + BAR * (n + 1))
        for n, (first, last) in enumerate(diagram.groups)
    ]
    start, half, marks = AXIS + BAR * len(bars) + 22, (count + 1) // 2, []
    for n, method in enumerate(diagram.methods):
        left = n < half
        # the outermost methods have the uppermost names, so that no lines cross
        y = start + LINE * (n if left else count - 1 - n)
        end = margin - 10 if left else WIDTH - margin + 10
        text = f"{method.name} {method.rank:.2f}" if left else f"{method.rank:.2f} {method.name}"
        marks.append(Mark(text, method.own, x(method.rank), y, end, "end" if left else "start"))
    fits = 1 + diagram.critical <= count
    return Drawing(
        WIDTH,
        start + LINE * half,
        AXIS,
        [(rank, x(rank)) for rank in range(1, count + 1)],
        bars,
        marks,
        (x(1), x(1 + diagram.critical)) if fits else None,
    )
