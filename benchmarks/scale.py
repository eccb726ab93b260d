"""How far it goes, on paper: what the whole grid costs on a CPU and on a GPU that is not at hand, and how it spreads over several of them.

    python benchmarks/scale.py grid [CELL ...] [--seconds S]      # counts cells that docs/scale.json lacks
    python benchmarks/scale.py page                               # prints what they come to; the sweep is simulated over 1, 8 and 64
    python benchmarks/scale.py --write                            # docs/scale.md, from docs/scale.json

What a run computes and moves is counted as `gt-bench forecast` counts its seconds (stages/forecast.py): a step and an evaluated batch of each phase
are taken by the definitions in plain torch, on a few random graphs of the dataset's size, with every operation counted (benchmarks/counts.py); the forecast's
own arithmetic makes a whole run of them. The rates of a device turn counts into hours. A CPU's rates are corrected by what shipped records took.

What is measured of store and tracking is in benchmarks/scale_store.py, and goes into the same file.
"""

import argparse
import contextlib
import heapq
import json
import math
import multiprocessing
import os
import re
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.cells import ROOT, number, write_between
from benchmarks.counts import Counts
from stages import timing
from stages.cells import limited
from stages.files import write_json
from stages.params import Cell, Grid, load_grid
from stages.recipe import load_recipe
from stages.search import trials_left
from stages.sweep.costs import Cost
from stages.sweep.plan_file import Entry
from stages.sweep.planner import Job, jobs_of, plan, printed
from stages.sweep.sweep import SHARED
from stages.texts import hours

KEPT, PAGE = ROOT / "docs" / "scale.json", ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- benchmarks/scale.py --write -->", "<!-- end -->"
NODES = 400  # of one graph in place of a larger one
GRAPHS = 12  # in place of a dataset
GIB, SECONDS = 8, 120  # of memory and of the processor that a cell may take here
PARTS = ("products", "product_bytes", "optimiser_bytes", "bytes", "calls")
WORKERS = (1, 8, 64)
LAUNCHES = tuple(1e-6 * one for one in (1, 2, 3, 5, 7, 10, 15, 20, 30, 50))  # seconds of an operation on a CPU, of which records choose one
WARM = "embedded/torus-colours/gcn"  # its imports are those of most cells
START = 20.0  # assumed: seconds of a job before its first step (a process, imports, data, compiled kernels)


# -- what a run of a cell costs --------------------------------------------------------------------------------------------------------


class OneBatch(timing.Sample):
    """One batch of each part an epoch: the first epoch warms up, the second one counts."""

    def _until(self, what: str, batches: Iterator[Any]) -> Iterator[Any]:
        first = next(batches, None)
        self.taken[what], self.whole[what] = 1, True
        if first is not None:
            yield first
            self.whole[what] = next(batches, None) is None


class Counting(timing.Stopwatch):
    """What each stretch of work computes and moves, in place of its seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, list[Counts]] = {"train": [], "eval": [], "test": []}

    @contextlib.contextmanager
    def timing(self, what: str) -> Iterator[None]:
        with Counts() as counts:
            yield
        self.counts[what].append(counts)
        self.stretches[what].append(float(counts.calls))


def run_of(experiment: Any, scale: float, chunked: bool = False) -> dict[str, float]:
    """What one run computes and moves by the definitions, by the forecast's arithmetic."""
    from gt_models.kernels import use

    trials: list[timing.Trial] = []
    trial = timing._trial

    def once(*arguments: Any) -> timing.Trial:
        trials.append(trial(*arguments))
        return trials[-1]

    with contextlib.ExitStack() as stack:
        for name, other in (("Stopwatch", Counting), ("Sample", OneBatch), ("_trial", once)):
            stack.enter_context(mock.patch.object(timing, name, other))
        # where all triples of a graph are too many, a few rows of them at a time
        stack.enter_context(use("reference", triangular_attention="chunked") if chunked else use("reference"))
        FORECAST(experiment, scale, 0.0)
    (counted,) = trials
    found = {}
    for part in PARTS:
        watch = timing.Stopwatch()
        watch.stretches = {what: [float(getattr(counts, part)) for counts in of] for what, of in counted.watch.counts.items()}
        replay = timing.Trial(watch, counted.sample, counted.outcome)
        with mock.patch.object(timing, "_trial", lambda *_, replay=replay: replay):
            found[part] = FORECAST(experiment, scale, 0.0)[0]
    found["bytes"] -= found["optimiser_bytes"] * 4 / 7  # which counts what the optimiser's fused calls write in place, too
    share = 1.0
    if counted.sample.by_node:  # a larger graph has no more steps, only longer ones
        share = 1 / scale
    elif experiment.recipe.batch.graphs and experiment.header.num_splits and not experiment.task.runner:  # nor has a batch with more graphs
        share = min(1.0, len(experiment.packed.split("train", 0)) / experiment.recipe.batch.graphs)
    return found | {part: share * found[part] for part in ("calls", "optimiser_bytes")}


FORECAST = timing.seconds_of


def cost_of(cell: Cell, grid: Grid, data: Path, chunked: bool = False) -> dict[str, Any]:
    """What docs/scale.json keeps of a cell; `problem` where there is no forecast."""
    from stages import forecast as room
    from stages.datasets import miniature
    from stages.datasets.catalog import get_spec

    found: list[dict[str, float]] = []

    def counted(experiment: Any, scale: float, budget: float) -> tuple[float, float, int, int]:
        found.append(run_of(experiment, scale, chunked))
        return 1.0, 1.0, 1, experiment.recipe.reports  # of a trial, too: the search's seconds are then its runs

    with (
        mock.patch.object(timing, "seconds_of", counted),
        mock.patch.object(miniature, "LARGEST_GRAPH", NODES),
        mock.patch.object(room, "LIFE_SIZE", GRAPHS),
        mock.patch.object(room, "_ends", lambda recipe, cell, grid: [limited(recipe, grid, cell)[0]]),
    ):
        # BREC is many sets of graphs, of which a recipe takes some
        one = room.forecast_cell(cell, grid, data if get_spec(cell.dataset).task == "brec" else Path("nowhere"))
    if one.problem is not None:
        return {"problem": " ".join(one.problem.split())}
    return {"seeds": one.seeds, "search_runs": round(one.search_seconds)} | found[0]


def measure(names: Sequence[str], data: Path, seconds: float, again: bool = False) -> None:
    """Adds cells to docs/scale.json until so many seconds of the processor are spent, each in a process forked from this one, within GIB and SECONDS."""
    grid = load_grid()
    cost_of(grid.find(WARM), grid, data)  # imports what cells need, once, before the processes are forked
    for cell in spread(grid.chosen(names)):
        if sum(os.times()[:4]) > seconds:
            return
        if cell.cell in read()["cells"] and not again:
            continue
        found = _bounded(cell, grid, data)
        if found.get("problem", "").startswith("oom"):
            chunked = _bounded(cell, grid, data, chunked=True)
            found = found if "problem" in chunked else chunked
        kept = read()  # several of these may run at once
        write_json(KEPT, kept | {"cells": kept["cells"] | {cell.cell: found}})
        print(f"{cell.cell}: {found.get('problem') or number(found['calls']) + ' kernels'}", flush=True)


def spread(cells: Sequence[Cell]) -> list[Cell]:
    """One of each suite and dataset, then a second of each, and so on; the paper's own model first."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.suite, cell.dataset), []).append(cell)
    ordered = [sorted(group, key=lambda cell: printed(cell)[0]) for group in groups.values()]
    return [cell for turn in zip_longest(*ordered) for cell in turn if cell is not None]


def _bounded(cell: Cell, grid: Grid, data: Path, chunked: bool = False) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    near, far = context.Pipe(duplex=False)

    def work() -> None:
        with mock.patch("stages.runs.bound_memory"):  # a bound of its own
            resource.setrlimit(resource.RLIMIT_DATA, (GIB * 2**30, GIB * 2**30))
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            try:
                far.send(cost_of(cell, grid, data, chunked))
            except MemoryError:
                far.send({"problem": f"it takes more than {GIB} GiB by the definitions"})

    process = context.Process(target=work)
    process.start()
    far.close()
    try:
        found = near.recv()
    except EOFError:
        process.join()
        limit = process.exitcode in (-signal.SIGKILL, -signal.SIGXCPU)
        found = {"problem": f"its steps took more than {SECONDS} s" if limit else f"its process ended with status {process.exitcode}"}
    process.join()
    return found


def filled(kept: dict[str, Any], grid: Grid) -> dict[str, Any]:
    """The cells, and those without a count by one of the same model, of the same dataset where there is one, or else of the same dataset: its kernels
    times the steps, everything else times the nodes that the cell goes through more often. `estimated` names that cell."""
    known = {cell.cell: cell for cell in grid.cells.values() if "calls" in kept.get(cell.cell, {})}
    found = dict(kept)
    for cell in grid.cells.values():
        if cell.cell not in known and (donor := donor_of(cell, list(known.values()))):
            recipe = load_recipe(cell.recipe_path)
            searched = trials_left(cell, grid, Path("nowhere")).asked * len(recipe.search.seeds) if recipe.search else 0
            counts = {"seeds": len(recipe.seeds), "search_runs": searched, "estimated": donor.cell}
            found[cell.cell] = scaled(kept[donor.cell], donor, cell) | counts
    return found


def donor_of(cell: Cell, known: Sequence[Cell]) -> Cell | None:
    """The cell that counts for one without a count; None where no size of the cell is known, or nothing is like it."""
    if extent(cell) is None:
        return None

    def unlike(other: Cell) -> tuple[bool, bool, bool]:
        return model_of(other) != model_of(cell), other.dataset != cell.dataset, other.suite != cell.suite

    near = [other for other in known if other.cell != cell.cell and extent(other) is not None and not all(unlike(other)[:2])]
    return min(near, key=unlike, default=None)


def scaled(run: dict[str, float], donor: Cell, cell: Cell) -> dict[str, float]:
    (steps, nodes), (other_steps, other_nodes) = extent(cell), extent(donor)
    per_step = {part: run[part] * steps / other_steps for part in ("calls", "optimiser_bytes")}
    return {part: per_step.get(part, run[part] * nodes / other_nodes) for part in PARTS}


@cache
def model_of(cell: Cell) -> str:
    return load_recipe(cell.recipe_path).model.name


@cache
def extent(cell: Cell) -> tuple[float, float] | None:
    """(steps, nodes) that a run goes through, by recipe and size of the dataset; None where the latter is not known, or a protocol is no
    sequence of steps over it."""
    from stages.datasets.catalog import get_spec
    from stages.datasets.miniature import shape_of
    from stages.errors import DatasetError

    recipe = load_recipe(cell.recipe_path)
    try:
        shape = shape_of(get_spec(cell.dataset))
    except DatasetError:
        return None
    if shape.nodes is None or shape.graphs is None or recipe.protocol is not None:
        return None
    graphs = shape.train or 0.8 * shape.graphs
    steps = (recipe.batch.parts or 1) if shape.graphs == 1 else -(-graphs // (recipe.batch.graphs or graphs))
    return recipe.total_epochs * steps, float(recipe.total_epochs * shape.nodes)


def donor_ratios(kept: dict[str, Any], grid: Grid, device: "Device") -> list[float]:
    """Of cells with a count: what another one of the same model would have given, by what it is."""
    known = [cell for cell in grid.cells.values() if "calls" in kept.get(cell.cell, {}) and "estimated" not in kept[cell.cell]]
    found = []
    for cell in known:
        donor = donor_of(cell, known)
        if donor is not None and model_of(donor) == model_of(cell):
            found.append(device.unfused(scaled(kept[donor.cell], donor, cell)) / device.unfused(kept[cell.cell]))
    return found


def read() -> dict[str, Any]:
    """docs/scale.json without what was not measured."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"cells": {}}
    return kept | {"cells": {name: one for name, one in kept["cells"].items() if "estimated" not in one}}


# -- a device ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Device:
    """Rates: operations of matrix products and bytes of memory a second, seconds that a kernel takes to launch."""

    name: str
    products: float
    bandwidth: float
    launch: float

    def floor(self, run: dict[str, float]) -> float:
        """Seconds with everything but products, their operands and the optimiser free."""
        return max(run["products"] / self.products, (run["product_bytes"] + run["optimiser_bytes"]) / self.bandwidth)

    def unfused(self, run: dict[str, float]) -> float:
        """Seconds of the definitions, each operation a kernel of its own that reads and writes memory."""
        return max(run["products"] / self.products, (run["bytes"] + run["optimiser_bytes"]) / self.bandwidth, run["calls"] * self.launch)


@dataclass(frozen=True)
class Calibrated:
    """A CPU's thread by what shipped records took: products, traffic and a time for each operation one after the other, that time chosen so that
    `ratios` of the records' seconds to these spread least. A run takes the middle one."""

    device: Device
    ratios: tuple[float, ...]

    def seconds(self, run: dict[str, float]) -> float:
        return statistics.median(self.ratios) * serial(self.device, run)


def serial(device: Device, run: dict[str, float]) -> float:
    moved = run["bytes"] + run["optimiser_bytes"]
    return run["products"] / device.products + moved / device.bandwidth + run["calls"] * device.launch


def calibrated(device: Device, kept: dict[str, Any], root: Path = ROOT / "records") -> Calibrated:
    """By the shipped cells that ran to their last epoch on a CPU, as full cells."""
    from stages.records.shipped import shipped_cells

    took: list[tuple[dict[str, float], float]] = []
    for one in shipped_cells(load_grid(), root=root):
        whole = [
            r["measured"]["seconds"]
            for r in one.records
            if r["deterministic"]["status"] == "ok" and r["measured"]["device"] == "cpu" and _is_whole(r["deterministic"])
        ]
        run = kept.get(one.cell, {})
        if whole and "calls" in run and "estimated" not in run and not one.result["reduced"]:
            took.append((run, statistics.fmean(whole)))

    def ratios(launch: float) -> tuple[float, ...]:
        return tuple(seconds / serial(replace(device, launch=launch), run) for run, seconds in took)

    launch = min(LAUNCHES, key=lambda one: statistics.pstdev(map(math.log, ratios(one))))
    return Calibrated(replace(device, launch=launch), ratios(launch))


def _is_whole(run: dict[str, Any]) -> bool:
    """Whether nothing ended a run before its last epoch."""
    recipe = run["recipe"]
    asked = sum(phase["epochs"] for phase in recipe.get("phases") or ()) or recipe["epochs"]
    return recipe.get("protocol") is not None or run["epochs"]["epoch"][-1:] == [asked]


def h100() -> Device:
    from benchmarks.roofline import BANDWIDTH, LAUNCH, TF32

    return Device("H100", TF32, BANDWIDTH, LAUNCH)


# -- the schedule --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Schedule:
    """`makespan` of so many workers, in seconds; `busy`: seconds of all of them; `chain`: the longest sequence of jobs that wait for each other, with
    its seconds; `longest`: the last job to end."""

    workers: int
    jobs: int
    makespan: float
    busy: float
    chain: float
    longest: Job

    @property
    def utilisation(self) -> float:
        return self.busy / (self.workers * self.makespan)

    @property
    def bound(self) -> str:
        if self.chain >= 0.9 * self.makespan:
            return "its longest chain"
        return "work" if self.utilisation >= 0.9 else "the last jobs"


def jobs_by(seconds: Callable[[dict[str, Any]], float], kept: dict[str, Any], grid: Grid) -> list[Job]:
    """The whole grid as jobs of a sweep, in the planner's order, nothing of it being done yet. Data and encodings are made beforehand."""

    def cost(cell: Cell, *_: Any) -> Cost:
        run = kept.get(cell.cell, {"problem": "not measured"})
        if "calls" not in run:
            return Cost(problem=run["problem"])
        return Cost(seconds(run), None, search_seconds=run["search_runs"] * seconds(run))

    with tempfile.TemporaryDirectory() as empty, mock.patch("stages.sweep.costs._measured", cost):
        from stages.store import Store

        found = plan([Entry(tuple(grid.cells.values()))], grid, Store(Path(empty, "store")), Path(empty, "data"))
    return [job for job in jobs_of(found, shared=SHARED) if job.kind != "data" and job.seconds is not None]


def simulate(jobs: Sequence[Job], workers: int) -> Schedule:
    """Each worker takes the first job in order that waits for nothing unfinished; nothing fails."""
    of: dict[tuple[str, str], list[int]] = {}
    for index, job in enumerate(jobs):
        of.setdefault((job.kind, job.name), []).append(index)
    before = [_before(job, jobs, of) for job in jobs]
    after: list[list[int]] = [[] for _ in jobs]
    for index, others in enumerate(before):
        for other in others:
            after[other].append(index)
    open_, took = [len(others) for others in before], [START + job.seconds for job in jobs]
    ready = [index for index, count in enumerate(open_) if count == 0]
    running: list[tuple[float, int]] = []
    chain = [0.0] * len(jobs)  # seconds of the longest sequence that ends with the job
    now, last = 0.0, 0
    while ready or running:
        while ready and len(running) < workers:
            index = heapq.heappop(ready)
            chain[index] = took[index] + max((chain[other] for other in before[index]), default=0.0)
            heapq.heappush(running, (now + took[index], index))
        now, last = heapq.heappop(running)
        for index in after[last]:
            open_[index] -= 1
            if open_[index] == 0:
                heapq.heappush(ready, index)
    return Schedule(workers, len(jobs), now, sum(took), max(chain), jobs[last])


def _before(job: Job, jobs: Sequence[Job], of: dict[tuple[str, str], list[int]]) -> list[int]:
    near = [other for name in {job.name, job.after or job.name} for kind in ("search", "runs") for other in of.get((kind, name), ())]
    return [other for other in near if job.waits_for(jobs[other])]


# -- the page ------------------------------------------------------------------------------------------------------------------------


def rates_here() -> Device:
    """This processor, one thread: large products, copies, and what torch takes to do next to nothing."""
    import torch

    from benchmarks.cells import rates

    operations, copies = rates()
    one = torch.ones(1)
    start = time.process_time()
    for _ in range(200_000):
        torch.add(one, one)
    return Device("this processor", operations, copies, (time.process_time() - start) / 200_000)


def runs_of(cell: dict[str, Any]) -> int:
    return cell["seeds"] + cell["search_runs"]


def grid_lines(kept: dict[str, Any], grid: Grid, cpu: Calibrated) -> list[str]:
    """A line per suite, and all of them."""
    device = h100()
    columns = (
        "suite", "cells", "counted", "by another", "runs and trials", "hours of one CPU thread", "H100 hours, floor", "H100 hours, unfused",
        "longest run there",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for suite in [*grid.suites, None]:
        cells = grid.suite(suite) if suite else list(grid.cells.values())
        known = [kept[cell.cell] for cell in cells if "calls" in kept.get(cell.cell, {})]
        estimated = sum("estimated" in one for one in known)
        total = [sum(runs_of(one) * of(one) for one in known) / 3600 for of in (cpu.seconds, device.floor, device.unfused)]
        longest = hours(max((device.unfused(one) for one in known), default=0.0))
        counts = (len(cells), len(known) - estimated, estimated, sum(map(runs_of, known)))
        lines.append(f"| {suite or '**all**'} | {' | '.join(f'{n:,}' for n in counts)} | {' | '.join(map(number, total))} | {longest} |")
    return lines


def check_lines(cpu: Calibrated, kept: dict[str, Any], grid: Grid) -> list[str]:
    """How far counts are from seconds where both are known, of runs on a CPU; and how far one cell's are from another's."""
    low, middle, high = spread_of(cpu.ratios)
    here, others = cpu.device, donor_ratios(kept, grid, h100())
    less, _, more = spread_of(others)
    factor = f"{number(low)} to {number(high)} times"
    return [
        f"- **CPU.** {len(cpu.ratios)} counted cells have shipped records of whole runs. Products at {number(here.products / 1e9)} GFLOP/s, traffic at {number(here.bandwidth / 1e9)} GB/s (both measured)",
        f"  and {number(1e6 * here.launch)} us an operation (chosen so that these records spread least), one after the other, give their seconds up to a factor: {number(middle)} for the middle",
        f"  cell, by which all CPU hours are multiplied, and {factor} for four cells of five. Records count by the clock, often beside other work.",
        f"- **One cell by another.** {len(others)} counted cells have another of their model: by that one they would have had {number(less)} to {number(more)} times their H100 hours, four of five.",
        f"- **H100.** Nobody has held its counts against a clock, and no factor is in its hours. Were they off as the CPU's are, a cell would take {factor} its unfused hours.",
    ]


def spread_of(ratios: Sequence[float]) -> tuple[float, float, float]:
    """(the lowest but a tenth, the middle, the highest but a tenth)."""
    ordered = sorted(ratios)
    low, middle, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.5, 0.9))
    return low, middle, high


def cost_lines(kept: dict[str, Any], cpu: Calibrated, count: int = 10) -> list[str]:
    device = h100()
    known = sorted(((runs_of(one) * device.unfused(one), name) for name, one in kept.items() if "calls" in one), reverse=True)
    whole = sum(total for total, _ in known)
    lines = ["| cell | runs | a run on one CPU thread | a run on an H100, unfused | of the grid's H100 hours |", "|---|---|---|---|---|"]
    for total, name in known[:count]:
        one = kept[name]
        share = f"{100 * total / whole:.0f} %"
        lines.append(f"| {name} | {runs_of(one)} | {hours(cpu.seconds(one))} | {hours(device.unfused(one))} | {share} |")
    return lines


def absent_lines(kept: dict[str, Any], grid: Grid) -> list[str]:
    """What is in no sum, and why."""
    why: dict[str, list[str]] = {}
    for cell in grid.cells.values():
        if "calls" not in (one := kept.get(cell.cell, {})):
            problem = one.get("problem") or why_absent(cell)
            why.setdefault(re.sub(r"^dataset '\S+': |: \[enforce.*", "", problem)[:120], []).append(cell.cell)
    return [f"- {len(names)} cells ({', '.join(names[:3])}{' ...' if names[3:] else ''}): {problem}" for problem, names in why.items()] or [
        "- none"
    ]


def why_absent(cell: Cell) -> str:
    """Why no other cell could count for it."""
    if load_recipe(cell.recipe_path).protocol is not None:
        return "a model is trained for each pair of graphs, which only a count of the cell itself tells, with data/packed/brec"
    return "how many graphs it has, or how large, is known with its data alone" if extent(cell) is None else "nothing like it was counted"


def schedule_lines(kept: dict[str, Any], grid: Grid, cpu: Calibrated) -> list[str]:
    columns = ("workers", "jobs", "done after", "utilisation", "longest chain", "bound by", "ends with")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, seconds in (("H100", h100().unfused), ("CPU core", cpu.seconds)):
        jobs = jobs_by(seconds, kept, grid)
        for workers in WORKERS:
            found = simulate(jobs, workers)
            lines.append(
                f"| {workers} {name}{'s' if workers > 1 else ''} | {found.jobs:,} | {hours(found.makespan)} | {100 * found.utilisation:.0f} % | "
                f"{hours(found.chain)} | {found.bound} | {found.longest} |"
            )
    return lines


def page(kept: dict[str, Any]) -> str:
    from benchmarks.scale_store import store_lines, tracking_lines

    grid = load_grid()
    cells = filled(kept["cells"], grid)
    cpu = calibrated(Device(**kept["here"]), cells)
    parts = [
        ["## The whole grid", ""],
        grid_lines(cells, grid, cpu),
        ["", "What costs most there:", ""],
        cost_lines(cells, cpu),
        ["", "In no sum:", ""],
        absent_lines(cells, grid),
        ["", "How far counts are from seconds:", ""],
        check_lines(cpu, cells, grid),
        ["", "## A schedule", ""],
        schedule_lines(cells, grid, cpu),
        ["", "## The run store", ""],
        store_lines(kept.get("store", [])),
        ["", "## MLflow", ""] if kept.get("tracking") else [],
        tracking_lines(kept.get("tracking", [])),
    ]
    return "\n".join(line for part in parts for line in part)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("grid", "page"))
    parser.add_argument("cells", nargs="*", metavar="CELL")
    parser.add_argument("--data", type=Path, default=Path("data"), help="with packed/brec, without which its cells have no count")
    parser.add_argument("--seconds", type=float, default=3600.0, help="of the processor that it may take")
    parser.add_argument("--again", action="store_true", help="measure cells anew that are kept")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if given.what == "grid":
        measure(given.cells, given.data, given.seconds, given.again)
        kept = read()
        if "here" not in kept:
            write_json(KEPT, kept | {"here": vars(rates_here())})
    elif given.what == "page" or not given.write:
        print(page(read()))
    if given.write:
        kept = read()
        device = h100()
        priced = {
            name: one | {"h100": {"floor": device.floor(one), "unfused": device.unfused(one)}}
            for name, one in filled(kept["cells"], load_grid()).items()
            if "calls" in one
        }
        write_json(KEPT, kept | {"cells": kept["cells"] | priced})
        write_between(PAGE, BEGIN, END, page(kept))


if __name__ == "__main__":
    from stages.threads import settle_environment

    settle_environment()
    main()
