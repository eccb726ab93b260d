"""Golden values: what a short run of each cell computes, kept to full precision, so that a changed number is noticed.

A cell's golden run is its recipe, shortened but complete (each phase, the schedule, early stopping, choice of the best epoch, test),
on a miniature of its dataset, encodings included, on one thread, in float64, with the reference implementation of every operation.
suites/SUITE/golden.json keeps what it computed, and the versions (gt_bench/utils/versions.py) that it belongs to. Values agree up to TOLERANCE, so
they are the same on every processor. A change that alters them must raise a version, or no run of it counts as the published one.

suites/SUITE/golden_checked.json keeps for each cell the hash of the code by which its values were last compared: they are compared again only
where the code has another.
"""

import contextlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from gt_bench.config.recipe import Recipe, digest_of, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.components import modules_of_run
from gt_bench.schemas import Json
from gt_bench.utils.code_digest import ROOT, source_file
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import WriteError, write_bytes, write_json
from gt_bench.utils.paths import INSTALLED, SUITES, recipe_file
from gt_bench.utils.versions import modules_of_encodings

VALUES, CHECKED = "golden.json", "golden_checked.json"  # in the folder of a suite
TOLERANCE = 1e-6  # relative; processors round differently
NOISE = 1e-9  # absolute: smaller differences are rounding, whatever they are relative to
UNSTABLE = "unstable"  # in place of a value that is decided by rounding, and so differs between processors
STABLE = 1e-7  # relative: what moves more than this when weights move by rounding is unstable
EPOCHS, PER_PHASE, PATIENCE, LAYERS = 4, 2, 2, 2
DEPTHS = ("num_layers", "num_local_layers", "num_global_layers")


class GoldenError(UserError, ValueError):
    """A golden file that is missing, damaged or newer than the code; the message names file, cell and remedy."""


class Entry(TypedDict):
    """Golden values of a cell.

    Attributes:
        model, task: names.
        versions: by component; an encoding is "encoding NAME".
        recipe, data: digests of the shortened recipe and of the miniature.
        values: by quantity, in the order in which a run computes them; UNSTABLE where rounding decides.
        operations: operations of gt_models.kernels that it called.
        sha256: checksum of the rest, so that an edited entry is found.
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
    """The recipe of a golden run: one seed, few epochs, layers and graphs in a batch, in float64 on one thread; all else as it is."""
    changes: dict[str, object] = {
        "seeds": recipe.seeds[:1],
        "search": None,
        "precision": "float64",
        "threads": 1,
        "processes": 1,
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
    if batch.graphs and not recipe.protocol:  # two steps an epoch: a miniature trains on four graphs
        small["graphs"] = min(batch.graphs, 2)
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
    """sha256 of what decides the recipe's golden run."""
    return digest_of(shortened(recipe).decisive() | {"seeds": recipe.seeds[:1]})


def components(recipe: Recipe, task: str) -> dict[str, str]:
    """By component of a recipe's runs the module that declares its version; an encoding is "encoding NAME"."""
    return modules_of_encodings(recipe.encodings) | modules_of_run(recipe.model.name, task, recipe.decisive())


def sealed(entry: Entry) -> Entry:
    """The entry with the checksum of its contents."""
    content = {key: value for key, value in entry.items() if key != "sha256"}
    return cast(Entry, content | {"sha256": digest_of(content)[:16]})


def golden_file(suite: str, root: Path = Path()) -> Path:
    """Where the golden values of a suite are, there or not."""
    return root / SUITES / suite / VALUES


def load(suite: str, root: Path = Path()) -> dict[str, Entry]:
    """Golden values by cell. Raises GoldenError for a file that is missing, damaged, edited, or has a cell twice."""
    path = golden_file(suite, root)
    try:
        return _read_file(path, path.stat().st_mtime_ns)
    except OSError:
        raise GoldenError(
            f"{path}: no golden values of {suite}; `python -m gt_bench.testing.check_grid {suite} --update` computes them"
        ) from None


@cache
def _read_file(path: Path, _mtime: int) -> dict[str, Entry]:
    def distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
        names = [name for name, _ in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise GoldenError(
                f"{path}: {twice[0]} stands there twice; keep one, or get the file again (`git checkout {path}`)"
            )
        return dict(pairs)

    try:
        entries = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=distinct)
        for cell, entry in entries.items():
            if entry != sealed(entry):
                raise GoldenError(
                    f"{path}: the golden values of {cell} were edited by hand: get the file again (`git checkout {path}`), or compute them: "
                    f"`python -m gt_bench.testing.check_grid {cell} --update`"
                )
            _ = entry["versions"], entry["values"], entry["recipe"], entry["data"]
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        if isinstance(error, GoldenError):
            raise
        raise GoldenError(
            f"{path}: not a file of golden values ({error}); get it again (`git checkout {path}`)"
        ) from None
    return cast(dict[str, Entry], entries)


def save(suite: str, entries: Mapping[str, Entry], root: Path = Path()) -> Path:
    """Writes golden values of a suite, a line per cell. Raises WriteError."""
    lines = [f"{json.dumps(cell)}: {json.dumps(entry)}" for cell, entry in sorted(entries.items())]
    return write_bytes(golden_file(suite, root), ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def find(cell: str, root: Path = Path()) -> Entry | None:
    """Golden values of a cell; None where it has none. Raises GoldenError for a damaged file."""
    suite = cell.partition("/")[0]
    return load(suite, root).get(cell) if golden_file(suite, root).exists() else None


# comparison


def differs(cell: str, kept: Entry, now: Entry, modules: Mapping[str, str]) -> str | None:
    """What is wrong with a golden run beside the values that are kept; None where they agree.

    `modules`: by component the module that declares its version (`components`).
    """
    for component, version in kept["versions"].items():
        declared = now["versions"].get(component)
        if declared is not None and declared < version:
            return (
                f"the {component} has version {declared} in {_file(modules, component)}, and its golden values are of version {version}: "
                "a version never goes down; update the code, or raise VERSION"
            )
    update = f"`python -m gt_bench.testing.check_grid {cell} --update` keeps the new values"
    if (kept["recipe"], kept["data"]) != (now["recipe"], now["data"]):
        what = "recipe" if kept["recipe"] != now["recipe"] else "miniature of its dataset"
        return f"its {what} has changed since its golden values were computed; {update}"
    if kept["versions"] != now["versions"]:
        raised = [
            component for component in now["versions"] if now["versions"][component] != kept["versions"].get(component)
        ]
        return f"version of {', '.join(raised)} raised since its golden values were computed; {update}"
    difference = first_difference(kept["values"], now["values"])
    if difference is None:
        return None
    quantity, before, after = difference
    component = _likely(quantity, modules)
    return (
        f"{quantity} was {before}, now {after}: if this is meant, raise VERSION in {_file(modules, component)} ({component}), or in the file "
        f"below that has changed, and then {update}. Versions: {', '.join(f'{_file(modules, c)} ({c})' for c in modules)}"
    )


def same_computation(kept: Entry, now: Entry) -> bool:
    """Whether both entries say that they are the same computation: of one recipe, miniature and set of versions."""
    return (kept["versions"], kept["recipe"], kept["data"]) == (now["versions"], now["recipe"], now["data"])


def agrees(kept: Entry | None, now: Entry) -> bool:
    """Whether there are values of the same computation, and they are the same."""
    return kept is not None and same_computation(kept, now) and first_difference(kept["values"], now["values"]) is None


def first_difference(kept: Mapping[str, Json], now: Mapping[str, Json]) -> tuple[str, Json, Json] | None:
    """(quantity, kept value, value now) of the first in which two sets of values differ by more than rounding; None where none does."""
    before, after = dict(_flat(kept)), dict(_flat(now))
    for name in [*before, *(name for name in after if name not in before)]:
        a, b = before.get(name, "nothing"), after.get(name, "nothing")
        if a != UNSTABLE and not _alike(a, b, TOLERANCE):
            return name, a, b
    return None


def without_unstable(values: Json, other: Json) -> Json:
    """`values` with UNSTABLE in place of each number that is another in `other`, a second run whose weights began a rounding apart."""
    if isinstance(values, dict) and isinstance(other, dict):
        return {key: without_unstable(value, other.get(key)) for key, value in values.items()}
    if isinstance(values, list) and isinstance(other, list) and len(values) == len(other):
        return [without_unstable(a, b) for a, b in zip(values, other, strict=True)]
    return values if _alike(values, other, STABLE) else UNSTABLE


def _alike(a: Json, b: Json, tolerance: float) -> bool:
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


def _likely(quantity: str, modules: Mapping[str, str]) -> str:
    """The component that most likely changed where `quantity` is the first that differs."""
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


# during development


def model_and_task(cell: str) -> tuple[str, str]:
    """Of a cell with golden values."""
    entry = find(cell, INSTALLED)
    assert entry is not None
    return entry["model"], entry["task"]


def checked(root: Path = INSTALLED) -> dict[str, str]:
    """By cell the hash of the code whose golden run was last compared with the saved values."""
    found: dict[str, str] = {}
    for path in sorted((root / SUITES).glob(f"*/{CHECKED}")):
        with contextlib.suppress(OSError, ValueError, TypeError):  # a damaged file: its cells are compared again
            found |= json.loads(path.read_text(encoding="utf-8"))
    return found


def save_checked(codes: Mapping[str, str], root: Path = Path()) -> None:
    """Writes the hash of the code of each cell next to the golden values of its suite. Raises WriteError."""
    by_suite: dict[str, dict[str, str]] = {}
    for cell, code in sorted(codes.items()):
        by_suite.setdefault(cell.partition("/")[0], {})[cell] = code
    for suite, cells in by_suite.items():
        write_json(golden_file(suite, root).with_name(CHECKED), cells)


def guardian(cell: str, model: str, task: str) -> str | None:
    """The cell whose golden values speak for runs of `model` on a dataset with `task`: `cell` itself where it has some, else one of the
    same model and task, of the same model, or of the same task; None where there is none."""
    if find(cell, INSTALLED) is not None and _recipe_is_kept(cell):
        return cell
    suites = sorted(
        (path.parent.name for path in (INSTALLED / SUITES).glob(f"*/{VALUES}")),
        key=lambda s: (s != "embedded", s),
    )
    known = {
        name: (entry["model"], entry["task"]) for suite in suites for name, entry in load(suite, INSTALLED).items()
    }
    for m, t in ((model, task), (model, None), (None, task)):
        for name, (its_model, its_task) in known.items():
            if m in (None, its_model) and t in (None, its_task) and _recipe_is_kept(name):
                return name
    return None


def _recipe_is_kept(cell: str) -> bool:
    """Whether the cell's recipe is still the one that its golden values are of."""
    entry = find(cell, INSTALLED)
    with contextlib.suppress(RecipeError):
        return (
            entry is not None and recipe_digest(load_recipe(recipe_file(cell, INSTALLED / SUITES))) == entry["recipe"]
        )
    return False


def verdicts(
    wanted: Mapping[str, str], workers: int = 2, say: Callable[[str], None] = lambda line: None
) -> dict[str, str | None]:
    """By cell how its golden run differs from the kept values, None where it does not; computed once for each code.

    Args:
        wanted: cell with golden values -> hash of the present code (`code_of`).
        say: is told how many are computed now.
    """
    found: dict[str, str | None] = {}
    known, todo = checked(), []
    for cell, code in wanted.items():
        entry = find(cell, INSTALLED)
        place = _remembered(cell, code, entry)
        if known.get(cell) == code[:16]:
            found[cell] = None
        else:
            try:
                found[cell] = json.loads(place.read_text(encoding="utf-8"))["differs"]
            except (OSError, ValueError, KeyError, TypeError):
                todo.append(cell)
    if not todo:
        return found
    say(f"the code of {len(todo)} cells has changed: their golden values are compared")
    for cell, (now, error) in _computed(todo, workers).items():
        entry = find(cell, INSTALLED)
        found[cell] = error or _modified(entry, now)
        if error:  # a crash or a full memory may not happen again: computed again next time
            continue
        with contextlib.suppress(WriteError):  # an installed package may be read-only: computed again next time
            write_json(_remembered(cell, wanted[cell], entry), {"cell": cell, "differs": found[cell]})
    return found


def _computed(cells: Sequence[str], workers: int) -> dict[str, tuple[Entry | None, str | None]]:
    """By cell the entry of its golden run, or the error that ended it; in a process of its own, whose settings are those of golden runs."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "gt_bench.testing.golden_run", "--workers", str(workers), "--", *cells]
    done = subprocess.run(
        command,
        cwd=INSTALLED,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    outcomes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"cell"')]
    found = {outcome["cell"]: (outcome["entry"], outcome["error"]) for outcome in outcomes}
    if absent := [cell for cell in cells if cell not in found]:
        # of no use as a verdict: a key that depends on it would be another one next time
        raise GoldenError(
            f"{absent[0]}: its golden run ended with status {done.returncode} and no value (killed, or out of memory?), so that it is not known whether the code "
            "computes what its versions say; run the same command again"
        )
    return {cell: found[cell] for cell in cells}


def _modified(kept: Entry | None, now: Entry | None) -> str | None:
    """How values of the same computation differ. A raised version is not a modification, because keys contain it."""
    if kept is None or now is None or not same_computation(kept, now):
        return None
    difference = first_difference(kept["values"], now["values"])
    return difference and f"{difference[0]} of its golden run was {difference[1]}, now {difference[2]}"


def _remembered(cell: str, code: str, entry: Entry | None) -> Path:
    """Where the outcome of a comparison is remembered, outside of what is committed."""
    name = digest_of([cell, code, entry["sha256"] if entry and "sha256" in entry else None])
    return ROOT / ".golden" / f"{name[:32]}.json"
