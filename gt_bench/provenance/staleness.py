"""Freshness of shipped records: which parts the current code would compute differently."""

import contextlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from gt_bench.config.cuts import limits_in
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_section import Choice
from gt_bench.data.spec import DatasetSpec
from gt_bench.experiment import modified_code
from gt_bench.experiment.cell import limited
from gt_bench.experiment.components import code_of, run_versions
from gt_bench.plugins.models import files_digest, is_own
from gt_bench.schemas import Origins, Record, Settings
from gt_bench.store.shipped_files import Shipped
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import DatasetError, UserError

UNCHECKED = "code changed since the last check (`gt-bench check`)"


@dataclass(frozen=True)
class Freshness:
    """Freshness of a shipped cell.

    Attributes:
        stale: parts that would be computed differently now.
        unknown: parts that cannot be compared.
    """

    stale: list[str]
    unknown: list[str]

    @property
    def text(self) -> str:
        """The freshness as text."""
        parts = [f"stale: {', '.join(self.stale)}"] if self.stale else []
        return "; ".join(parts + ([f"unknown: {', '.join(self.unknown)}"] if self.unknown else [])) or "up to date"


def freshness(shipped: Shipped, grid: Grid) -> Freshness:
    """Compares recipe, versions, code, data and encodings of shipped records with the current ones.

    If the code differs, the stored comparison of golden values decides (gt_bench/experiment/modified_code.py); nothing
    is computed. Data and encodings are compared with those on disk, or else by the dataset's spec and the encodings'
    algorithms.

    Args:
        shipped: the shipped cell.
        grid: the grid.
    """
    from gt_bench.data.registry import get_spec

    try:
        cell = grid.find(shipped.cell)
        spec = get_spec(cell.dataset)
    except (RecipeError, DatasetError):
        return Freshness(["the cell no longer exists"], [])
    stale, unknown = [], []
    runs = [r["deterministic"] for r in shipped.records]
    if _recipe_changed(shipped, grid, cell):
        stale.append("recipe")
    changed, unchecked = _code_changed(shipped, spec.task)
    stale += changed
    unknown += [UNCHECKED] if unchecked else []
    if "start" in runs[0]["recipe"]:
        unknown.append("the run that it starts from")
    data = Path("data")
    on_disk = (data / "packed" / cell.dataset / "header.json").exists()
    current: dict[Literal["data", "encodings"], str | None] = {
        "data": _data_now(shipped, spec, data),
        "encodings": _encodings_now(shipped, spec, data),
    }
    for what, now in current.items():
        if now is None:
            unknown.append(f"{what} ({'computed by other code' if on_disk else 'not available'})")
        elif {r["digests"][what] for r in runs} != {now}:
            stale.append(what)
    return Freshness(stale, unknown)


def compare_golden_values(shipped: Iterable[Shipped], grid: Grid) -> dict[str, str | None]:
    """Compares golden values of all cells whose code has changed, in parallel, for later calls of `freshness`.

    Returns:
        By cell with golden values how its golden run differs from the stored values, or None if it does not.
    """
    from gt_bench.data.registry import get_spec

    wanted: dict[str, str] = {}
    for one in shipped:
        with contextlib.suppress(UserError, KeyError):
            wanted |= _reference(one, get_spec(grid.find(one.cell).dataset).task)
    return modified_code.differences(wanted, say=partial(print, file=sys.stderr, flush=True))


def code_now(record: Record, task: str) -> str | None:
    """Returns the digest of the current code for a record's run, None if the model cannot be imported."""
    model = record["deterministic"]["recipe"]["model"]["name"]
    try:
        return code_of(None if is_own(model) else model, task)
    except (KeyError, ModuleNotFoundError, SyntaxError, UserError):
        return None


def _code_changed(shipped: Shipped, task: str) -> tuple[list[str], bool]:
    """Returns differences of versions, files or golden values, and whether golden values must be compared first."""
    ran = shipped.records[0]["deterministic"]
    model = ran["recipe"]["model"]["name"]
    try:
        inductive = {"inductive": True} if "inductive" in ran["versions"] else {}  # a property of the data
        now = run_versions(None if is_own(model) else model, task, ran["recipe"] | inductive)
        files = files_digest(model)
    except (KeyError, ModuleNotFoundError, SyntaxError, UserError):
        return ["code"], False
    if code_now(shipped.records[0], task) is None:
        return ["code"], False
    changed = [
        f"{component} (version {then}, {f'now {now[component]}' if component in now else 'removed'}"
        f"{': these records were computed by newer code' if then > now.get(component, then) else ''})"
        for component, then in ran["versions"].items()
        if now.get(component) != then
    ]
    changed += [f"{component} (no version in the records)" for component in now if component not in ran["versions"]]
    changed += ["files"] if files != ran["digests"].get("files") else []
    changed += ["modified code"] if any("modified" in r["deterministic"]["digests"] for r in shipped.records) else []
    reference = _reference(shipped, task)
    known = modified_code.known_differences(reference)
    changed += [f"code ({text})" for text in known.values() if text and not changed]
    return changed, any(cell not in known for cell in reference)


def _reference(shipped: Shipped, task: str) -> dict[str, str]:
    """Returns the cell whose golden values apply to the records, and its code. Empty if the code has not changed."""
    model = shipped.records[0]["deterministic"]["recipe"]["model"]["name"]
    if {record["measured"]["code"] for record in shipped.records} == {code_now(shipped.records[0], task)}:
        return {}
    return modified_code.reference_of(shipped.cell, model, task)


def _recipe_changed(shipped: Shipped, grid: Grid, cell: Cell) -> bool:
    ran = shipped.records[0]["deterministic"]["recipe"]
    try:
        now = recipe_now(shipped, ran, load_recipe(cell.recipe_path), grid, cell)
    except (RecipeError, KeyError):
        return True
    return without_source(now.decisive()) != without_source(ran) or list(now.seeds) != list(shipped.result["seeds"])


def recipe_now(shipped: Shipped, ran: Settings, recipe: Recipe, grid: Grid, cell: Cell) -> Recipe:
    """Returns the current recipe for the run with the recipe `ran`.

    The values that the search chose, and the limits of the result, are applied to it.

    Raises:
        RecipeError, KeyError: the current search space does not contain the chosen values.
    """
    limits = {cell.cell: limits_in(shipped.result["reduced"])}
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


def _data_now(shipped: Shipped, spec: DatasetSpec, data: Path) -> str | None:
    """Returns the digest of the dataset by the current code, None if it is unknown."""
    from gt_bench.data.prepare import valid

    header = valid(spec, data / "packed" / spec.name)
    if header is not None:
        return header.digest
    return shipped.origins.get("data") if shipped.origins.get("spec") == spec.digest else None


def _encodings_now(shipped: Shipped, spec: DatasetSpec, data: Path) -> str | None:
    """Returns the digest of the encodings by the current code, None if it is unknown."""
    requests = _requests(shipped.records)
    here = _encodings_here(requests, spec, data)
    if here is not None:
        return here
    return shipped.origins.get("encodings") if shipped.origins.get("algorithms") == _algorithms(requests) else None


def _requests(records: list[Record]) -> dict[str, Settings]:
    """Returns the encodings of the runs of a cell."""
    return records[0]["deterministic"]["recipe"].get("encodings") or {}


def _encodings_here(requests: dict[str, Settings], spec: DatasetSpec, data: Path) -> str | None:
    """Returns the digest of the encodings on disk, else of those for the data on disk, None without data."""
    if not requests:
        return digest_of({})
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
    """Returns the origins of the records' data and encodings, if those on disk are the ones that the records name."""
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
