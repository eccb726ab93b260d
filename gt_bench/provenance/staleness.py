"""Freshness of shipped records: which parts the current code would compute differently."""

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from gt_bench.config.cell_recipe import limited
from gt_bench.config.components import code_of, run_versions
from gt_bench.config.cuts import limits_of
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_section import Choice
from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import get_spec
from gt_bench.data.spec import DatasetSpec
from gt_bench.experiment import modified_code
from gt_bench.plugins.models import files_digest, is_own
from gt_bench.records.cell import Origins
from gt_bench.records.freshness import Freshness, Unknown
from gt_bench.records.run import RunRecord
from gt_bench.records.state import Stale, StalePart
from gt_bench.store.shipped_files import Shipped
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import DatasetError, UserError
from gt_bench.utils.json_types import Settings
from gt_bench.utils.versions import modules_of_encodings

DATA = Path("data")


def freshness(shipped: Shipped, grid: Grid) -> Freshness:
    """Compares recipe, versions, code, data and encodings of shipped records with the current ones.

    If the code differs, the stored comparison of golden values decides (gt_bench/experiment/modified_code.py); nothing
    is computed. Data and encodings are compared with those on disk, or else by the dataset's spec and the encodings'
    algorithms.

    Args:
        shipped: the shipped cell.
        grid: the grid.
    """
    try:
        cell = grid.find(shipped.cell)
        spec = get_spec(cell.dataset)
    except (RecipeError, DatasetError):
        return Freshness([Stale(part=StalePart.CELL)], [])
    stale: list[Stale] = []
    unknown: list[Unknown] = []
    runs = [r.run for r in shipped.records]
    if _recipe_changed(shipped, grid, cell):
        stale.append(Stale(part=StalePart.RECIPE))
    changed, unchecked = _code_changed(shipped, spec.task)
    stale += changed
    unknown += [Unknown.CODE] if unchecked else []
    if "start" in runs[0].recipe:
        unknown.append(Unknown.START)
    on_disk = (DATA / "packed" / cell.dataset / "header.json").exists()
    current: dict[Literal["data", "encodings"], str | None] = {
        "data": _data_now(shipped, spec),
        "encodings": _encodings_now(shipped, spec),
    }
    for what, now in current.items():
        if now is None:
            unknown.append(Unknown(what))
        elif {getattr(r.digests, what) for r in runs} != {now}:
            stale.append(Stale(part=StalePart(what)))
    return Freshness(stale, unknown, on_disk)


def compare_golden_values(shipped: Iterable[Shipped], grid: Grid) -> dict[str, str | None]:
    """Compares golden values of all cells whose code has changed, in parallel, for later calls of `freshness`.

    Returns:
        By cell with golden values how its golden run differs from the stored values, or None if it does not.
    """
    wanted: dict[str, str] = {}
    for file in shipped:
        with contextlib.suppress(UserError, KeyError):
            wanted |= _reference(file, get_spec(grid.find(file.cell).dataset).task)
    return modified_code.differences(wanted)


def code_now(record: RunRecord, task: str) -> str | None:
    """Returns the digest of the current code for a record's run, None if the model cannot be imported."""
    model = record.run.recipe["model"]["name"]
    try:
        return code_of(None if is_own(model) else model, task)
    except (KeyError, ModuleNotFoundError, SyntaxError, UserError):
        return None


def _code_changed(shipped: Shipped, task: str) -> tuple[list[Stale], bool]:
    """Returns differences of versions, files or golden values, and whether golden values must be compared first."""
    ran = shipped.records[0].run
    model = ran.recipe["model"]["name"]
    try:
        inductive = {"inductive": True} if "inductive" in ran.versions else {}  # a property of the data
        now = run_versions(None if is_own(model) else model, task, ran.recipe | inductive)
        files = files_digest(model)
    except (KeyError, ModuleNotFoundError, SyntaxError, UserError):
        return [Stale(part=StalePart.CODE)], False
    if code_now(shipped.records[0], task) is None:
        return [Stale(part=StalePart.CODE)], False
    changed = [
        Stale(part=StalePart.VERSION, component=component, then=then, now=now.get(component))
        for component, then in ran.versions.items()
        if now.get(component) != then
    ]
    changed += [
        Stale(part=StalePart.VERSION, component=component, now=version)
        for component, version in now.items()
        if component not in ran.versions
    ]
    changed += [Stale(part=StalePart.FILES)] if files != ran.digests.files else []
    changed += [Stale(part=StalePart.MODIFIED)] if any(r.run.digests.modified for r in shipped.records) else []
    reference = _reference(shipped, task)
    known = modified_code.known_differences(reference)
    changed += [Stale(part=StalePart.CODE, difference=text) for text in known.values() if text and not changed]
    return changed, any(cell not in known for cell in reference)


def _reference(shipped: Shipped, task: str) -> dict[str, str]:
    """Returns the cells whose golden values apply to the records, and their code. Empty if no code has changed."""
    ran = shipped.records[0].run
    if {record.measured.code for record in shipped.records} == {code_now(shipped.records[0], task)}:
        return {}
    components = {*ran.versions, *modules_of_encodings(ran.recipe["encodings"])}
    return modified_code.references_of(shipped.cell, ran.recipe["model"]["name"], task, components)


def _recipe_changed(shipped: Shipped, grid: Grid, cell: Cell) -> bool:
    ran = shipped.records[0].run.recipe
    try:
        now = recipe_now(shipped, ran, load_recipe(cell.recipe_path), grid, cell)
    except (RecipeError, KeyError):
        return True
    return without_source(now.decisive()) != without_source(ran) or list(now.seeds) != list(shipped.result.seeds)


def recipe_now(shipped: Shipped, ran: Settings, recipe: Recipe, grid: Grid, cell: Cell) -> Recipe:
    """Returns the current recipe for the run with the recipe `ran`.

    The values that the search chose, and the limits of the result, are applied to it.

    Raises:
        RecipeError, KeyError: the current search space does not contain the chosen values.
    """
    limits = {cell.cell: limits_of(shipped.result.reduced)}
    if recipe.search is not None:
        recipe = recipe.with_values(searched_values(recipe, ran))
    return limited(recipe, grid.model_copy(update={"limits": limits}), cell)[0]


def without_source(decisive: Settings) -> Settings:
    """Removes the source of a fine-tuning, which is a run in records and a cell in recipes; only `load` is compared."""
    start = decisive.get("start")
    return decisive if start is None else decisive | {"start": start["load"]}


def searched_values(recipe: Recipe, ran: Settings) -> Settings:
    """Returns the values that the search chose, from the recipe that ran.

    Raises:
        KeyError: the search space no longer contains a value.
    """
    values = {}
    for key, space in recipe.searched.space.items():
        value: Any = ran
        for part in key.split("."):
            value = value[part]
        if (value not in space.choices) if isinstance(space, Choice) else not space.low <= value <= space.high:
            raise KeyError(key)
        values[key] = value
    return values


def _data_now(shipped: Shipped, spec: DatasetSpec) -> str | None:
    """Returns the digest of the dataset by the current code, None if it is unknown."""
    from gt_bench.data.prepare import valid

    header = valid(spec, DATA / "packed" / spec.name)
    if header is not None:
        return header.digest
    return shipped.origins.data if shipped.origins.spec == spec.digest else None


def _encodings_now(shipped: Shipped, spec: DatasetSpec) -> str | None:
    """Returns the digest of the encodings by the current code, None if it is unknown."""
    requests = _requests(shipped.records)
    here = _encodings_here(requests, spec)
    if here is not None:
        return here
    return shipped.origins.encodings if shipped.origins.algorithms == _algorithms(requests) else None


def _requests(records: list[RunRecord]) -> dict[str, Settings]:
    """Returns the encodings of the runs of a cell."""
    return records[0].run.recipe.get("encodings") or {}


def _encodings_here(requests: dict[str, Settings], spec: DatasetSpec) -> str | None:
    """Returns the digest of the encodings on disk, else of those for the data on disk, None without data."""
    if not requests:
        return digest_of({})

    try:
        packed = PackedDataset.open(DATA / "packed" / spec.name)
        from gt_bench.encodings.cache import EncodedDataset, encodings_digest  # loads torch

        try:
            return EncodedDataset(packed, DATA / "encodings" / spec.name, requests).digest
        except DatasetError:
            return encodings_digest(packed, requests)
    except (DatasetError, ValueError):
        return None


def _algorithms(requests: dict[str, Settings]) -> dict[str, str] | None:
    from gt_bench.encodings.cache import algorithm_digest
    from gt_models.encodings import EncodingError

    try:
        return {name: algorithm_digest(name, arguments or {}) for name, arguments in requests.items()}
    except EncodingError:
        return None


def origins_of(cell: Cell, records: list[RunRecord]) -> Origins:
    """Returns the origins of the records' data and encodings, if those on disk are the ones that the records name."""
    from gt_bench.data.prepare import valid

    digests, spec = [r.run.digests for r in records], get_spec(cell.dataset)
    header = valid(spec, DATA / "packed" / cell.dataset)
    if header is None or {d.data for d in digests} != {header.digest}:
        return Origins()
    origins = Origins(data=header.digest, spec=spec.digest)
    requests = _requests(records)
    encodings = _encodings_here(requests, spec)
    if requests and {d.encodings for d in digests} == {encodings}:
        return origins.model_copy(update={"encodings": encodings, "algorithms": _algorithms(requests)})
    return origins
