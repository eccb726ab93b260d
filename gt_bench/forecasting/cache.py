"""What a run of a cell costs: forecast once on this kind of machine and kept in store/forecasts.json; delete that file to measure anew.

Where records of the cell were made on this device, what they took counts instead.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import digest_of, load_recipe
from gt_bench.forecasting.estimate import actual, forecast, recipe_asked
from gt_bench.utils.io import held, make_folder, write_json

FILE = "forecasts.json"


@dataclass(frozen=True)
class Cost:
    """Of one run: seconds, peak memory in MiB, bytes of its record and of its checkpoint. `search_seconds`: of the cell's whole search;
    `data_bytes`: of dataset and encodings; `problem`: why nothing is known."""

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
) -> list[Cost]:
    """The cost of a run of each cell under its grid's limits; what is not known yet is measured, so many cells at once, or left open."""
    path = store_root / FILE
    known, keys = _read(path), [_key(cell, grid, data) for cell, grid in wanted]
    lacking = {key: one for key, one in zip(keys, wanted) if key not in known}
    if lacking and measure:
        say(f"forecasting {len(lacking)} of {len(set(keys))} cells, a few seconds each")
        with ThreadPoolExecutor(at_once) as pool:
            for key, cost in zip(lacking, pool.map(lambda one: _measured(one[0], one[1], data), lacking.values())):
                known[key] = cost
                _add(path, key, cost)  # at once: a stop costs no measurement
    return [_as_it_was(known.get(key, Cost()), cell, grid, store_root) for key, (cell, grid) in zip(keys, wanted)]


def _measured(cell: Cell, grid: Grid, data: Path) -> Cost:
    one = forecast([cell], grid, data)[0]
    if one.problem is not None:
        return Cost(problem=" ".join(one.problem.split()))
    disk = one.disk or {}
    return Cost(
        one.seconds,
        one.memory_mib,
        one.search_seconds,
        record_bytes=disk.get(f"store/{cell.cell}", 0) // max(1, one.seeds),
        checkpoint_bytes=disk.get("checkpoints", 0),
        data_bytes=sum(size for what, size in disk.items() if what.startswith(("data/", "encodings/"))),
    )


def _as_it_was(cost: Cost, cell: Cell, grid: Grid, store_root: Path) -> Cost:
    took = actual(cell, grid, store_root=store_root)
    return replace(cost, seconds=took.seconds, memory_mib=took.memory_mib, problem=None) if took else cost


def _key(cell: Cell, grid: Grid, data: Path) -> str:
    """What a forecast depends on: recipe, search, whether the data are here, and the device."""
    from gt_bench.runtime.environment import choose_device, cpu_name, device_name

    recipe, searched = recipe_asked(cell, grid), load_recipe(cell.recipe_path).search
    search = searched and [searched.model_dump(mode="json"), grid.limits_of(cell).trials]
    here = (data / "packed" / cell.dataset / "header.json").exists()
    return digest_of(
        [cell.dataset, here, recipe.decisive(), search, device_name(choose_device(grid.run.device)), cpu_name()]
    )


def _read(path: Path) -> dict[str, Cost]:
    try:
        return {key: _sound(Cost(**cost)) for key, cost in json.loads(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):  # not there, or damaged: measured again
        return {}


def _sound(cost: Cost) -> Cost:
    """Raises TypeError for what is no number."""
    numbers = [
        value
        for key, value in asdict(cost).items()
        if key != "problem" and not (key in ("seconds", "memory_mib") and value is None)
    ]
    if not all(isinstance(value, int | float) for value in numbers):
        raise TypeError("a cost is no number")
    return cost


def _add(path: Path, key: str, cost: Cost) -> None:
    """Adds a cost to the file, which several processes may do at once."""
    make_folder(path.parent)
    with held(path.with_suffix(".lock")):
        write_json(path, {k: asdict(v) for k, v in (_read(path) | {key: cost}).items()})
