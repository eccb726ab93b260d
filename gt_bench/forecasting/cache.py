"""Cache of the cost of a run of each cell on this device, in store/forecasts.json; delete the file to reset it.

If the cell has records from this device, their time and memory replace the forecast.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import load_recipe
from gt_bench.forecasting.estimate import actual, forecast, recipe_to_train
from gt_bench.utils.digest import digest_of
from gt_bench.utils.io import held, make_folder, write_json

FILE = "forecasts.json"


@dataclass(frozen=True)
class ForecastCost:
    """Cost of one run.

    Attributes:
        seconds: of the run.
        memory_mib: peak memory in MiB.
        search_seconds: of the whole search of the cell.
        record_bytes: of its record.
        checkpoint_bytes: of its checkpoint.
        data_bytes: of dataset and encodings.
        problem: why there is no forecast.
    """

    seconds: float | None = None
    memory_mib: float | None = None
    search_seconds: float = 0.0
    record_bytes: int = 0
    checkpoint_bytes: int = 0
    data_bytes: int = 0
    problem: str | None = None


def costs_of(
    wanted: Sequence[tuple[Cell, Grid]],
    store_root: Path,
    data: Path,
    at_once: int = 1,
    measure: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> list[ForecastCost]:
    """Return the cost of a run of each cell.

    Args:
        wanted: cells, each with a grid that has its limits.
        store_root: folder of the cache and of records.
        data: folder of packed data and encodings.
        at_once: how many cells are measured at the same time.
        measure: False to return an empty cost for cells that are not in the cache.
        say: called for each line of output.
    """
    path = store_root / FILE
    known, keys = _read(path), [_key(cell, grid, data) for cell, grid in wanted]
    missing = {key: pair for key, pair in zip(keys, wanted) if key not in known}
    if missing and measure:
        say(f"forecasting {len(missing)} of {len(set(keys))} cells, a few seconds each")
        with ThreadPoolExecutor(at_once) as pool:
            for key, cost in zip(missing, pool.map(lambda pair: _measured(pair[0], pair[1], data), missing.values())):
                known[key] = cost
                _add(path, key, cost)  # immediately, so that a stop loses no measurement
    return [
        _as_it_was(known.get(key, ForecastCost()), cell, grid, store_root) for key, (cell, grid) in zip(keys, wanted)
    ]


def _measured(cell: Cell, grid: Grid, data: Path) -> ForecastCost:
    measured = forecast([cell], grid, data)[0]
    if measured.problem is not None:
        return ForecastCost(problem=" ".join(measured.problem.split()))
    disk = measured.disk or {}
    return ForecastCost(
        measured.seconds,
        measured.memory_mib,
        measured.search_seconds,
        record_bytes=disk.get(f"store/{cell.cell}", 0) // max(1, measured.seeds),
        checkpoint_bytes=disk.get("checkpoints", 0),
        data_bytes=sum(size for what, size in disk.items() if what.startswith(("data/", "encodings/"))),
    )


def _as_it_was(cost: ForecastCost, cell: Cell, grid: Grid, store_root: Path) -> ForecastCost:
    took = actual(cell, grid, store_root=store_root)
    return replace(cost, seconds=took.seconds, memory_mib=took.memory_mib, problem=None) if took else cost


def _key(cell: Cell, grid: Grid, data: Path) -> str:
    """Return a digest of what a forecast depends on: recipe, search, whether the data are available, and the device."""
    from gt_bench.runtime.environment import choose_device, cpu_name, device_name

    recipe, searched = recipe_to_train(cell, grid), grid.with_method(load_recipe(cell.recipe_path), cell).search
    search = searched and [searched.model_dump(mode="json"), grid.limits_of(cell).trials]
    here = (data / "packed" / cell.dataset / "header.json").exists()
    return digest_of(
        [cell.dataset, here, recipe.decisive(), search, device_name(choose_device(grid.run.device)), cpu_name()]
    )


def _read(path: Path) -> dict[str, ForecastCost]:
    try:
        return TypeAdapter(dict[str, ForecastCost]).validate_json(path.read_bytes())
    except (OSError, ValueError):  # missing or damaged: measure again
        return {}


def _add(path: Path, key: str, cost: ForecastCost) -> None:
    """Add a cost to the file; several processes may do that at the same time."""
    make_folder(path.parent)
    with held(path.with_suffix(".lock")):
        write_json(path, {k: asdict(v) for k, v in (_read(path) | {key: cost}).items()})
