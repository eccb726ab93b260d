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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from stages.cells import limited
from stages.errors import DatasetError
from stages.params import Cell, Grid
from stages.recipe import Choice, Recipe, digest_of, load_recipe
from stages.schema import RecipeError

REAL, LIKE = "real data", "random graphs of its size"
LIFE_SIZE = 256  # graphs that stand for a dataset that is not at hand
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
        return (self.seconds or 0.0) * self.seeds + self.search_seconds

    @property
    def error(self) -> float | None:
        """Relative error of the seconds."""
        return None if not self.actual_seconds or self.seconds is None else abs(self.seconds / self.actual_seconds - 1)


class Stopwatch:
    """What the loop tells of time, one entry per stretch of work."""

    def __init__(self) -> None:
        self.totals = {"train": 0.0, "eval": 0.0, "test": 0.0}
        self.stretches: dict[str, list[float]] = {"train": [], "eval": [], "test": []}

    @contextlib.contextmanager
    def timing(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stretches[what].append(time.perf_counter() - start)


class Sample:
    """A loader that ends an epoch early, once `budget` seconds and three batches are over; `taken` and `whole` count batches of each kind."""

    def __init__(self, loader: Any, budget: float):
        self._loader, self._budget = loader, budget
        self.taken: dict[str, int] = {}
        self.whole: dict[str, bool] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def training(self, epoch: int) -> Iterator[Any]:
        return self._until("train", self._loader.training(epoch))

    def evaluation(self, part: str) -> Iterator[Any]:
        return self._until(part, self._loader.evaluation(part))

    def _until(self, what: str, batches: Iterator[Any]) -> Iterator[Any]:
        start, count = time.perf_counter(), 0
        self.whole[what] = True
        for count, batch in enumerate(batches, 1):
            yield batch
            self.taken[what] = count
            if count >= 3 and time.perf_counter() - start > self._budget:
                self.whole[what] = False
                return


class Lenient:
    """A task whose metric is not asked for on a part of a split's graphs, which may hold one class only."""

    def __init__(self, task: Any):
        self._task = task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def evaluate(self, outputs: list[Any], targets: list[Any]) -> dict[str, float]:
        with contextlib.suppress(ValueError):
            return self._task.evaluate(outputs, targets)
        return {"loss": 0.0, self._task.metric: 0.0}


def forecast(cells: Sequence[Cell], grid: Grid, data: Path = Path("data"), budget: float = BUDGET, say=lambda line: None) -> list[Forecast]:
    """One forecast per cell, each measured in a process of its own (so that memory is the cell's), beside what was measured in full runs."""
    found = []
    for cell in cells:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            try:
                one = pool.submit(forecast_cell, cell, grid, data, budget).result()
            except BrokenProcessPool:
                one = Forecast(cell.cell, problem="its process was killed: too little memory on this machine")
        one = replace(one, **actual(cell, grid))
        say(f"{cell.cell}: {one.problem or f'{_hours(one.total_seconds)}, {one.memory_mib:,.0f} MiB ({one.basis})'}")
        found.append(one)
    return found


def forecast_cell(cell: Cell, grid: Grid, data: Path = Path("data"), budget: float = BUDGET) -> Forecast:
    """The forecast of one cell, measured in this process. Whatever keeps it from being measured becomes its `problem`."""
    from stages.runs import prepare_process

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
    from gt_models.encodings import find_encoding
    from stages.datasets.catalog import get_spec
    from stages.datasets.encoded import encode
    from stages.datasets.miniature import miniature, shape_of
    from stages.datasets.packed import PackedDataset
    from stages.runs import Experiment
    from stages.store import Store

    recipe, searched = _recipe_now(cell, grid), load_recipe(cell.recipe_path).search
    tried = [recipe] if searched is None else _ends(load_recipe(cell.recipe_path), cell, grid)
    chosen = [recipe] if searched is None or cell.settings_path.exists() else tried
    real = (data / "packed" / cell.dataset / "header.json").exists()
    spec = get_spec(cell.dataset)
    if not real:
        data = folder / "data"
        miniature(spec, data / "packed" / cell.dataset, life_size=LIFE_SIZE)
    packed = PackedDataset.open(data / "packed" / cell.dataset)
    # a dataset that stands for a larger one: everything that is paid by the graph or node is paid so many times
    scale = 1.0 if real else max(1.0, (shape_of(spec).nodes or 0) / packed.num_nodes)
    disk = {f"data/{cell.dataset}": int(packed.header.data_bytes * scale)}
    encodings, encode_seconds = data / "encodings" / cell.dataset, 0.0
    for name, arguments in {find_encoding(n).key(a): (n, a) for one in (*tried, *chosen) for n, a in one.encodings.items()}.values():
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
            experiment = Experiment(one, str(cell.recipe_path), cell.dataset, grid.run, Store(folder / "store"), data, allocator)
            measured[key] = _seconds(experiment, scale, budget)
    seconds, search = (statistics.mean(measured[digest_of(one.decisive())][0] for one in some) for some in (chosen, tried))
    _, memory, parameters, reports = (max(column) for column in zip(*measured.values()))
    disk[f"store/{cell.cell}"] = (reports * 120 + 4000) * len(recipe.seeds)
    # weights, two moments and the best weights; one run of a cell at a time
    disk["checkpoints"] = 16 * parameters
    search = 0.0 if searched is None else _trials(cell, grid) * len(searched.seeds) * search
    return Forecast(cell.cell, REAL if real else LIKE, seconds, len(recipe.seeds), search, encode_seconds, memory, disk)


def _recipe_now(cell: Cell, grid: Grid) -> Recipe:
    """What would be trained: the tuned recipe where the search is done, under the limits of params.yaml."""
    source = cell.settings_path if cell.settings_path.exists() else cell.recipe_path
    return limited(load_recipe(source), grid, cell)[0]


def _ends(recipe: Recipe, cell: Cell, grid: Grid) -> list[Recipe]:
    """The recipe at both ends of its search space, all keys at their first or smallest and all at their last or largest value: a trial costs
    something between them, and takes their mean here."""
    ends = ([], [])
    for space in recipe.search.space.values():
        low, high = (space.choices[0], space.choices[-1]) if isinstance(space, Choice) else (space.low, space.high)
        if isinstance(space, Choice) and all(isinstance(v, int | float) for v in space.choices):
            low, high = min(space.choices), max(space.choices)
        for end, value in zip(ends, (low, high), strict=True):
            end.append(int(value) if getattr(space, "integer", False) else value)
    return [limited(recipe.with_values(dict(zip(recipe.search.space, end, strict=True))), grid, cell)[0] for end in ends]


def _trials(cell: Cell, grid: Grid) -> int:
    """How many trials its search will have: its recipe's or the suite's fair number, within the limits and the points of a grid."""
    from stages.space import space_size, trials_of

    recipe = load_recipe(cell.recipe_path)
    asked = trials_of(cell, grid, recipe)
    points = space_size(recipe.search)[0] if recipe.search.sampler == "grid" else asked
    return min(asked, points, grid.limits_of(cell).trials or asked)


def _sound(packed: Any, encodings: Path, name: str, arguments: dict[str, Any]) -> bool:
    from stages.datasets.encoded import EncodedDataset

    try:
        EncodedDataset(packed, encodings, {name: arguments})
    except DatasetError:
        return False
    return True


def _encodings_beside(packed: Any, encodings: Path, root: Path) -> Path:
    """A folder for encodings that are not computed yet, with links to those that are: a forecast leaves nothing in data/."""
    target = root / "encodings" / packed.folder.name
    if not target.exists():
        target.mkdir(parents=True)
        (root / "packed").mkdir(parents=True, exist_ok=True)
        (root / "packed" / packed.folder.name).symlink_to(packed.folder.resolve())
        for path in encodings.glob("*.safetensors"):
            (target / path.name).symlink_to(path.resolve())
    return target


def _seconds(experiment: Any, scale: float, budget: float) -> tuple[float, float, int, int]:
    """(seconds of one run, peak memory in MiB, parameters, epochs reported)."""
    from stages.measure import PeakMemory
    from stages.tasks.isomorphism import IsomorphismRun

    recipe, memory = experiment.recipe, PeakMemory(experiment.device)
    before = memory.read() if experiment.device.type == "cpu" else 0.0
    memory.start()
    trial = first = _trial(experiment, 2, budget)
    own = experiment.task.runner
    if own is IsomorphismRun:  # draws of the weights are all it does
        draws = trial.watch.stretches["eval"]
        return draws[0] + (recipe.total_epochs - 1) * draws[1], memory.read(), trial.outcome.parameters, recipe.reports
    if own is not None and recipe.brec is None:
        raise ValueError(f"{experiment.path}: its task has a protocol of its own, which the forecast does not know")
    # what is short is timed many times; the first one warmed up
    if own is None:
        once = statistics.fmean(t for what in ("train", "eval") for t in trial.watch.stretches[what][1:])
        epochs = int(min(60, budget / max(1e-6, once)))
        if epochs > 4:
            trial = _trial(experiment, epochs, budget)
    else:
        pairs = int(min(60, budget / max(1e-6, sum(_pair(trial, 2)))))
        if pairs > 4:
            trial = _trial(experiment, 2, budget, pairs)
    peak, parameters = memory.read(), trial.outcome.parameters
    if own is not None:
        return len(recipe.brec.numbers()) * sum(_pair(trial, recipe.total_epochs)), peak, parameters, recipe.reports
    loader = trial.sample
    taken, train_times, eval_times = loader.taken, trial.watch.stretches["train"], trial.watch.stretches["eval"]
    epochs = [phase.epochs for phase in recipe.phases] or [recipe.total_epochs]
    each = len(train_times) // len(epochs)
    typical = [statistics.median(train_times[i * each + 1 : (i + 1) * each]) for i in range(len(epochs))]
    train = sum(n * t for n, t in zip(epochs, typical)) / taken["train"] * _batches(loader, "train", scale)
    evaluations = sum(_evaluates(recipe, n) for n in range(1, recipe.total_epochs + 1))
    evaluation = statistics.median(eval_times[1:]) / taken["val"] * _batches(loader, "val", scale)
    test = evaluation if loader.by_node else trial.watch.stretches["test"][-1] / taken["test"] * _batches(loader, "test", scale)
    if loader.by_node:  # one graph that stands for a larger one
        peak = before + max(0.0, peak - before) * scale
    # what only the first epoch of a process pays, and of a cell's seeds only the first
    usual = typical[0], statistics.median(eval_times[1:])
    paid = first.watch.stretches["train"][0], first.watch.stretches["eval"][0]
    warmup = sum(max(0.0, p - u) for p, u in zip(paid, usual)) / len(recipe.seeds)
    return train + evaluation * evaluations + test + warmup, peak, parameters, recipe.reports


def _pair(trial: "Trial", epochs: int) -> tuple[float, float, float]:
    """Seconds of a pair of BREC with so many epochs, from pairs with two: its model and batches, its training, its test. Their sizes differ widely."""
    train = trial.watch.stretches["train"][3:]  # the first pair warmed up
    made, trained = train[::3], [t for i, t in enumerate(train) if i % 3]
    return statistics.fmean(made), epochs * statistics.fmean(trained), statistics.fmean(trial.watch.stretches["eval"][1:])


@dataclass
class Trial:
    """A few epochs of a run: what they took, and on how many batches."""

    watch: Stopwatch
    sample: Sample
    outcome: Any


def _trial(experiment: Any, epochs: int, budget: float, pairs: int = 4) -> Trial:
    """`epochs` epochs of every phase, of BREC of so many pairs, each evaluated, and a pass over the test part, for its time alone: its graphs
    may be of another size. Raises ValueError where the run does not end well."""
    from stages.engine.checkpoint import Checkpoint
    from stages.engine.loop import Run

    recipe, task, seed = experiment.recipe, experiment.task, experiment.recipe.seeds[0]
    sample = Sample(experiment.loader(seed), budget)
    watch = Stopwatch()
    run = (task.runner or Run)(
        _short(recipe, epochs, pairs), Lenient(task), sample, experiment.build, seed=seed, meter=watch, checkpoint=Checkpoint(None)
    )
    outcome = run.train(test=recipe.brec is None)
    if outcome.status != "ok":
        raise ValueError(f"{outcome.status}: {outcome.error}")
    return Trial(watch, sample, outcome)


def _short(recipe: Recipe, epochs: int, pairs: int) -> Recipe:
    """`epochs` epochs of every phase, each evaluated; of BREC so many pairs."""
    # weights that it would start from cost no time
    changes: dict[str, Any] = {"eval_every": 1, "eval_after": None, "patience": None, "start": None}
    if recipe.phases:
        changes["phases"] = [phase.model_copy(update={"epochs": epochs}) for phase in recipe.phases]
    else:
        changes["epochs"] = epochs
    if recipe.brec is not None:
        count = min(pairs, len(recipe.brec.numbers()))
        changes["brec"] = recipe.brec.only(count).model_copy(update={"stop_below": 0.0})
    return recipe.model_copy(update=changes)


def _evaluates(recipe: Recipe, epoch: int) -> bool:
    return epoch == recipe.total_epochs or (epoch % recipe.eval_every == 0 and epoch > (recipe.eval_after or 0))


def _batches(loader: Sample, part: str, scale: float) -> float:
    """Batches of a whole epoch of the whole dataset, in batches of the sample; a graph that stands for a larger one counts so many times."""
    if loader.whole[part]:
        return loader.taken[part] * scale
    return (loader.steps_per_epoch if part == "train" else len(loader._plan(loader.ids[part]))) * scale


def actual(cell: Cell, grid: Grid, results: Path = Path("results"), store_root: Path = Path("store")) -> dict[str, float]:
    """What the cell's records say it took on this device: seconds of one seed (mean) and peak memory; empty where there are none."""
    from stages.measure import _cpu_name
    from stages.store import Store, StoreError

    try:
        recipe = _recipe_now(cell, grid)
        result = json.loads((results / f"{cell.cell}.json").read_text())
        records = [Store(store_root).get(digest) for digest in result["runs"]]
    except (FileNotFoundError, ValueError, KeyError, StoreError):
        return {}
    device, cpu = _device(grid), _cpu_name()
    here = [
        r["measured"]
        for r in records
        if r is not None
        and (r["deterministic"]["status"], r["deterministic"]["recipe"]) == ("ok", recipe.decisive())
        and r["measured"]["device"] == device
        and (device != "cpu" or (r["measured"]["environment"].get("cpu"), r["measured"].get("threads")) == (cpu, recipe.threads))
    ]
    if not here:
        return {}
    seconds, memory = [m["seconds"] for m in here], [m["peak_memory_mib"] for m in here]
    return {"actual_seconds": statistics.fmean(seconds), "actual_memory_mib": max(memory)}


def _device(grid: Grid) -> str:
    import torch

    from stages.measure import choose_device

    device = choose_device(grid.run.device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def totals(forecasts: Sequence[Forecast]) -> dict[str, float]:
    """Seconds in all (encodings counted once per dataset and cell), largest memory in MiB, bytes on disk (shared files counted once)."""
    disk: dict[str, int] = {}
    for one in forecasts:
        for name, size in (one.disk or {}).items():
            disk[name] = max(size, disk.get(name, 0))
    return {
        "seconds": sum(one.total_seconds + one.encode_seconds for one in forecasts),
        "memory_mib": max((one.memory_mib or 0.0 for one in forecasts), default=0.0),
        "bytes": sum(disk.values()),
    }


def median_error(forecasts: Sequence[Forecast]) -> float | None:
    errors = [one.error for one in forecasts if one.error is not None]
    return statistics.median(errors) if errors else None


COLUMNS = ("cell", "measured on", "seeds", "one seed", "search", "in all", "memory", "disk", "one seed took", "off by")


def row(one: Forecast) -> list[str]:
    if one.problem:
        return [one.cell, "no forecast: " + " ".join(one.problem.split()), *[""] * (len(COLUMNS) - 2)]
    return [
        one.cell, one.basis, str(one.seeds), _hours(one.seconds), _hours(one.search_seconds) if one.search_seconds else "–",
        _hours(one.total_seconds), f"{one.memory_mib:,.0f} MiB", _bytes(sum(one.disk.values())),
        "–" if one.actual_seconds is None else _hours(one.actual_seconds),
        "–" if one.error is None else f"{100 * (one.seconds / one.actual_seconds - 1):+.0f}%",
    ]  # fmt: skip


def summary(forecasts: Sequence[Forecast]) -> str:
    whole, middle = totals(forecasts), median_error(forecasts)
    count = sum(one.problem is None for one in forecasts)
    lines = [
        f"{count} of {len(forecasts)} cells: {_hours(whole['seconds'])} one after the other, at most {whole['memory_mib']:,.0f} MiB at once, "
        f"{_bytes(whole['bytes'])} on disk (shared files once)"
    ]
    if middle is not None:
        known = sum(one.error is not None for one in forecasts)
        lines.append(f"median error over {known} cells that were run here: {100 * middle:.0f}%")
    return "\n".join(lines)


def markdown(forecasts: Sequence[Forecast]) -> str:
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(row(one) for one in forecasts)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows) + "\n\n" + summary(forecasts).replace("\n", "  \n") + "\n"


def _hours(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.3g} s"


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.3g} {unit}" if size < 1000 else f"{size:,.0f} {unit}"
        size /= 1024
    raise AssertionError
