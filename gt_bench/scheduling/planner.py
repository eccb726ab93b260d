"""Missing runs, their needs and costs, and the order in which to compute them.

A run is a cell with one seed. The value of the n-th run of a cell, in the order of the seeds of its recipe, is

    value(n) = N / (n (n + 1))        N: the published numbers that the cell's verdicts compare with, without costs

All runs of a cell together are worth N: the first is worth N/2, the first three 3N/4, the tenth N/110. The order is:

  1. by the entry of the plan;
  2. cells for which a paper publishes a number of its own method, then those it compares with, then all others;
  3. by value per remaining hour, highest first. A run with a checkpoint has fewer remaining hours; a run whose cell
     must be searched first has those of the search in addition. Runs without a forecast come last;
  4. by seed.

Without a time limit everything is computed, and `longest_first` orders the jobs of an entry by length instead. Runs of
minutes share a process with other runs of their cell, and trials with others of their search (`jobs_of`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gt_bench.config.grid import Cell, Grid, Limits
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.cell import experiment_of, limited, settings_of
from gt_bench.forecasting.cache import Cost, costs_of
from gt_bench.scheduling.plan_file import Entry, limited_grid
from gt_bench.search.optimize import Trials, trials_left
from gt_bench.store.archive import read_result
from gt_bench.store.run_store import Store, StoreError, curves_reached
from gt_bench.utils.errors import DatasetError

SHARED = 300.0  # seconds of runs that share a process: starting a process takes several
OWN, QUOTED, UNPRINTED = range(3)  # ranks of cells; see `printed`
Run = tuple[str, Limits, int | None]  # cell, its limits, seed (None: its search)


@dataclass(frozen=True)
class Missing:
    """A run that is missing in the store.

    Attributes:
        cell: of the run.
        limits: of the entry.
        entry: number of the entry of the plan.
        seed: of the run.
        place: n of the module's docstring, from 1.
        rank: OWN, QUOTED or UNPRINTED.
        numbers: N of the module's docstring.
        threads: of all its processes.
        processes: of the run.
        digest: its key; None until data, encodings and search are available.
        searched: False if the search of its cell comes first.
        done: part of the run that its checkpoint has, 0 to 1.
        cost: by forecast or records.
    """

    cell: Cell
    limits: Limits
    entry: int
    seed: int
    place: int
    rank: int
    numbers: int
    threads: int
    processes: int = 1
    digest: str | None = None
    searched: bool = True
    done: float = 0.0
    cost: Cost = field(default_factory=Cost)

    @property
    def run(self) -> Run:
        """What identifies the run before its data are available."""
        return self.cell.cell, self.limits, self.seed

    @property
    def value(self) -> float:
        """N (1/n - 1/(n + 1)): how much the n-th run narrows the mean, times the published numbers."""
        return self.numbers / (self.place * (self.place + 1))

    @property
    def seconds(self) -> float | None:
        """Remaining seconds."""
        return None if self.cost.seconds is None else self.cost.seconds * (1 - self.done)

    @property
    def memory_mib(self) -> float | None:
        """Memory of all its processes, each of which may use as much as a single process."""
        return None if self.cost.memory_mib is None else self.cost.memory_mib * self.processes

    @property
    def order(self) -> tuple[int, int, float, int]:
        """Sort key: entry, rank, value per hour, place."""
        ahead = 0.0 if self.searched else self.cost.search_seconds
        per_hour = -1.0 if self.seconds is None else self.value / max(self.seconds + ahead, 1e-3) * 3600
        return self.entry, self.rank, -per_hour, self.place


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
        limits: of the entry.
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
    limits: Limits = field(default_factory=Limits)
    after: str | None = None
    threads: int = 1
    processes: int = 1
    seconds: float | None = None
    memory_mib: float | None = None
    problem: str | None = None

    @property
    def runs(self) -> list[Run]:
        """The runs that the job computes, or its search."""
        return [(self.name, self.limits, seed) for seed in self.seeds or (None,)]

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
        missing: runs in order.
        searches: cell -> trials, for cells that are searched first.
        data: datasets of which data or encodings are missing on disk.
        stored: number of runs in the store.
        begun: cells with stored runs, and their limits.
        unwritten: jobs that write the results of cells whose runs are all stored, for example under another cell's
            name, which has the same runs.
        problems: why cells are skipped, one line each.
    """

    missing: list[Missing]
    searches: Mapping[str, Trials]
    data: list[str]
    stored: int
    begun: dict[Cell, Limits]
    problems: list[str]
    unwritten: list[Job] = field(default_factory=list)


def plan(
    entries: Sequence[Entry],
    grid: Grid,
    store: Store | None = None,
    data: Path = Path("data"),
    at_once: int = 1,
    say: Callable[[str], None] = lambda line: None,
    measure: bool = True,
) -> Plan:
    """Return the missing runs of the entries, with costs, in order.

    A run of two entries belongs to the first. A cell that another one starts from comes before it.

    Args:
        entries: what to compute.
        grid: the grid.
        store: with the stored runs.
        data: folder of packed data and encodings.
        at_once: how many costs are measured at the same time.
        say: called for each line of output.
        measure: False to skip costs that are not known yet.
    """
    store = store or Store()
    found: dict[tuple[str, str, int], Missing] = {}
    searches: dict[str, Trials] = {}
    unprepared: dict[str, None] = {}
    begun: dict[Cell, Limits] = {}
    unwritten: dict[str, Job] = {}
    stored, problems = set(), []
    for number, entry in enumerate(entries):
        for cell, limits in _with_sources(entry, grid):
            try:
                runs, kept = _of_cell(cell, limits, number, grid, store, data)
                if runs and not runs[0].searched and cell.cell not in searches:
                    searches[cell.cell] = trials_left(cell, limited_grid(grid, cell, limits), data, store.root)
            except (ValueError, StoreError, SyntaxError) as error:  # SyntaxError: in the file of a model
                problems.append(f"{cell.cell}: {error}")
                continue
            stored |= set(kept.values())
            if kept:
                begun[cell] = limits
                if not runs and not has_result(cell, kept.values()):
                    seeds = tuple(kept)
                    unwritten[cell.cell] = Job("runs", cell.cell, cell.dataset, seeds=seeds, limits=limits)
            for run in runs:
                found.setdefault((run.cell.cell, run.digest or _cut(run), run.seed), run)
            if runs and not is_prepared(cell, data):
                unprepared[cell.dataset] = None
    missing = list(found.values())
    wanted = {(run.cell, _cut(run)): limited_grid(grid, run.cell, run.limits) for run in missing}
    given = costs_of([(cell, own) for (cell, _), own in wanted.items()], store.root, data, at_once, measure, say)
    costs = dict(zip(wanted, given, strict=True))
    missing = [replace(run, cost=costs[run.cell, _cut(run)]) for run in missing]
    missing.sort(key=lambda run: run.order)
    found_problems = list(dict.fromkeys(problems))
    return Plan(missing, searches, list(unprepared), len(stored), begun, found_problems, list(unwritten.values()))


def _cut(run: Missing) -> str:
    """Return the limits that change the run itself, as JSON."""
    return run.limits.model_dump_json(exclude={"seeds"})


def jobs_of(plan: Plan, missing: Iterable[Missing] | None = None, shared: float = SHARED) -> list[Job]:
    """Return the jobs of a plan in order; the data and the search that a job needs come before it.

    Args:
        plan: the plan.
        missing: some of its runs; by default all.
        shared: seconds up to which runs of a cell share a job.
    """
    jobs: dict[tuple[object, ...], Job] = {}  # in order
    open_jobs: dict[tuple[str, str], tuple[object, ...]] = {}
    for run in plan.missing if missing is None else missing:
        cell, kind = run.cell, (run.cell.cell, run.limits.model_dump_json())
        if cell.dataset in plan.data:
            jobs.setdefault(("data", cell.dataset), Job("data", cell.dataset, cell.dataset))
        if cell.cell in plan.searches and ("search", cell.cell, 0) not in jobs:
            jobs |= {
                ("search", cell.cell, job.number): job for job in _of_search(run, plan.searches[cell.cell], shared)
            }
        key, took = open_jobs.get(kind), run.seconds
        together = None if key is None or took is None else (jobs[key].seconds or 0) + took
        if key is not None and together is not None and together <= shared:
            jobs[key] = replace(jobs[key], seeds=(*jobs[key].seeds, run.seed), seconds=together)
            continue
        key = (*kind, run.seed)
        jobs[key] = _job("runs", run, took, seeds=(run.seed,))
        if took is not None:
            open_jobs[kind] = key
    return list(jobs.values())


def longest_first(jobs: Sequence[Job], entries: Mapping[Run, int]) -> list[Job]:
    """Return jobs by entry of the plan, then by length, so that no core is idle at the end.

    Jobs without a forecast come first, because they may be long. Data and searches come with the first job that needs
    them.

    Args:
        jobs: as `jobs_of` returns them.
        entries: number of the entry of each run.
    """
    keys = {
        job: (entries[job.runs[0]], job.seconds is not None, -(job.seconds or 0.0))
        for job in jobs
        if job.kind == "runs"
    }

    def key(job: Job) -> tuple[int, bool, float]:
        return keys.get(job) or min((keys[other] for other in keys if other.waits_for(job)), default=(0, False, 0.0))

    return sorted(jobs, key=key)  # stable


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
        kind, cell.cell, cell.dataset, seeds=seeds, trials=trials, number=number, limits=run.limits, after=cell.after,
        threads=run.threads, processes=run.processes, seconds=seconds, memory_mib=run.memory_mib, problem=cost.problem,
    )  # fmt: skip


def _with_sources(entry: Entry, grid: Grid) -> list[tuple[Cell, Limits]]:
    """Return the cells of an entry and their limits, each after the cell it starts from, which only limits seeds."""
    found: dict[tuple[Cell, Limits], None] = {}

    def add(cell: Cell, limits: Limits) -> None:
        if cell.after is not None:
            add(grid.find(cell.after), Limits(seeds=limits.seeds))
        found[cell, limits] = None

    for cell in entry.cells:
        add(cell, entry.limits)
    return list(found)


def _of_cell(
    cell: Cell, limits: Limits, entry: int, grid: Grid, store: Store, data: Path
) -> tuple[list[Missing], dict[int, str]]:
    """Return (missing runs of the cell, {seed: digest} of its stored runs)."""
    from gt_bench.data.prepare import open_unchanged

    own = limited_grid(grid, cell, limits)
    asked = limited(load_recipe(cell.recipe_path), own, cell)[0]
    rank, numbers = printed(cell)
    every = [
        Missing(cell, limits, entry, seed, place, rank, numbers, asked.cores, asked.processes)
        for place, seed in enumerate(asked.seeds, 1)
    ]
    if _is_unsearched(cell):
        return [replace(run, searched=False) for run in every], {}
    recipe = limited(settings_of(cell), own, cell)[0]
    try:
        open_unchanged(data / "packed" / cell.dataset)
        experiment = experiment_of(cell, recipe, own, store, data)
        digests = {seed: experiment.digest(seed) for seed in recipe.seeds}
        kept = {seed: digests[seed] for seed in recipe.seeds if experiment.settled(seed) is not None}
    except DatasetError:  # data or encodings are not available yet, or have changed
        return every, {}
    missing = [run for run in every if run.seed not in kept]
    missing = [
        replace(run, digest=digests[run.seed], done=part_done(store, digests[run.seed], recipe)) for run in missing
    ]
    return missing, kept


def has_result(cell: Cell, digests: Collection[str]) -> bool:
    """Return whether results/CELL.json lists these runs."""
    try:
        result = read_result(Path("results", f"{cell.cell}.json"), cell.cell)
    except StoreError:  # damaged: training writes it again
        return False
    return result is not None and set(digests) <= set(result["runs"])


def part_done(store: Store, digest: str, recipe: Recipe) -> float:
    """Return the part of a run that its checkpoint has, 0 to 1; 0 if there is no valid checkpoint."""
    return min(1.0, len(curves_reached(store.folder(digest)).get("epoch", ())) / recipe.reports)


def printed(cell: Cell) -> tuple[int, int]:
    """Return (rank, number of published numbers that the cell's verdicts compare with), without costs.

    If a paper publishes numbers of its own method, only these count.
    """
    from gt_bench.papers.coverage import published_numbers

    judged = published_numbers(cell)
    own = [entry for entry in judged if entry.own]
    return OWN if own else QUOTED if judged else UNPRINTED, len(own or judged)


def _is_unsearched(cell: Cell) -> bool:
    if cell.settings != "tuned":
        return False
    try:
        settings_of(cell)
    except RecipeError:
        return True
    return False


def is_prepared(cell: Cell, data: Path) -> bool:
    """Return whether the dataset and all encodings that a run or a trial of the cell may need are on disk."""
    from gt_bench.data.prepare import open_unchanged
    from gt_bench.encodings.cache import EncodedDataset
    from gt_bench.encodings.encode_dataset import requests

    try:
        packed = open_unchanged(data / "packed" / cell.dataset)
        for name, arguments in requests(load_recipe(cell.recipe_path)):
            EncodedDataset(packed, data / "encodings" / cell.dataset, {name: arguments})
    except DatasetError:
        return False
    return True
