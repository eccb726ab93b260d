"""Golden values: the results of a short run of each cell, stored to full precision to detect changed numbers.

A cell's golden run trains its recipe on a miniature of its dataset, encodings included. The recipe is shortened but
complete: each phase, the schedule, early stopping, choice of the best epoch, test. It stops after its first epoch and
resumes from the checkpoint. It runs on one thread, in float64, with the reference implementation of every operation.
suites/SUITE/golden.json contains the results and the versions (gt_bench/utils/versions.py) that they belong to. Values
are compared up to TOLERANCE, because processors round differently. A change that alters golden values must raise a
version. Otherwise its runs have a digest of their own and are not compared with the published numbers.
"""

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from gt_bench.config.components import modules_of_run
from gt_bench.config.recipe import Recipe
from gt_bench.utils.code_digest import ROOT, source_file
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import write_bytes
from gt_bench.utils.json_types import Json
from gt_bench.utils.paths import SUITES, recipe_file
from gt_bench.utils.versions import modules_of_encodings

VALUES = "golden.json"  # in the folder of a suite
RECIPES = "golden"  # in the folder of a suite: recipes that only golden runs use
TOLERANCE = 1e-6  # relative; processors round differently
NOISE = 1e-9  # absolute tolerance, for values near 0
UNSTABLE = "unstable"  # replaces a value that depends on rounding and therefore differs between processors
STABLE = 1e-7  # relative: a value that changes by more than this when the weights change by rounding is unstable
EPOCHS, PER_PHASE, PATIENCE, LAYERS = 4, 2, 2, 2
DEPTHS = ("num_layers", "num_local_layers", "num_global_layers")


class GoldenError(UserError, ValueError):
    """A golden file is missing, damaged or newer than the code. The message names the file, the cell and the remedy."""


class Entry(TypedDict):
    """Golden values of a cell.

    Attributes:
        model: name of the model.
        task: name of the task.
        versions: declared version by component. An encoding is "encoding NAME".
        recipe: digest of the shortened recipe.
        data: digest of the miniature of the dataset.
        values: values by quantity, in the order of computation. UNSTABLE if rounding decides a value.
        operations: operations of gt_models.kernels that the run called.
        sha256: checksum of the other keys, to detect edited entries.
    """

    model: str
    task: str
    versions: dict[str, int]
    recipe: str
    data: str
    values: dict[str, Json]
    operations: list[str]
    sha256: NotRequired[str]


def shortened(recipe: Recipe) -> Recipe:
    """Returns the recipe of a golden run: one seed, few epochs, layers and graphs per batch, float64, one thread."""
    changes: dict[str, object] = {
        "seeds": recipe.seeds[:1],
        "search": None,
        "precision": "float64",
        "threads": 1,
        "processes": min(recipe.processes, 2),
    }
    changes |= {"eval_every": min(recipe.eval_every, 2), "eval_after": 1 if recipe.eval_after is not None else None}
    if recipe.phases:
        changes["phases"] = [phase.model_copy(update={"epochs": PER_PHASE}) for phase in recipe.phases]
    else:
        changes["epochs"] = min(EPOCHS, recipe.total_epochs)
    if recipe.patience:
        changes["patience"] = PATIENCE
    schedule, batch = recipe.schedule, recipe.batch
    short = {
        "warmup": min(schedule.warmup, 2),
        "patience": 1,
        "every": schedule.every and 2,
        "total": schedule.total and 4,
    }
    changes["schedule"] = schedule.model_copy(update=short)
    small = {"parts": batch.parts and min(batch.parts, 2)}
    if batch.graphs and not recipe.protocol:  # a miniature has five training graphs: the last step is smaller
        small["graphs"] = min(batch.graphs, 3)
    changes["batch"] = batch.model_copy(update=small)
    layers = {
        key: min(value, LAYERS)
        for key, value in recipe.model.arguments.items()
        if key in DEPTHS and isinstance(value, int)
    }
    changes["model"] = recipe.model.model_copy(update=layers)
    result = recipe.model_copy(update=changes)
    return result.with_protocol(result.protocol.of_miniature()) if result.protocol else result


def recipe_digest(recipe: Recipe) -> str:
    """Returns the sha256 of the keys that decide the recipe's golden run."""
    return digest_of(shortened(recipe).decisive() | {"seeds": recipe.seeds[:1]})


def components(recipe: Recipe, task: str) -> dict[str, str]:
    """Returns {component: module that declares its version} for a recipe's runs. An encoding is "encoding NAME"."""
    return modules_of_encodings(recipe.encodings) | modules_of_run(recipe.model.name, task, recipe.decisive())


def sealed(entry: Entry) -> Entry:
    """Returns the entry with the checksum of its contents."""
    content = {key: value for key, value in entry.items() if key != "sha256"}
    return cast(Entry, content | {"sha256": digest_of(content)[:16]})


def golden_recipe(cell: str, root: Path = SUITES) -> Path:
    """Returns the file of a cell's recipe: suites/SUITE/golden/DATASET/ROW.yaml if it exists, else `recipe_file`."""
    suite, _, row = cell.partition("/")
    path = root / suite / RECIPES / f"{row}.yaml"
    return path if path.exists() else recipe_file(cell, root)


def golden_file(suite: str, root: Path = Path()) -> Path:
    """Returns the path of a suite's golden values. The file need not exist."""
    return root / SUITES / suite / VALUES


def load(suite: str, root: Path = Path()) -> dict[str, Entry]:
    """Reads the golden values of a suite.

    Returns:
        Golden values by cell.

    Raises:
        GoldenError: the file is missing, damaged, edited by hand, or contains a cell twice.
    """
    path = golden_file(suite, root)
    try:
        return _read_file(path, path.stat().st_mtime_ns)
    except OSError:
        remedy = f"compute them: `python -m gt_bench.testing.check_grid {suite} --update`"
        raise GoldenError(f"no golden values of {suite}", file=path, value=suite, remedy=remedy) from None


@cache
def _read_file(path: Path, _mtime: int) -> dict[str, Entry]:
    def distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            remedy = f"remove one, or restore the file (`git checkout {path}`)"
            raise GoldenError(f"duplicate key {twice[0]!r}", file=path, value=twice[0], remedy=remedy)
        return dict(pairs)

    try:
        entries = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=distinct)
        for cell, entry in entries.items():
            if entry != sealed(entry):
                raise GoldenError(
                    f"the golden values of {cell} were edited by hand",
                    file=path,
                    value=cell,
                    remedy=f"restore the file (`git checkout {path}`), or compute them: "
                    f"`python -m gt_bench.testing.check_grid {cell} --update`",
                )
            _ = entry["versions"], entry["values"], entry["recipe"], entry["data"]
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        if isinstance(error, GoldenError):
            raise
        remedy = f"restore it (`git checkout {path}`)"
        raise GoldenError(f"not a file of golden values ({error})", file=path, remedy=remedy) from None
    return cast(dict[str, Entry], entries)


def save(suite: str, entries: Mapping[str, Entry], root: Path = Path()) -> Path:
    """Writes the golden values of a suite, one line per cell.

    Raises:
        WriteError: the file cannot be written.
    """
    lines = [f"{json.dumps(cell)}: {json.dumps(entry)}" for cell, entry in sorted(entries.items())]
    return write_bytes(golden_file(suite, root), ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def find(cell: str, root: Path = Path()) -> Entry | None:
    """Returns the golden values of a cell, or None if it has none.

    Raises:
        GoldenError: the file is damaged or edited.
    """
    suite = cell.partition("/")[0]
    return load(suite, root).get(cell) if golden_file(suite, root).exists() else None


def differs(cell: str, stored: Entry, now: Entry, modules: Mapping[str, str]) -> str | None:
    """Compares a golden run with the stored golden values.

    Args:
        cell: name of the cell, for messages.
        stored: stored golden values.
        now: values of the current code.
        modules: {component: module that declares its version}, from `components`.

    Returns:
        What differs and what to do about it, or None if they agree.
    """
    for component, version in stored["versions"].items():
        declared = now["versions"].get(component)
        if declared is not None and declared < version:
            return (
                f"the {component} has version {declared} in {_file(modules, component)}, but its golden values are of "
                f"version {version}: a version never decreases; update the code, or raise VERSION"
            )
    update = f"store the new values: `python -m gt_bench.testing.check_grid {cell} --update`"
    if (stored["recipe"], stored["data"]) != (now["recipe"], now["data"]):
        what = "recipe" if stored["recipe"] != now["recipe"] else "miniature of its dataset"
        return f"its {what} has changed since its golden values were computed; {update}"
    if stored["versions"] != now["versions"]:
        raised = [name for name, version in now["versions"].items() if version != stored["versions"].get(name)]
        return f"the version of {', '.join(raised)} was raised since its golden values were computed; {update}"
    difference = first_difference(stored["values"], now["values"])
    if difference is None:
        return None
    quantity, before, after = difference
    component = _likely_component(quantity, modules)
    return (
        f"{quantity} was {before}, now {after}: if this is meant, raise VERSION in {_file(modules, component)} "
        f"({component}), or in another file listed below that has changed, then {update}. "
        f"Versions: {', '.join(f'{_file(modules, c)} ({c})' for c in modules)}"
    )


def same_computation(stored: Entry, now: Entry) -> bool:
    """Returns whether both entries have the same recipe, miniature and versions."""
    return (stored["versions"], stored["recipe"], stored["data"]) == (now["versions"], now["recipe"], now["data"])


def agrees(stored: Entry | None, now: Entry) -> bool:
    """Returns whether there are stored values of the same computation, and they are equal up to rounding."""
    if stored is None or not same_computation(stored, now):
        return False
    return first_difference(stored["values"], now["values"]) is None


def updated(stored: Entry | None, now: Entry) -> Entry:
    """The entry to save: the saved values if they agree with those of now, so that files do not change by rounding."""
    if stored is None or not agrees(stored, now):
        return now
    return sealed(cast(Entry, stored | {"operations": now["operations"]}))


def first_difference(stored: Mapping[str, Json], now: Mapping[str, Json]) -> tuple[str, Json, Json] | None:
    """Returns the first difference of two sets of values that is larger than rounding.

    Returns:
        (quantity, stored value, current value), or None if there is none.
    """
    before, after = dict(_flat(stored)), dict(_flat(now))
    for name in [*before, *(name for name in after if name not in before)]:
        a, b = before.get(name, "nothing"), after.get(name, "nothing")
        if a != UNSTABLE and not _is_close(a, b, TOLERANCE):
            return name, a, b
    return None


def without_unstable(values: Json, other: Json) -> Json:
    """Replaces the values that depend on rounding by UNSTABLE.

    Args:
        values: values of a golden run, nested.
        other: values of a second run, whose initial weights differ by rounding.
    """
    if isinstance(values, dict) and isinstance(other, dict):
        return {key: without_unstable(value, other.get(key)) for key, value in values.items()}
    if isinstance(values, list) and isinstance(other, list) and len(values) == len(other):
        return [without_unstable(a, b) for a, b in zip(values, other, strict=True)]
    return values if _is_close(values, other, STABLE) else UNSTABLE


def _is_close(a: Json, b: Json, tolerance: float) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=tolerance, abs_tol=NOISE) or (math.isnan(a) and math.isnan(b))
    return a == b


def _flat(values: object, name: str = "") -> Iterator[tuple[str, Json]]:
    if isinstance(values, Mapping):
        for key, value in values.items():
            yield from _flat(value, f"{name}.{key}" if name else key)
    elif isinstance(values, list):
        for number, value in enumerate(values):
            yield from _flat(value, f"{name}[{number}]")
    else:
        yield name, cast(Json, values)


def _likely_component(quantity: str, modules: Mapping[str, str]) -> str:
    """Returns the component that most likely changed if `quantity` is the first that differs."""
    name = quantity.partition("[")[0].partition(".")[0]
    if name == "encodings":
        encoding = quantity.partition(".")[2].partition("-")[0].partition("/")[0]
        return next((component for component in modules if component == f"encoding {encoding}"), "model")
    if name in ("parameters", "initial_norm", "gradient") or quantity == "losses[0]":
        return "model" if "model" in modules else "trainer"
    return "task" if name in ("val", "val_loss", "test", "best_epoch") else "trainer"


def _file(modules: Mapping[str, str], component: str) -> str:
    path = source_file(modules[component])
    return str(path.relative_to(ROOT)) if path else modules[component]
