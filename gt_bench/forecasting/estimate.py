"""Forecast of time, memory and disk space of cells, from a few training steps of each on this device.

Steps are timed on the packed data if they are on disk, else on random graphs of the dataset's average size; the
forecast names it. Everything else is counted: steps per epoch, epochs of each phase, evaluations, seeds, trials.
Early stopping is ignored: a forecast assumes that a cell trains to its last epoch.
"""

import contextlib
import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gt_bench.config.cell_recipe import limited
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_section import Choice
from gt_bench.runtime.signals import accept_interrupts, die_with_parent, interrupts_blocked
from gt_bench.runtime.startup import prepare_process
from gt_bench.search.study import trials_within
from gt_bench.store.run_store import Store, StoreError
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.json_types import Settings

if TYPE_CHECKING:
    from gt_bench.data.packed import PackedDataset

REAL, LIKE = "real data", "random graphs of its size"
LIFE_SIZE = 256  # graphs in place of a dataset that is not available
BUDGET = 3.0  # seconds of timed training steps, and of timed evaluation, of each phase


@dataclass(frozen=True)
class Forecast:
    """Forecast of one cell.

    Attributes:
        cell: name.
        basis: the data that steps were timed on, REAL or LIKE.
        seconds: of one seed.
        seeds: number of seeds.
        search_seconds: of the whole search.
        encode_seconds: of encodings that are not cached.
        memory_mib: peak memory of a run in MiB.
        disk: bytes by file, so that a total counts shared files once.
        problem: why there is no forecast.
        actual_seconds: of one seed, from the cell's records on this device.
        actual_memory_mib: the same for memory.
    """

    cell: str
    basis: str | None = None
    seconds: float | None = None
    seeds: int = 0
    search_seconds: float = 0.0
    encode_seconds: float = 0.0
    memory_mib: float | None = None
    disk: Mapping[str, int] | None = None
    problem: str | None = None
    actual_seconds: float | None = None
    actual_memory_mib: float | None = None

    @property
    def total_seconds(self) -> float:
        """Seconds of all seeds one after the other, with the search."""
        return (self.seconds or 0.0) * self.seeds + self.search_seconds

    @property
    def error(self) -> float | None:
        """Relative error of the seconds."""
        return None if not self.actual_seconds or self.seconds is None else abs(self.seconds / self.actual_seconds - 1)


def forecast(
    cells: Sequence[Cell],
    grid: Grid,
    data: Path = Path("data"),
    budget: float = BUDGET,
    say: Callable[[str], None] = lambda line: None,
) -> list[Forecast]:
    """Return one forecast per cell, with the actual cost if the cell has records from this device.

    Each cell is measured in a new process, so that its peak memory is known.

    Args:
        cells: to forecast.
        grid: the grid.
        data: folder of packed data and encodings.
        budget: seconds of timed steps per phase.
        say: called with a line before each cell.
    """
    forecasts = []
    for number, cell in enumerate(cells, 1):
        say(f"measuring {cell.cell} ({number} of {len(cells)})")
        with ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)) as pool:
            try:
                with interrupts_blocked():
                    measured = pool.submit(forecast_cell, cell, grid, data, budget)
                estimate = measured.result()
            except BrokenProcessPool:
                estimate = Forecast(cell.cell, problem="its process was killed, probably out of memory")
        if took := actual(cell, grid):
            estimate = replace(estimate, actual_seconds=took.seconds, actual_memory_mib=took.memory_mib)
        forecasts.append(estimate)
    return forecasts


def _begin(parent: int) -> None:
    die_with_parent(parent)
    accept_interrupts()


def forecast_cell(cell: Cell, grid: Grid, data: Path = Path("data"), budget: float = BUDGET) -> Forecast:
    """Return the forecast of one cell, measured in this process; an error becomes its `problem`."""
    try:
        allocator = prepare_process(grid.run, load_recipe(cell.recipe_path).threads)
        with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory(prefix="gt-forecast-") as folder:
            return _measured(cell, grid, data, Path(folder), budget, allocator)
    except (RecipeError, DatasetError, ValueError, RuntimeError) as error:  # RuntimeError: of torch, for example shapes
        return Forecast(cell.cell, problem=str(error))


def _measured(cell: Cell, grid: Grid, data: Path, folder: Path, budget: float, allocator: str) -> Forecast:
    from gt_bench.data.packed import PackedDataset
    from gt_bench.data.registry import get_spec
    from gt_bench.data.standin import miniature, shape_of
    from gt_bench.encodings.compute import encode
    from gt_bench.experiment.run import Experiment
    from gt_bench.forecasting.step_timing import seconds_of
    from gt_models.encodings import find_encoding

    recipe, whole = recipe_to_train(cell, grid), grid.with_method(load_recipe(cell.recipe_path), cell)
    searched = whole.search
    tried = [recipe] if searched is None else _ends(load_recipe(cell.recipe_path), cell, grid)
    chosen = [recipe] if searched is None or cell.settings_path.exists() else tried
    real = (data / "packed" / cell.dataset / "header.json").exists()
    spec = get_spec(cell.dataset)
    if not real:
        data = folder / "data"
        miniature(spec, data / "packed" / cell.dataset, life_size=LIFE_SIZE)
    packed = PackedDataset.open(data / "packed" / cell.dataset)
    # for stand-in data, scale the cost per graph and per node to the real size
    scale = 1.0 if real else max(1.0, (shape_of(spec).nodes or 0) / packed.num_nodes)
    disk = {f"data/{cell.dataset}": int(packed.header.data_bytes * scale)}
    encodings, encode_seconds = data / "encodings" / cell.dataset, 0.0
    for name, arguments in {
        find_encoding(n).key(a): (n, a) for variant in (*tried, *chosen) for n, a in variant.encodings.items()
    }.values():
        key = find_encoding(name).key(arguments)
        if real and _sound(packed, encodings, name, arguments) and (encodings / f"{key}.safetensors").exists():
            disk[f"encodings/{cell.dataset}/{key}"] = (encodings / f"{key}.safetensors").stat().st_size
            continue
        if real:
            encodings = _encodings_beside(packed, encodings, folder / "data")
        start = time.perf_counter()
        path = encode(packed, encodings, name, arguments)
        encode_seconds += (time.perf_counter() - start) * scale
        disk[f"encodings/{cell.dataset}/{key}"] = int(path.stat().st_size * scale)
    if real and encodings.parent.parent != data:
        data = encodings.parent.parent
    measured: dict[str, tuple[float, float, int, int]] = {}
    for variant in (*tried, *chosen):
        if (key := digest_of(variant.decisive())) not in measured:
            timed = variant if real or not variant.protocol else variant.with_protocol(variant.protocol.of_miniature())
            experiment = Experiment(
                timed, str(cell.recipe_path), cell.dataset, grid.run, Store(folder / "store"), data, allocator
            )
            took, peak, count, _ = seconds_of(experiment, scale, budget)
            times = variant.protocol.parts / timed.protocol.parts if variant.protocol and timed.protocol else 1
            measured[key] = (took * times, peak, count, variant.reports)
    seconds, search = (
        statistics.mean(measured[digest_of(variant.decisive())][0] for variant in some) for some in (chosen, tried)
    )
    _, memory, parameters, reports = (max(column) for column in zip(*measured.values()))
    disk[f"store/{cell.cell}"] = (reports * 120 + 4000) * len(recipe.seeds)
    # weights, two moments and the best weights of one run
    disk["checkpoints"] = 16 * parameters
    search = 0.0 if searched is None else trials_within(cell, grid, whole) * len(searched.seeds) * search
    return Forecast(cell.cell, REAL if real else LIKE, seconds, len(recipe.seeds), search, encode_seconds, memory, disk)


def recipe_to_train(cell: Cell, grid: Grid) -> Recipe:
    """Return the recipe that would be trained within the limits: the tuned one if the search is complete."""
    source = cell.settings_path if cell.settings_path.exists() else cell.recipe_path
    return limited(load_recipe(source), grid, cell)[0]


def _ends(recipe: Recipe, cell: Cell, grid: Grid) -> list[Recipe]:
    """Return the recipe with all searched keys at their first or smallest values, and at their last or largest values.

    The forecast of a trial is the mean cost of the two.
    """
    ends: tuple[list[object], list[object]] = ([], [])
    for space in recipe.searched.space.values():
        low, high = (space.choices[0], space.choices[-1]) if isinstance(space, Choice) else (space.low, space.high)
        if isinstance(space, Choice) and all(isinstance(v, int | float) for v in space.choices):
            low, high = min(space.choices), max(space.choices)
        for end, value in zip(ends, (low, high), strict=True):
            end.append(int(value) if getattr(space, "integer", False) else value)
    return [
        limited(recipe.with_values(dict(zip(recipe.searched.space, end, strict=True))), grid, cell)[0] for end in ends
    ]


def _sound(packed: "PackedDataset", encodings: Path, name: str, arguments: Settings) -> bool:
    from gt_bench.encodings.cache import EncodedDataset

    try:
        EncodedDataset(packed, encodings, {name: arguments})
    except DatasetError:
        return False
    return True


def _encodings_beside(packed: "PackedDataset", encodings: Path, root: Path) -> Path:
    """Return a temporary folder with links to the cached encodings, so that a forecast writes nothing to data/."""
    target = root / "encodings" / packed.folder.name
    if not target.exists():
        target.mkdir(parents=True)
        (root / "packed").mkdir(parents=True, exist_ok=True)
        (root / "packed" / packed.folder.name).symlink_to(packed.folder.resolve())
        for path in encodings.glob("*.safetensors"):
            (target / path.name).symlink_to(path.resolve())
    return target


class ActualCost(NamedTuple):
    """Cost of a cell by its records: mean seconds of a seed, and largest peak memory in MiB."""

    seconds: float
    memory_mib: float


def actual(cell: Cell, grid: Grid, store_root: Path = Path("store")) -> ActualCost | None:
    """Return the cost of a cell by its records on this device; None if there are none."""
    from gt_bench.runtime.environment import choose_device, cpu_name, device_name

    try:
        recipe = recipe_to_train(cell, grid)
        result = json.loads(Path("results", f"{cell.cell}.json").read_text(encoding="utf-8"))
        records = [Store(store_root).get(digest) for digest in result["runs"]]
    except (OSError, ValueError, KeyError, TypeError, StoreError):  # missing or damaged: the leaderboard reports it
        return None
    device, cpu = device_name(choose_device(grid.run.device)), cpu_name()
    here = [
        r.measured
        for r in records
        if r is not None
        and (r.run.status, r.run.recipe) == ("ok", recipe.decisive())
        and r.measured.device == device
        and (device != "cpu" or (r.measured.environment.cpu, r.measured.threads) == (cpu, recipe.threads))
    ]
    if not here:
        return None
    return ActualCost(statistics.fmean(m.seconds for m in here), max(m.peak_memory_mib for m in here))
