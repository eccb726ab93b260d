"""Operations and traffic of a run, counted on a few random graphs or estimated from another cell (see scale.py)."""

import contextlib
import json
import multiprocessing
import os
import resource
import signal
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.cells import ROOT, number
from benchmarks.counts import Counts
from gt_bench.config.cell_recipe import limited
from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.forecasting import step_timing
from gt_bench.leaderboard.coverage import has_own_number
from gt_bench.search.study import trials_left
from gt_bench.utils.io import write_json

KEPT = ROOT / "docs" / "scale.json"
NODES = 400  # of one graph in place of a larger one
GRAPHS = 12  # in place of a dataset
GIB, SECONDS = 8, 120  # of memory and of the processor that a cell may take here
PARTS = ("products", "product_bytes", "optimiser_bytes", "bytes", "calls")
WARM = "embedded/torus-colours/gcn"  # its imports are those of most cells
FORECAST = step_timing.seconds_of


class OneBatch(step_timing.Sample):
    """One batch of each part an epoch: the first epoch warms up, the second one counts."""

    def _until(self, what: str, batches: Iterator[Any]) -> Iterator[Any]:
        first = next(batches, None)
        self.taken[what], self.whole[what] = 1, True
        if first is not None:
            yield first
            self.whole[what] = next(batches, None) is None


class Counting(step_timing.Stopwatch):
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

    trials: list[step_timing.Trial] = []
    trial = step_timing._trial

    def once(*arguments: Any) -> step_timing.Trial:
        trials.append(trial(*arguments))
        return trials[-1]

    with contextlib.ExitStack() as stack:
        for name, other in (("Stopwatch", Counting), ("Sample", OneBatch), ("_trial", once)):
            stack.enter_context(mock.patch.object(step_timing, name, other))
        # where all triples of a graph are too many, a few rows of them at a time
        stack.enter_context(use("reference", triangular_attention="chunked") if chunked else use("reference"))
        FORECAST(experiment, scale, 0.0)
    (counted,) = trials
    found = {}
    for part in PARTS:
        watch = step_timing.Stopwatch()
        watch.stretches = {
            what: [float(getattr(counts, part)) for counts in of] for what, of in counted.watch.counts.items()
        }
        replay = step_timing.Trial(watch, counted.sample, counted.outcome)
        with mock.patch.object(step_timing, "_trial", lambda *_, replay=replay: replay):
            found[part] = FORECAST(experiment, scale, 0.0)[0]
    found["bytes"] -= (
        found["optimiser_bytes"] * 4 / 7
    )  # which counts what the optimiser's fused calls write in place, too
    share = 1.0
    if counted.sample.by_node or experiment.recipe.batch.hyperedges:  # a larger graph has no more steps, only longer
        share = 1 / scale
    elif (
        experiment.recipe.batch.graphs and experiment.header.num_splits and not experiment.task.runner
    ):  # nor has a batch with more graphs
        share = min(1.0, len(experiment.packed.split("train", 0)) / experiment.recipe.batch.graphs)
    return found | {part: share * found[part] for part in ("calls", "optimiser_bytes")}


def cost_of(cell: Cell, grid: Grid, data: Path, chunked: bool = False) -> dict[str, Any]:
    """What docs/scale.json keeps of a cell; `problem` where there is no forecast."""
    from gt_bench.data import standin
    from gt_bench.data.registry import get_spec
    from gt_bench.forecasting import estimate as room

    found: list[dict[str, float]] = []

    def counted(experiment: Any, scale: float, budget: float) -> tuple[float, float, int, int]:
        found.append(run_of(experiment, scale, chunked))
        return 1.0, 1.0, 1, experiment.recipe.reports  # of a trial, too: the search's seconds are then its runs

    with (
        mock.patch.object(step_timing, "seconds_of", counted),
        mock.patch.object(standin, "LARGEST_GRAPH", NODES),
        mock.patch.object(room, "LIFE_SIZE", GRAPHS),
        mock.patch.object(room, "_ends", lambda recipe, cell, grid: [limited(recipe, grid, cell)[0]]),
    ):
        # BREC is many sets of graphs, of which a recipe takes some
        one = room.forecast_cell(cell, grid, data if get_spec(cell.dataset).task == "brec" else Path("nowhere"))
    if one.problem is not None:
        return {"problem": " ".join(one.problem.split())}
    return {"seeds": one.seeds, "search_runs": round(one.search_seconds)} | found[0]


def measure(names: Sequence[str], data: Path, seconds: float, again: bool = False) -> None:
    """Adds cells to docs/scale.json until `seconds` of processor time are over, each process within GIB and SECONDS."""
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
    ordered = [sorted(group, key=lambda cell: not has_own_number(cell)) for group in groups.values()]
    return [cell for turn in zip_longest(*ordered) for cell in turn if cell is not None]


def _bounded(cell: Cell, grid: Grid, data: Path, chunked: bool = False) -> dict[str, Any]:
    context = multiprocessing.get_context("fork")
    near, far = context.Pipe(duplex=False)

    def work() -> None:
        with mock.patch("gt_bench.runtime.environment.bound_memory"):  # a bound of its own
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
        found = {
            "problem": f"its steps took more than {SECONDS} s"
            if limit
            else f"its process ended with status {process.exitcode}"
        }
    process.join()
    return found


def filled(kept: dict[str, Any], grid: Grid) -> dict[str, Any]:
    """Returns the cells with counts; cells without a count are estimated from another one.

    That is one of the same model, if possible on the same dataset, or else one of the same dataset: its kernels times
    the ratio of steps, everything else times the ratio of nodes.

    `estimated` names that cell.
    """
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

    near = [
        other for other in known if other.cell != cell.cell and extent(other) is not None and not all(unlike(other)[:2])
    ]
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
    """Returns (steps, nodes) of a run by recipe and size of the dataset; None if unknown or not a sequence of steps.

    `nodes` counts a node once for each step that computes it: each batch of hyperedges computes the whole graph.
    """
    from gt_bench.data.registry import get_spec
    from gt_bench.data.standin import shape_of
    from gt_bench.utils.errors import DatasetError

    recipe = load_recipe(cell.recipe_path)
    try:
        shape = shape_of(get_spec(cell.dataset))
    except DatasetError:
        return None
    if shape.nodes is None or shape.graphs is None or recipe.protocol is not None:
        return None
    if recipe.batch.hyperedges:  # as `HyperedgeLoader.steps_per_epoch`
        steps = recipe.total_epochs * max(1, (shape.train or 0) // recipe.batch.hyperedges)
        return steps, float(steps * shape.nodes)
    graphs = shape.train or 0.8 * shape.graphs
    steps = (recipe.batch.parts or 1) if shape.graphs == 1 else -(-graphs // (recipe.batch.graphs or graphs))
    return recipe.total_epochs * steps, float(recipe.total_epochs * shape.nodes)


def read() -> dict[str, Any]:
    """docs/scale.json without what was not measured."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {"cells": {}}
    return kept | {"cells": {name: one for name, one in kept["cells"].items() if "estimated" not in one}}
