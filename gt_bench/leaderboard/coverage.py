"""Coverage: how many of a paper's numbers for its own models have a verdict, and the time of the runs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.registry import catalog
from gt_bench.leaderboard.row import Row
from gt_bench.papers.pair_counts import pairs_of
from gt_bench.papers.published import Published, everything, further, resolve
from gt_bench.papers.results_file import PublishedError, files_state
from gt_bench.records.run import RunRecord
from gt_bench.utils.format import duration


@dataclass(frozen=True)
class Coverage:
    """Coverage of one paper.

    Attributes:
        paper: the paper.
        numbers: its published numbers for its own models, without costs and OOM. A number in several tables counts
            once.
        judged: numbers with a verdict.
        provisional: numbers with a verdict from fewer runs than published.
        impossible: numbers that cannot have a verdict, because no standard deviation is published and no recipe has
            several seeds.
        cells: cells of the grid for such numbers.
        cells_judged: cells with a verdict.
        seconds: {device: total time of the runs of these cells}.
    """

    paper: str
    numbers: int
    judged: int
    provisional: int
    impossible: int
    cells: int
    cells_judged: int
    seconds: Mapping[str, float]

    @property
    def sentence(self) -> str:
        """Returns the coverage as text."""
        never = (
            f" {self.impossible} can have none: no standard deviation is published, and the recipes have one seed."
            if self.impossible
            else ""
        )
        if not self.judged:
            return (
                f"None of its {self.numbers} own numbers has a verdict yet; it has {self.cells} cells in the "
                f"grid.{never}"
            )
        some = "all" if self.provisional == self.judged else f"{self.provisional} of them"
        fewer = f", {some} provisional" if self.provisional else ""
        runs = f"{self.cells_judged} of {self.cells} cells and {spent(self.seconds)}"
        return f"Of its {self.numbers} own numbers {self.judged} have a verdict{fewer}, from {runs}.{never}"


def seconds_by_device(records: Iterable[RunRecord]) -> dict[str, float]:
    """Returns {device: total time of the runs}."""
    return added({record.measured.device: record.measured.seconds} for record in records)


def added(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Returns the sums of seconds by device."""
    total: dict[str, float] = {}
    for part in parts:
        for device, took in part.items():
            total[device] = total.get(device, 0.0) + took
    return total


def spent(seconds: Mapping[str, float]) -> str:
    """Returns seconds by device as text: "2.3 h of runs on the CPU and 18.9 min on NVIDIA H100 80GB HBM3"."""
    if set(seconds) <= {"cpu"}:
        return f"{duration(seconds.get('cpu', 0.0))} of runs"
    first, *others = sorted(seconds, key=lambda device: (device != "cpu", device))
    on = {
        device: f"{duration(took)}{' of runs' if device == first else ''} on {'the CPU' if device == 'cpu' else device}"
        for device, took in seconds.items()
    }
    return " and ".join(on[device] for device in (first, *others))


def coverage(
    grid: Grid,
    rows: Sequence[Row],
    seconds: Mapping[str, Mapping[str, float]],
    recipes: Mapping[str, Recipe | RecipeError],
) -> list[Coverage]:
    """Counts numbers with a verdict, paper by paper.

    Args:
        grid: all cells.
        rows: rows of leaderboards. Those whose epoch was chosen on the test split do not count.
        seconds: {cell: {device: total time of its runs}}.
        recipes: {cell: its recipe, or what is wrong with it}.

    Returns:
        One entry per paper that publishes numbers of its own models.
    """
    held = [
        (row.published, row) for row in rows if row.published and row.interval is not None and not row.chosen_on_test
    ]
    cells: Counter[str] = Counter()
    seeds: dict[tuple[str, ...], int] = {}
    for cell in grid.cells.values():
        recipe = recipes[cell.cell]
        if isinstance(recipe, RecipeError) or recipe.select == "test":
            continue
        own = [number for number in _numbers_of(cell, recipe) if number.own]
        cells.update({number.paper for number in own})
        for number in own:
            first = number.first_place
            seeds[first] = max(seeds.get(first, 0), len(recipe.seeds))
    papers = []
    for paper, numbers in _own_numbers(files_state()).items():
        mine = [(number.first_place, row) for number, row in held if number.own and number.paper == paper]
        # if several recipes are compared with a number, one complete recipe is enough
        judged, complete = {place for place, _ in mine}, {place for place, row in mine if not row.provisional}
        run = {row.cell for _, row in mine}
        papers.append(
            Coverage(
                paper=paper,
                numbers=len(numbers),
                judged=len(judged),
                provisional=len(judged - complete),
                impossible=sum(not judgeable and seeds.get(place, 0) < 2 for place, judgeable in numbers.items()),
                cells=cells[paper],
                cells_judged=len(run),
                seconds=added(seconds.get(cell, {}) for cell in run),
            )
        )
    return papers


def published_numbers(cell: Cell) -> list[Published]:
    """Returns the published numbers that the verdicts of a cell are about, without costs.

    The list is empty if the recipe is invalid or names no place (`gt-bench doctor` reports this).
    """
    try:
        return _numbers_of(cell, load_recipe(cell.recipe_path))
    except RecipeError:
        return []


def _numbers_of(cell: Cell, recipe: Recipe) -> list[Published]:
    metric = spec.metric if (spec := catalog().get(cell.dataset)) else None
    reference = recipe.published.model_dump() if recipe.published else None
    try:
        entries = [resolve(reference, cell.dataset, metric), *further(reference, cell.dataset, metric)]
    except PublishedError:
        return []
    return [entry for entry in entries if entry is not None and entry.mean is not None and not entry.measured]


def has_own_number(cell: Cell) -> bool:
    """Returns whether a paper publishes a number of its own method that the cell's verdicts compare with."""
    return any(entry.own for entry in published_numbers(cell))


@lru_cache(maxsize=1)
def _own_numbers(_state: tuple[object, ...]) -> dict[str, dict[tuple[str, ...], bool]]:
    """Returns the places of each paper's own numbers, and whether one run is enough for a verdict.

    One run is enough if a standard deviation is published or the number is a count of pairs.
    """
    by_paper: dict[str, dict[tuple[str, ...], bool]] = {}
    for number in everything():
        if number.own and number.mean is not None and not number.measured:
            places = by_paper.setdefault(number.paper, {})
            enough = number.std is not None or pairs_of(number.dataset, number.metric) is not None
            places[number.first_place] = places.get(number.first_place, False) or enough
    return by_paper
