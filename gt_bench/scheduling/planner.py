"""Missing runs, what they need and cost, and how they are grouped into jobs.

A run is a cell with one seed. Runs of minutes share a process with other runs of their cell, and trials with others of
their search (`jobs_of`). The order of runs:

- `longest_first`: a long run that starts late would leave the other cores idle at the end. Runs without a forecast come
  first, because they may be long.
- `cheapest_first`, under a time limit: the cells that the caller wants first, such as those for which a paper
  publishes a number of its own method, then the others; each by length, the shortest first. Runs without a forecast
  come last.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from gt_bench.config.cell_recipe import limited, settings_of
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.encodings.requests import requests
from gt_bench.experiment.cell import experiment_of
from gt_bench.forecasting.cache import ForecastCost, costs_of
from gt_bench.search.study import Trials, trials_left
from gt_bench.store.run_store import Store, StoreError, curves_reached
from gt_bench.store.shipped_files import read_result
from gt_bench.utils.errors import DatasetError

SHARED = 300.0  # seconds of runs that share a process: starting a process takes several
CellSeed = tuple[str, int | None]  # cell, seed (None: its search)


@dataclass(frozen=True)
class Missing:
    """A run that is missing in the store.

    Attributes:
        cell: of the run.
        seed: of the run.
        threads: of all its processes.
        processes: of the run.
        digest: its key; None until data, encodings and search are available.
        searched: False if the search of its cell comes first.
        done: part of the run that its checkpoint has, 0 to 1.
        cost: by forecast or records.
    """

    cell: Cell
    seed: int
    threads: int
    processes: int = 1
    digest: str | None = None
    searched: bool = True
    done: float = 0.0
    cost: ForecastCost = field(default_factory=ForecastCost)

    @property
    def run(self) -> CellSeed:
        """What identifies the run before its data are available."""
        return self.cell.cell, self.seed

    @property
    def seconds(self) -> float | None:
        """Remaining seconds."""
        return None if self.cost.seconds is None else self.cost.seconds * (1 - self.done)

    @property
    def memory_mib(self) -> float | None:
        """Memory of all its processes, each of which may use as much as a single process."""
        return None if self.cost.memory_mib is None else self.cost.memory_mib * self.processes


def longest_first(missing: Iterable[Missing]) -> list[Missing]:
    """Return runs in the order that leaves no core idle at the end; see the module's docstring."""
    return sorted(missing, key=lambda run: (run.seconds is not None, -(_with_search(run) or 0.0)))


def cheapest_first(missing: Iterable[Missing], is_first: Callable[[Cell], bool]) -> list[Missing]:
    """Return runs in the order for a time limit; see the module's docstring."""
    first = cache(is_first)
    return sorted(missing, key=lambda run: (not first(run.cell), run.seconds is None, _with_search(run) or 0.0))


def _with_search(run: Missing) -> float | None:
    """Return the remaining seconds of a run, and of the search that comes before it."""
    return None if run.seconds is None else run.seconds + (0.0 if run.searched else run.cost.search_seconds)


@dataclass(frozen=True)
class Job:
    """The work of one process.

    Attributes:
        kind: "data" (download and encode), "search" (trials of a cell) or "runs" (of a cell).
        name: of the dataset or cell.
        dataset: of the cell.
        seeds: of the runs.
        trials: most trials to run.
        number: of this worker of the search.
        after: the cell whose weights its runs start from.
        threads: of all its processes.
        processes: of a run.
        seconds: by forecast.
        memory_mib: of all its processes, by forecast.
        problem: why there is no forecast.
    """

    kind: str
    name: str
    dataset: str
    seeds: tuple[int, ...] = ()
    trials: int = 0
    number: int = 0
    after: str | None = None
    threads: int = 1
    processes: int = 1
    seconds: float | None = None
    memory_mib: float | None = None
    problem: str | None = None

    @property
    def runs(self) -> list[CellSeed]:
        """The runs that the job computes, or its search."""
        return [(self.name, seed) for seed in self.seeds or (None,)]

    def waits_for(self, other: "Job") -> bool:
        """Return whether the job needs the result of `other`."""
        if other.kind == "data":
            return self.kind != "data" and other.name == self.dataset
        if other.kind == "search":
            return self.kind == "runs" and other.name in (self.name, self.after)
        return self.kind == "runs" and other.name == self.after and bool(set(self.seeds) & set(other.seeds))

    def __str__(self) -> str:
        seeds = f"seed {', '.join(map(str, self.seeds))}"
        return f"{self.name} { {'data': 'data and encodings', 'search': 'search'}.get(self.kind, seeds) }"


@dataclass(frozen=True)
class Plan:
    """The missing runs and what they need.

    Attributes:
        missing: runs, the longest first.
        searches: cell -> trials, for cells that are searched first.
        data: datasets of which data or encodings are missing on disk.
        stored: number of runs in the store.
        problems: why cells are skipped, one line each.
        unwritten: jobs that write the results of cells whose runs are all stored, for example under another cell's
            name, which has the same runs.
    """

    missing: list[Missing]
    searches: Mapping[str, Trials]
    data: list[str]
    stored: int
    problems: list[str]
    unwritten: list[Job] = field(default_factory=list)


def plan(
    cells: Iterable[Cell],
    grid: Grid,
    store: Store | None = None,
    data: Path = Path("data"),
    at_once: int = 1,
    say: Callable[[str], None] = lambda line: None,
    measure: bool = True,
) -> Plan:
    """Return the missing runs of cells and of the cells that they start from, with costs.

    Args:
        cells: what to compute.
        grid: the grid.
        store: with the stored runs.
        data: folder of packed data and encodings.
        at_once: how many costs are measured at the same time.
        say: called for each line of output.
        measure: False to skip costs that are not known yet.
    """
    store = store or Store()
    by_key: dict[tuple[str, int], Missing] = {}  # by key, so that cells with equal recipes share their runs
    searches: dict[str, Trials] = {}
    unprepared: dict[str, None] = {}
    unwritten: list[Job] = []
    stored, problems = set(), []
    for cell in _with_sources(cells, grid):
        try:
            runs, kept = _of_cell(cell, grid, store, data)
            if runs and not runs[0].searched:
                searches[cell.cell] = trials_left(cell, grid, data, store.root)
        except (ValueError, StoreError, SyntaxError) as error:  # SyntaxError: in the file of a model
            problems.append(f"{cell.cell}: {error}")
            continue
        stored |= set(kept.values())
        if kept and not runs and not has_result(cell, kept.values()):
            unwritten.append(Job("runs", cell.cell, cell.dataset, seeds=tuple(kept)))
        for run in runs:
            by_key.setdefault((run.digest or cell.cell, run.seed), run)
        if runs and not is_prepared(cell, data):
            unprepared[cell.dataset] = None
    wanted = list(dict.fromkeys(run.cell for run in by_key.values()))
    costs = dict(
        zip(wanted, costs_of([(cell, grid) for cell in wanted], store.root, data, at_once, measure, say), strict=True)
    )
    missing = longest_first(replace(run, cost=costs[run.cell]) for run in by_key.values())
    return Plan(missing, searches, list(unprepared), len(stored), list(dict.fromkeys(problems)), unwritten)


def jobs_of(plan: Plan, missing: Iterable[Missing] | None = None, shared: float = SHARED) -> list[Job]:
    """Return the jobs of a plan in order; the data and the search that a job needs come before it.

    Args:
        plan: the plan.
        missing: some of its runs, in order; by default all.
        shared: seconds up to which runs of a cell share a job.
    """
    jobs: dict[tuple[object, ...], Job] = {}  # in order
    open_jobs: dict[str, tuple[object, ...]] = {}
    for run in plan.missing if missing is None else missing:
        cell = run.cell
        if cell.dataset in plan.data:
            jobs.setdefault(("data", cell.dataset), Job("data", cell.dataset, cell.dataset))
        if cell.cell in plan.searches and ("search", cell.cell, 0) not in jobs:
            jobs |= {
                ("search", cell.cell, job.number): job for job in _of_search(run, plan.searches[cell.cell], shared)
            }
        key, took = open_jobs.get(cell.cell), run.seconds
        together = None if key is None or took is None else (jobs[key].seconds or 0) + took
        if key is not None and together is not None and together <= shared:
            jobs[key] = replace(jobs[key], seeds=(*jobs[key].seeds, run.seed), seconds=together)
            continue
        key = (cell.cell, run.seed)
        jobs[key] = _job("runs", run, took, seeds=(run.seed,))
        if took is not None:
            open_jobs[cell.cell] = key
    return list(jobs.values())


def _of_search(run: Missing, trials: Trials, shared: float) -> list[Job]:
    """Return jobs that share the remaining trials equally; one job if none is left, to write the result."""
    each = run.cost.search_seconds / trials.asked
    most = max(1, int(shared / each)) if each else 1
    sizes = [min(most, trials.left - first) for first in range(0, trials.left, most)] or [0]
    return [
        _job("search", run, each * sizes[0] or None, trials=size, number=number) for number, size in enumerate(sizes)
    ]


def _job(
    kind: str, run: Missing, seconds: float | None, seeds: tuple[int, ...] = (), trials: int = 0, number: int = 0
) -> Job:
    cell, cost = run.cell, run.cost
    return Job(
        kind, cell.cell, cell.dataset, seeds=seeds, trials=trials, number=number, after=cell.after, threads=run.threads,
        processes=run.processes, seconds=seconds, memory_mib=run.memory_mib, problem=cost.problem,
    )  # fmt: skip


def _with_sources(cells: Iterable[Cell], grid: Grid) -> list[Cell]:
    """Return cells, each after the cell that it starts from."""
    ordered: dict[Cell, None] = {}

    def add(cell: Cell) -> None:
        if cell.after is not None:
            add(grid.find(cell.after))
        ordered[cell] = None

    for cell in cells:
        add(cell)
    return list(ordered)


def _of_cell(cell: Cell, grid: Grid, store: Store, data: Path) -> tuple[list[Missing], dict[int, str]]:
    """Return (missing runs of the cell, {seed: digest} of its stored runs)."""
    from gt_bench.data.prepare import open_unchanged

    asked = limited(load_recipe(cell.recipe_path), grid, cell)[0]
    every = [Missing(cell, seed, asked.cores, asked.processes) for seed in asked.seeds]
    try:
        settings = settings_of(cell)
    except RecipeError:
        if cell.settings != "tuned":
            raise
        return [replace(run, searched=False) for run in every], {}
    recipe = limited(settings, grid, cell)[0]
    try:
        open_unchanged(data / "packed" / cell.dataset)
        experiment = experiment_of(cell, recipe, grid, store, data)
        digests = {seed: experiment.digest(seed) for seed in recipe.seeds}
        kept = {seed: digests[seed] for seed in recipe.seeds if experiment.settled(seed) is not None}
    except DatasetError:  # data or encodings are not available yet, or have changed
        return every, {}
    missing = [run for run in every if run.seed not in kept]
    return [
        replace(run, digest=digests[run.seed], done=part_done(store, digests[run.seed], recipe)) for run in missing
    ], kept


def has_result(cell: Cell, digests: Collection[str]) -> bool:
    """Return whether results/CELL.json lists these runs."""
    try:
        result = read_result(Path("results", f"{cell.cell}.json"), cell.cell)
    except StoreError:  # damaged: training writes it again
        return False
    return result is not None and set(digests) <= set(result.runs)


def part_done(store: Store, digest: str, recipe: Recipe) -> float:
    """Return the part of a run that its checkpoint has, 0 to 1; 0 if there is no valid checkpoint."""
    return min(1.0, len(curves_reached(store.folder(digest)).get("epoch", ())) / recipe.reports)


def is_prepared(cell: Cell, data: Path) -> bool:
    """Return whether the dataset and all encodings that a run or a trial of the cell may need are on disk."""
    from gt_bench.data.prepare import open_unchanged
    from gt_bench.encodings.cache import EncodedDataset

    try:
        packed = open_unchanged(data / "packed" / cell.dataset)
        for name, arguments in requests(load_recipe(cell.recipe_path)):
            EncodedDataset(packed, data / "encodings" / cell.dataset, {name: arguments})
    except DatasetError:
        return False
    return True
