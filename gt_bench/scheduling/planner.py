"""Which runs are missing, what each needs and costs, and in which order they are worth their hours.

The unit is one run: a cell with one seed. The value of the n-th run of a cell, in the order of its recipe's seeds, is

    value(n) = N / (n (n + 1))        N: the printed numbers that the cell's verdicts are about, costs left out

and all runs together are worth N: the first brings half of what a cell can tell, the first three bring three quarters, the tenth 1/110. Runs are
taken in this order:

  1. by the entry of the plan that they belong to;
  2. first cells whose paper prints the number as its own method's, then what it compares with, last what nobody prints;
  3. by value per hour that is still to be computed, the highest first: a run that was begun has fewer of them, one whose cell is to be searched first
     has those of the search besides. A run without a forecast comes last;
  4. the earlier seed first.

What takes minutes shares a process with other runs of its cell, or other trials of its search (`jobs_of`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gt_bench.config.grid import Cell, Grid, Limits
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.cell import experiment_of, limited, settings_of
from gt_bench.forecasting.cache import Cost, costs_of
from gt_bench.scheduling.plan_file import Entry, limited_grid
from gt_bench.search.optimize import Trials, trials_left
from gt_bench.store.run_store import Store, StoreError, curves_reached
from gt_bench.utils.errors import DatasetError

SHARED = 300.0  # seconds of runs that share a process: starting one takes several
OWN, QUOTED, UNPRINTED = range(3)  # ranks of cells


@dataclass(frozen=True)
class Missing:
    """A run that the store lacks. `place`: its n, from 1; `done`: the part of it that its checkpoint has; `digest` None: not known before
    data, encodings or the search are there; `searched`: False where its cell's search comes first."""

    cell: Cell
    limits: Limits
    entry: int
    seed: int
    place: int
    rank: int
    numbers: int
    threads: int  # of all its processes
    processes: int = 1
    digest: str | None = None
    searched: bool = True
    done: float = 0.0
    cost: Cost = field(default_factory=Cost)

    @property
    def value(self) -> float:
        """Printed numbers that it serves, by how much the n-th run narrows their mean: 1/n - 1/(n + 1)."""
        return self.numbers / (self.place * (self.place + 1))

    @property
    def seconds(self) -> float | None:
        """That are left of it."""
        return None if self.cost.seconds is None else self.cost.seconds * (1 - self.done)

    @property
    def memory_mib(self) -> float | None:
        """Of all its processes, each of which may take as much as one alone."""
        return None if self.cost.memory_mib is None else self.cost.memory_mib * self.processes

    @property
    def order(self) -> tuple[int, int, float, int]:
        """Sorts by the plan's entry and rank, then by value per hour."""
        ahead = 0.0 if self.searched else self.cost.search_seconds
        per_hour = -1.0 if self.seconds is None else self.value / max(self.seconds + ahead, 1e-3) * 3600
        return self.entry, self.rank, -per_hour, self.place


@dataclass(frozen=True)
class Job:
    """What one process does. `kind`: "data" (download and encode `name`, a dataset), "search" (at most so many `trials` of the cell `name`, as the
    worker `number`) or "runs" (of it, with `seeds`). `problem`: why there is no forecast."""

    kind: str
    name: str
    dataset: str
    seeds: tuple[int, ...] = ()
    trials: int = 0
    number: int = 0
    limits: Limits = field(default_factory=Limits)
    after: str | None = None  # the cell whose weights its runs start from
    threads: int = 1  # of all its processes, as is the memory
    processes: int = 1
    seconds: float | None = None
    memory_mib: float | None = None
    problem: str | None = None

    def waits_for(self, other: "Job") -> bool:
        """Whether it needs what `other` makes."""
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
    """`missing` in order; `searches`: the trials of cells that are searched first; `data`: datasets that lack something on disk; `stored`: how many runs
    the store has, and `begun` the cells that they are of, with their limits; `problems`: what keeps a cell out, one line each."""

    missing: list[Missing]
    searches: Mapping[str, Trials]
    data: list[str]
    stored: int
    begun: dict[Cell, Limits]
    problems: list[str]


def plan(
    entries: Sequence[Entry],
    grid: Grid,
    store: Store | None = None,
    data: Path = Path("data"),
    at_once: int = 1,
    say: Callable[[str], None] = lambda line: None,
    measure: bool = True,
) -> Plan:
    """What is missing of the plan's entries, with costs, in order. A run that two entries ask for belongs to the first. What a cell starts from
    is added before it. `measure`: False to go without the costs that are not known yet; `at_once`: how many are measured at once."""
    store = store or Store()
    found: dict[tuple[str, str, int], Missing] = {}
    searches: dict[str, Trials] = {}
    lacking: dict[str, None] = {}
    begun: dict[Cell, Limits] = {}
    stored, problems = set(), []
    for number, entry in enumerate(entries):
        for cell, limits in _with_sources(entry, grid):
            try:
                runs, kept = _of_cell(cell, limits, number, grid, store, data)
                if runs and not runs[0].searched and cell.cell not in searches:
                    searches[cell.cell] = trials_left(cell, limited_grid(grid, cell, limits), data, store.root)
            except (ValueError, StoreError, SyntaxError) as error:  # the last: of the model's file
                problems.append(f"{cell.cell}: {error}")
                continue
            stored |= kept
            if kept:
                begun[cell] = limits
            for run in runs:
                found.setdefault((run.cell.cell, run.digest or _cut(run), run.seed), run)
            if runs and not is_prepared(cell, data):
                lacking[cell.dataset] = None
    missing = list(found.values())
    wanted = {(run.cell, _cut(run)): limited_grid(grid, run.cell, run.limits) for run in missing}
    given = costs_of([(cell, own) for (cell, _), own in wanted.items()], store.root, data, at_once, measure, say)
    costs = dict(zip(wanted, given, strict=True))
    missing = [replace(run, cost=costs[run.cell, _cut(run)]) for run in missing]
    missing.sort(key=lambda run: run.order)
    return Plan(missing, searches, list(lacking), len(stored), begun, list(dict.fromkeys(problems)))


def _cut(run: Missing) -> str:
    """What is cut of the run itself."""
    return run.limits.model_dump_json(exclude={"seeds"})


def jobs_of(plan: Plan, missing: Iterable[Missing] | None = None, shared: float = SHARED) -> list[Job]:
    """The plan as jobs in its order, each in front of which stand the data and the search that it needs. Runs of one cell share a job up to
    `shared` seconds. `missing`: some of the plan's."""
    jobs: dict[tuple[object, ...], Job] = {}  # in order; the key tells one from another
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


def _of_search(run: Missing, trials: Trials, shared: float) -> list[Job]:
    """Jobs that take the trials which are left, in equal parts; one where all are done, since somebody has to write what was found."""
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
        kind, cell.cell, cell.dataset, seconds=seconds, memory_mib=run.memory_mib, limits=run.limits, after=cell.after, threads=run.threads,
        processes=run.processes, problem=cost.problem, seeds=seeds, trials=trials, number=number,
    )  # fmt: skip


def _with_sources(entry: Entry, grid: Grid) -> list[tuple[Cell, Limits]]:
    """The entry's cells with what is cut of them, each after the cell that it starts from, of which only seeds are cut."""
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
) -> tuple[list[Missing], set[str]]:
    """(runs of the cell that are missing, digests of those that are not)."""
    own = limited_grid(grid, cell, limits)
    asked = limited(load_recipe(cell.recipe_path), own, cell)[0]
    rank, numbers = printed(cell)
    every = [
        Missing(cell, limits, entry, seed, place, rank, numbers, asked.cores, asked.processes)
        for place, seed in enumerate(asked.seeds, 1)
    ]
    if _is_unsearched(cell):
        return [replace(run, searched=False) for run in every], set()
    recipe = limited(settings_of(cell), own, cell)[0]
    try:
        experiment = experiment_of(cell, recipe, own, store, data)
        digests = {seed: experiment.digest(seed) for seed in recipe.seeds}
        kept = {seed for seed in recipe.seeds if experiment.settled(seed) is not None}
    except DatasetError:  # data or encodings are not there yet
        return every, set()
    missing = [run for run in every if run.seed not in kept]
    missing = [
        replace(run, digest=digests[run.seed], done=part_done(store, digests[run.seed], recipe)) for run in missing
    ]
    return missing, {digests[seed] for seed in kept}


def part_done(store: Store, digest: str, recipe: Recipe) -> float:
    """The part of a run that its checkpoint has; 0 where there is none that can be read."""
    return min(1.0, len(curves_reached(store.folder(digest)).get("epoch", ())) / recipe.reports)


def printed(cell: Cell) -> tuple[int, int]:
    """(rank, how many printed numbers the cell's verdicts are about): the paper's own where there are any. Costs are no numbers here."""
    from gt_bench.papers.coverage import printed_numbers

    judged = printed_numbers(cell)
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
    """Whether the dataset is here, and every encoding that a run or a trial of the cell may need."""
    from gt_bench.data.packed import PackedDataset
    from gt_bench.encodings.cache import EncodedDataset
    from gt_bench.encodings.encode_dataset import requests

    try:
        packed = PackedDataset.open(data / "packed" / cell.dataset)
        for name, arguments in requests(load_recipe(cell.recipe_path)):
            EncodedDataset(packed, data / "encodings" / cell.dataset, {name: arguments})
    except DatasetError:
        return False
    return True
