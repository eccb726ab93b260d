"""Which shipped records are stale: what of them the present tree would compute differently."""

import contextlib
import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.limits import limits_in
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_space import Choice
from gt_bench.data.spec import DatasetSpec
from gt_bench.experiment import golden_values
from gt_bench.experiment.cell import limited
from gt_bench.experiment.components import code_of, run_versions
from gt_bench.plugins.models import files_digest, is_own
from gt_bench.schemas import Origins, Record, Settings
from gt_bench.store.archive import Shipped
from gt_bench.utils.errors import DatasetError, UserError


@dataclass(frozen=True)
class Standing:
    """Whether a shipped cell is fresh: `stale` names what would be computed differently now, `unknown` what cannot be found out."""

    stale: list[str]
    unknown: list[str]

    @property
    def text(self) -> str:
        """In words."""
        parts = [f"stale: {', '.join(self.stale)}"] if self.stale else []
        return (
            "; ".join(parts + ([f"cannot be told: {', '.join(self.unknown)}"] if self.unknown else []))
            or "as the present tree computes it"
        )


def standing(shipped: Shipped, grid: Grid, data: Path = Path("data")) -> Standing:
    """Compares recipe, versions, code, data and encodings of the shipped records with the present tree.

    Where the code differs, golden values of the cell decide (gt_bench/experiment/golden_values.py). Data and encodings are compared with what is on disk,
    else with the spec and the algorithms they were made by.
    """
    from gt_bench.data.registry import get_spec

    try:
        cell = grid.find(shipped.cell)
        spec = get_spec(cell.dataset)
    except (RecipeError, DatasetError):
        return Standing(["no such cell any more"], [])
    stale, unknown = [], []
    runs = [r["deterministic"] for r in shipped.records]
    if _recipe_changed(shipped, grid, cell):
        stale.append("recipe")
    stale += _code_changed(shipped, spec.task)
    if "start" in runs[0]["recipe"]:
        unknown.append("the run that it starts from")
    on_disk = (data / "packed" / cell.dataset / "header.json").exists()
    present: dict[Literal["data", "encodings"], str | None] = {
        "data": _data_now(shipped, spec, data),
        "encodings": _encodings_now(shipped, spec, data),
    }
    for what, now in present.items():
        if now is None:
            unknown.append(f"{what} ({'made by other code' if on_disk else 'not at hand'})")
        elif {r["digests"][what] for r in runs} != {now}:
            stale.append(what)
    return Standing(stale, unknown)


def compare_golden_values(shipped: Iterable[Shipped], grid: Grid) -> None:
    """Compares golden values of all cells whose code has changed, side by side, so that `standing` of each finds the outcome."""
    from gt_bench.data.registry import get_spec

    wanted: dict[str, str] = {}
    for one in shipped:
        with contextlib.suppress(UserError, KeyError):
            wanted |= _guardian(one, get_spec(grid.find(one.cell).dataset).task)
    golden_values.differences(wanted, say=partial(print, file=sys.stderr, flush=True))


def code_now(record: Record, task: str) -> str | None:
    """Hash of the present tree's code for a record's run; None where there is no such model, or none that runs."""
    model = record["deterministic"]["recipe"]["model"]["name"]
    try:
        return code_of(None if is_own(model) else model, task)
    except (KeyError, ModuleNotFoundError, SyntaxError, UserError):
        return None


def _code_changed(shipped: Shipped, task: str) -> list[str]:
    """What of the code that made the records is another now: versions, files of a user's own model, or golden values."""
    ran = shipped.records[0]["deterministic"]
    model = ran["recipe"]["model"]["name"]
    try:
        now = run_versions(None if is_own(model) else model, task, ran["recipe"])
        files = files_digest(model, {key: value for key, value in ran["recipe"]["model"].items() if key != "name"})
    except (KeyError, ModuleNotFoundError, SyntaxError, UserError):
        return ["code"]
    if code_now(shipped.records[0], task) is None:
        return ["code"]
    changed = [
        f"{component} (version {then}, {f'now {now[component]}' if component in now else 'gone'}"
        f"{': these records are of newer code' if then > now.get(component, then) else ''})"
        for component, then in ran["versions"].items()
        if now.get(component) != then
    ]
    changed += [f"{component} (no version in the records)" for component in now if component not in ran["versions"]]
    changed += ["files"] if files != ran["digests"].get("files") else []
    changed += ["modified code"] if any("modified" in r["deterministic"]["digests"] for r in shipped.records) else []
    differing = [text for text in golden_values.differences(_guardian(shipped, task)).values() if text]
    return changed + [f"code ({text})" for text in differing if not changed]


def _guardian(shipped: Shipped, task: str) -> dict[str, str]:
    """The cell whose golden values speak for the records, and its code; nothing where the records are of the present code."""
    model = shipped.records[0]["deterministic"]["recipe"]["model"]["name"]
    if {record["measured"]["code"] for record in shipped.records} == {code_now(shipped.records[0], task)}:
        return {}
    cell = golden_values.reference_cell(shipped.cell, model, task)
    return {} if cell is None else {cell: code_of(*golden_values.model_and_task(cell))}


def _recipe_changed(shipped: Shipped, grid: Grid, cell: Cell) -> bool:
    ran = shipped.records[0]["deterministic"]["recipe"]
    try:
        now = recipe_now(shipped, ran, load_recipe(cell.recipe_path), grid, cell)
    except (RecipeError, KeyError):
        return True
    return _without_source(now.decisive()) != _without_source(ran) or list(now.seeds) != list(shipped.result["seeds"])


def recipe_now(shipped: Shipped, ran: Settings, recipe: Recipe, grid: Grid, cell: Cell) -> Recipe:
    """What the cell's present recipe would run where `ran` ran: with what a search chose then, and cut as the result says. Raises RecipeError
    or KeyError where the present search space does not hold what was chosen."""
    limits = {cell.cell: limits_in(shipped.result["reduced"])}
    if recipe.search is not None:
        recipe = recipe.with_values(searched_values(recipe, ran))
    return limited(recipe, grid.model_copy(update={"limits": limits}), cell)[0]


def _without_source(decisive: Settings) -> Settings:
    """A run names the run that it starts from, a recipe the cell: what both say is how its weights are taken."""
    start = decisive.get("start")
    return decisive if start is None else decisive | {"start": start["load"]}


def searched_values(recipe: Recipe, ran: Settings) -> Settings:
    """What the search chose, read from the recipe that ran. Raises KeyError for a value that the space no longer holds."""
    values = {}
    for key, space in recipe.searched.space.items():
        value: Any = ran
        for part in key.split("."):
            value = value[part]
        if (value not in space.choices) if isinstance(space, Choice) else not space.low <= value <= space.high:
            raise KeyError(key)
        values[key] = value
    return values


def _data_now(shipped: Shipped, spec: DatasetSpec, data: Path) -> str | None:
    """Digest of the dataset as this tree would have it; None where that cannot be known."""
    from gt_bench.data.prepare import valid

    header = valid(spec, data / "packed" / spec.name)
    if header is not None:
        return header.digest
    return shipped.origins.get("data") if shipped.origins.get("spec") == spec.digest else None


def _encodings_now(shipped: Shipped, spec: DatasetSpec, data: Path) -> str | None:
    """Digest of the encodings as this tree would have them, computed yet or not; None where that cannot be known."""
    requests = _requests(shipped.records)
    here = _encodings_here(requests, spec, data)
    if here is not None:
        return here
    return shipped.origins.get("encodings") if shipped.origins.get("algorithms") == _algorithms(requests) else None


def _requests(records: list[Record]) -> dict[str, Settings]:
    """The encodings that the runs of a cell asked for."""
    return records[0]["deterministic"]["recipe"].get("encodings") or {}


def _encodings_here(requests: dict[str, Settings], spec: DatasetSpec, data: Path) -> str | None:
    """Of the encodings on disk, else of those that would be computed of the data on disk; None without data."""
    if not requests:
        return hashlib.sha256(b"{}").hexdigest()
    from gt_bench.data.packed import PackedDataset
    from gt_bench.encodings.cache import EncodedDataset, encodings_digest

    try:
        packed = PackedDataset.open(data / "packed" / spec.name)
        try:
            return EncodedDataset(packed, data / "encodings" / spec.name, requests).digest
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


def origins_of(cell: Cell, records: list[Record], data: Path) -> Origins:
    """What the records' data and encodings were made from, noted only where what is on disk now is what the records name."""
    from gt_bench.data.prepare import valid
    from gt_bench.data.registry import get_spec

    digests, spec = [r["deterministic"]["digests"] for r in records], get_spec(cell.dataset)
    header = valid(spec, data / "packed" / cell.dataset)
    if header is None or {d["data"] for d in digests} != {header.digest}:
        return {}
    origins: Origins = {"data": header.digest, "spec": spec.digest}
    requests = _requests(records)
    encodings = _encodings_here(requests, spec, data)
    if requests and {d["encodings"] for d in digests} == {encodings}:
        origins |= {"encodings": encodings, "algorithms": _algorithms(requests)}
    return origins
