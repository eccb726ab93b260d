"""Forecast: hours, memory and disk of cells before anyone pays for them, from a few steps of each on the present device.

A step is timed on the real packed data where they are on disk, else on random graphs as large as the dataset's are on average; the forecast
says which. Everything else is counted: steps of an epoch, epochs of each phase, evaluations, seeds, trials. Early stopping is not foreseen:
a forecast is what a cell takes if it trains to its last epoch.
"""

import contextlib
import io
import json
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

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, digest_of, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_space import Choice
from gt_bench.experiment.cell import limited
from gt_bench.runtime.interrupts import listen, started_quietly
from gt_bench.schemas import Settings
from gt_bench.search.space import space_size, trials_of
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.format import hours

if TYPE_CHECKING:
    from gt_bench.data.packed import PackedDataset

REAL, LIKE = "real data", "random graphs of its size"
LIFE_SIZE = 256  # graphs in place of a dataset that is not available
BUDGET = 3.0  # seconds of timed training steps, and of timed evaluation, of each phase


@dataclass(frozen=True)
class Forecast:
    """What one cell will take. Seconds of one seed; `problem` says why there is no forecast. `actual_*`: of the cell's records, of one seed,
    where they were made on this device."""

    cell: str
    basis: str | None = None
    seconds: float | None = None
    seeds: int = 0
    search_seconds: float = 0.0
    encode_seconds: float = 0.0
    memory_mib: float | None = None
    disk: Mapping[str, int] | None = None  # bytes by what they are of, so that a total counts shared files once
    problem: str | None = None
    actual_seconds: float | None = None
    actual_memory_mib: float | None = None

    @property
    def total_seconds(self) -> float:
        """Of all seeds one after the other, with the search."""
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
    """One forecast per cell, each measured in a process of its own (so that memory is the cell's), beside what was measured in full runs."""
    found = []
    for cell in cells:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=listen) as pool:
            try:
                with started_quietly():
                    measured = pool.submit(forecast_cell, cell, grid, data, budget)
                one = measured.result()
            except BrokenProcessPool:
                one = Forecast(
                    cell.cell, problem="its process was killed, probably for too little memory on this machine"
                )
        if took := actual(cell, grid):
            one = replace(one, actual_seconds=took.seconds, actual_memory_mib=took.memory_mib)
        say(f"{cell.cell}: {one.problem or f'{hours(one.total_seconds)}, {one.memory_mib:,.0f} MiB ({one.basis})'}")
        found.append(one)
    return found


def forecast_cell(cell: Cell, grid: Grid, data: Path = Path("data"), budget: float = BUDGET) -> Forecast:
    """The forecast of one cell, measured in this process. Whatever keeps it from being measured becomes its `problem`."""
    from gt_bench.experiment.run import prepare_process

    try:
        allocator = prepare_process(grid.run, load_recipe(cell.recipe_path).threads)
        with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory(prefix="gt-forecast-") as folder:
            return _measured(cell, grid, data, Path(folder), budget, allocator)
    except (
        RecipeError,
        DatasetError,
        ValueError,
        RuntimeError,
    ) as error:  # RuntimeError: torch's own, of widths and losses that do not fit
        return Forecast(cell.cell, problem=str(error))


def _measured(cell: Cell, grid: Grid, data: Path, folder: Path, budget: float, allocator: str) -> Forecast:
    from gt_bench.data.packed import PackedDataset
    from gt_bench.data.registry import get_spec
    from gt_bench.data.standin import miniature, shape_of
    from gt_bench.encodings.compute import encode
    from gt_bench.experiment.run import Experiment
    from gt_bench.forecasting.step_timing import seconds_of
    from gt_bench.store.run_store import Store
    from gt_models.encodings import find_encoding

    recipe, searched = recipe_asked(cell, grid), load_recipe(cell.recipe_path).search
    tried = [recipe] if searched is None else _ends(load_recipe(cell.recipe_path), cell, grid)
    chosen = [recipe] if searched is None or cell.settings_path.exists() else tried
    real = (data / "packed" / cell.dataset / "header.json").exists()
    spec = get_spec(cell.dataset)
    if not real:
        data = folder / "data"
        miniature(spec, data / "packed" / cell.dataset, life_size=LIFE_SIZE)
    packed = PackedDataset.open(data / "packed" / cell.dataset)
    # stand-in data: scale per-graph and per-node costs to the real size
    scale = 1.0 if real else max(1.0, (shape_of(spec).nodes or 0) / packed.num_nodes)
    disk = {f"data/{cell.dataset}": int(packed.header.data_bytes * scale)}
    encodings, encode_seconds = data / "encodings" / cell.dataset, 0.0
    for name, arguments in {
        find_encoding(n).key(a): (n, a) for one in (*tried, *chosen) for n, a in one.encodings.items()
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
    for one in (*tried, *chosen):
        if (key := digest_of(one.decisive())) not in measured:
            timed = one if real or not one.protocol else one.with_protocol(one.protocol.of_miniature())
            experiment = Experiment(
                timed, str(cell.recipe_path), cell.dataset, grid.run, Store(folder / "store"), data, allocator
            )
            took, peak, count, _ = seconds_of(experiment, scale, budget)
            times = one.protocol.parts / timed.protocol.parts if one.protocol and timed.protocol else 1
            measured[key] = (took * times, peak, count, one.reports)
    seconds, search = (
        statistics.mean(measured[digest_of(one.decisive())][0] for one in some) for some in (chosen, tried)
    )
    _, memory, parameters, reports = (max(column) for column in zip(*measured.values()))
    disk[f"store/{cell.cell}"] = (reports * 120 + 4000) * len(recipe.seeds)
    # weights, two moments and the best weights; one run of a cell at a time
    disk["checkpoints"] = 16 * parameters
    search = 0.0 if searched is None else _trials(cell, grid) * len(searched.seeds) * search
    return Forecast(cell.cell, REAL if real else LIKE, seconds, len(recipe.seeds), search, encode_seconds, memory, disk)


def recipe_asked(cell: Cell, grid: Grid) -> Recipe:
    """What would be trained: the tuned recipe where the search is done, under the limits of params.yaml."""
    source = cell.settings_path if cell.settings_path.exists() else cell.recipe_path
    return limited(load_recipe(source), grid, cell)[0]


def _ends(recipe: Recipe, cell: Cell, grid: Grid) -> list[Recipe]:
    """The recipe at both ends of its search space, all keys at their first or smallest and all at their last or largest value: a trial costs
    something between them, and takes their mean here."""
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


def _trials(cell: Cell, grid: Grid) -> int:
    """How many trials its search will have: its recipe's or the suite's fair number, within the limits and the points of a grid."""
    recipe = load_recipe(cell.recipe_path)
    asked = trials_of(cell, grid, recipe)
    points = space_size(recipe.searched)[0] if recipe.searched.sampler == "grid" else asked
    return min(asked, points, grid.limits_of(cell).trials or asked)


def _sound(packed: "PackedDataset", encodings: Path, name: str, arguments: Settings) -> bool:
    from gt_bench.encodings.cache import EncodedDataset

    try:
        EncodedDataset(packed, encodings, {name: arguments})
    except DatasetError:
        return False
    return True


def _encodings_beside(packed: "PackedDataset", encodings: Path, root: Path) -> Path:
    """A folder for encodings that are not computed yet, with links to those that are: a forecast leaves nothing in data/."""
    target = root / "encodings" / packed.folder.name
    if not target.exists():
        target.mkdir(parents=True)
        (root / "packed").mkdir(parents=True, exist_ok=True)
        (root / "packed" / packed.folder.name).symlink_to(packed.folder.resolve())
        for path in encodings.glob("*.safetensors"):
            (target / path.name).symlink_to(path.resolve())
    return target


class Took(NamedTuple):
    """What a cell took: the mean of the `seconds` of a seed, and the largest peak of memory."""

    seconds: float
    memory_mib: float


def actual(cell: Cell, grid: Grid, store_root: Path = Path("store")) -> Took | None:
    """By the cell's records on this device; None where there are none."""
    from gt_bench.runtime.environment import choose_device, cpu_name, device_name
    from gt_bench.store.run_store import Store, StoreError

    try:
        recipe = recipe_asked(cell, grid)
        result = json.loads(Path("results", f"{cell.cell}.json").read_text(encoding="utf-8"))
        records = [Store(store_root).get(digest) for digest in result["runs"]]
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        StoreError,
    ):  # not there, or no result: the leaderboard says which
        return None
    device, cpu = device_name(choose_device(grid.run.device)), cpu_name()
    here = [
        r["measured"]
        for r in records
        if r is not None
        and (r["deterministic"]["status"], r["deterministic"]["recipe"]) == ("ok", recipe.decisive())
        and r["measured"]["device"] == device
        and (
            device != "cpu"
            or (r["measured"]["environment"].get("cpu"), r["measured"].get("threads")) == (cpu, recipe.threads)
        )
    ]
    if not here:
        return None
    return Took(statistics.fmean(m["seconds"] for m in here), max(m["peak_memory_mib"] for m in here))
