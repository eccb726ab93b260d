"""How much of what the papers print of their own models has a verdict here, and what its runs took."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from stages.contents import Row
from stages.datasets.catalog import catalog
from stages.params import Cell, Grid
from stages.recipe import load_recipe
from stages.report.published import Published, PublishedError, everything, further, lookup, resolve
from stages.schema import RecipeError
from stages.texts import hours


@dataclass(frozen=True)
class Coverage:
    """Of one paper: its own printed numbers, costs and OOM left out, and those with a verdict, of them `provisional` with fewer runs than they are
    printed from; the cells that such numbers are of, and those with a verdict; `seconds` of these cells' runs, one after the other."""

    paper: str
    numbers: int
    judged: int
    provisional: int
    cells: int
    cells_judged: int
    seconds: float

    @property
    def sentence(self) -> str:
        """All of it, for people."""
        if not self.judged:
            return f"None of its {self.numbers} own numbers has a verdict yet; {self.cells} cells of the grid would give them one."
        some = "all" if self.provisional == self.judged else f"{self.provisional} of them"
        fewer = f", {some} provisional" if self.provisional else ""
        runs = f"{self.cells_judged} of {self.cells} cells and {hours(self.seconds)} of runs"
        return f"Of its {self.numbers} own numbers {self.judged} have a verdict{fewer}, from {runs}."


def coverage(grid: Grid, rows: Sequence[Row], seconds: Mapping[str, float]) -> list[Coverage]:
    """Paper by paper. `rows`: of leaderboards; `seconds`: of all runs of a cell, by its name."""
    held = [(lookup(*place), row) for row in rows if (place := row["published_place"]) and row["interval_low"] is not None]
    cells = Counter(paper for cell in grid.cells.values() for paper in {number.paper for number in printed_numbers(cell) if number.own})
    found = []
    for paper, numbers in _own_numbers().items():
        mine = [(number.place, row) for number, row in held if number.own and number.paper == paper]
        # where several recipes are held against a number, one that is complete is enough
        judged, complete = {place for place, _ in mine}, {place for place, row in mine if not row["provisional"]}
        run = {row["cell"] for _, row in mine}
        took = sum(seconds.get(cell, 0.0) for cell in run)
        found.append(Coverage(paper, numbers, len(judged), len(judged - complete), cells[paper], len(run), took))
    return found


def printed_numbers(cell: Cell) -> list[Published]:
    """The printed numbers that a cell's verdicts are about, costs left out; none where its recipe cannot be read or names no
    place (`gt-bench doctor` says it)."""
    metric = spec.metric if (spec := catalog().get(cell.dataset)) else None
    try:
        published = load_recipe(cell.recipe_path).published
        reference = published.model_dump() if published else None
        entries = [resolve(reference, cell.dataset, metric), *further(reference, cell.dataset, metric)]
    except (RecipeError, PublishedError):
        return []
    return [entry for entry in entries if entry is not None and entry.mean is not None and not entry.measured]


@lru_cache(maxsize=1)
def _own_numbers() -> dict[str, int]:
    """How many numbers a paper prints of its own models; papers that print none of them are not in it."""
    found: dict[str, int] = {}
    for number in everything():
        if number.own and number.mean is not None and not number.measured:
            found[number.paper] = found.get(number.paper, 0) + 1
    return found
