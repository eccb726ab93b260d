"""Checks of contributed records against their cell: recipe, versions, data, seeds, curves, times and predictions."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError, validated
from gt_bench.data.registry import get_spec
from gt_bench.data.standin import shape_of
from gt_bench.experiment.match_size import parameters_of
from gt_bench.provenance.staleness import compare_golden_values, freshness, recipe_now, without_source
from gt_bench.provenance.transfer import commit_of_changed_code, differences, kind_differences
from gt_bench.records.run import RunRecord
from gt_bench.records.state import StalePart
from gt_bench.store import predictions
from gt_bench.store.run_store import StoreError
from gt_bench.store.shipped_files import Shipped, file_of, read
from gt_bench.tasks.registry import create_task
from gt_bench.utils.errors import DatasetError, UserError
from gt_bench.utils.json_types import Settings
from gt_bench.utils.nested import flat
from gt_bench.utils.redact import printable

OK, PROBLEM, OPEN = "ok", "problem", "not checked"


@dataclass(frozen=True)
class Check:
    """One check: what was checked, OK, PROBLEM or OPEN, and a line per finding."""

    what: str
    outcome: str
    lines: tuple[str, ...]


def checked(what: str, problems: Sequence[str], fine: Sequence[str] = (), open_: Sequence[str] = ()) -> Check:
    """Returns a check with its problems, or else with what was not checked, or else with what is fine."""
    outcome = PROBLEM if problems else OPEN if open_ else OK
    return Check(what, outcome, tuple(printable(line) for line in (*problems, *open_, *(() if problems else fine))))


def cell_checks(shipped: Shipped, cell: Cell, grid: Grid) -> list[Check]:
    """Returns the checks that need the cell: recipe, versions, golden values, data, seeds, plausibility."""
    try:
        recipe = validated(Recipe, shipped.result.recipe, f"{shipped.path}: result.recipe")
        get_spec(cell.dataset)
    except (RecipeError, DatasetError) as error:
        return [checked("cell and recipe", [str(error)])]
    compare_golden_values([shipped], grid)
    state = freshness(shipped, grid)
    recipes = [why for why in state.stale if why.part == StalePart.RECIPE]
    data = [why for why in state.stale if why.part in (StalePart.DATA, StalePart.ENCODINGS)]
    code = [why for why in state.stale if why not in (*recipes, *data)]
    different, seeds = list(_recipe_problems(shipped, recipe, cell, grid)), list(_seeds(shipped, recipe, cell, grid))
    if recipes and not different and not seeds:
        different = [f"the recipe of the runs is not the one of {cell.recipe_path}"]
    versions = shipped.records[0].run.versions
    declared = ", ".join(f"{name} {version}" for name, version in versions.items())
    commit = commit_of_changed_code(cell, shipped.records)
    changed = [f"the runs used code that differs from commit {commit[:12]}"] if commit else []
    reduced = ", ".join(map(str, shipped.result.reduced))
    complete = f"reduced: {reduced}" if reduced else f"{len(shipped.records)} seeds, complete and distinct"
    return [
        checked("cell and recipe", different, [f"the recipe of {cell.cell}"]),
        checked("versions and golden values", [f"stale: {why}" for why in code], [declared]),
        checked(
            "data and encodings",
            [f"the {why} of the runs are not those of the current code and data" for why in data],
            [] if state.unknown_data else ["digests are those of the current code"],
            [f"{line}: `python -m stages.download {cell.dataset}` makes the data" for line in state.unknown_data],
        ),
        checked("committed code", changed),
        checked("shipped records", *_shipped(shipped)),
        checked("seeds", seeds, [complete]),
        checked("plausibility", *_plausible(shipped, recipe, cell)),
        checked("predictions", *_predictions(shipped)),
    ]


def _shipped(shipped: Shipped) -> tuple[list[str], list[str]]:
    """Returns (contradictions, remarks) of a file that would replace shipped records of its cell."""
    path = file_of(shipped.cell)
    if not path.exists() or path.resolve() == shipped.path.resolve():
        return [], ["no other records of this cell are shipped"]
    try:
        held = {record.digest: record for record in read(path).records}
    except StoreError as error:
        return [], [str(error)]
    wrong: list[str] = []
    rounded: list[str] = []
    for record in shipped.records:
        if (other := held.get(record.digest)) and (keys := differences(other, record)):
            kinds = ", ".join(kind_differences(other, record))
            where = f"differs: {kinds}" if kinds else "same kind of processor"
            line = f"seed {record.run.seed} differs from the shipped record of the same run in {', '.join(keys)}"
            (rounded if kinds else wrong).append(f"{line} ({where})")
    common = sum(record.digest in held for record in shipped.records)
    return wrong, [f"replaces {len(held)} shipped runs, {common} of them the same runs", *rounded]


def _recipe_problems(shipped: Shipped, recipe: Recipe, cell: Cell, grid: Grid) -> Iterator[str]:
    """Yields how recipes differ: of the runs, of the result, and of the cell."""
    result, runs = shipped.result, [record.run for record in shipped.records]
    if [result.suite, result.dataset, result.model] != cell.cell.split("/"):
        yield "suite, dataset and model of its result are not those of its cell"
    ran = without_source(runs[0].recipe)
    for run in runs:
        if keys := _differing(ran, without_source(run.recipe)):
            yield f"seed {run.seed} has another recipe than seed {runs[0].seed}: {', '.join(keys)}"
    if keys := _differing(without_source(recipe.decisive()), ran):
        yield f"the recipe of its result is not the one of its runs: {', '.join(keys)}"
    try:
        now = recipe_now(shipped, runs[0].recipe, load_recipe(cell.recipe_path), grid, cell)
    except RecipeError as error:
        yield f"{cell.recipe_path}: {error}"
        return
    except KeyError as error:
        yield f"the value of {error.args[0]} is not in the search space of {cell.recipe_path}"
        return
    if keys := _differing(without_source(now.decisive()), ran):
        yield f"differs from {cell.recipe_path}: {', '.join(keys)}"
    if _published(result.published) != _published(now.published.model_dump() if now.published else None):
        yield f"its result is compared with another published number than that of {cell.recipe_path}"


def _published(reference: Settings | None) -> Settings | None:
    # some shipped records name edge_transformer
    return reference and reference | {"paper": str(reference.get("paper")).replace("_", "-")}


def _differing(one: Settings, other: Settings) -> list[str]:
    """Returns the dotted keys in which two recipes differ, with both values."""
    a, b = ({key: json.dumps(value, sort_keys=True) for key, value in flat(side)} for side in (one, other))
    keys = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
    return [f"{key} {a.get(key, 'none')} and {b.get(key, 'none')}" for key in keys]


def _seeds(shipped: Shipped, recipe: Recipe, cell: Cell, grid: Grid) -> Iterator[str]:
    """Yields seeds that are missing or surplus, and runs on another split than their seed has."""
    runs = [record.run for record in shipped.records]
    seeds = [run.seed for run in runs]
    if seeds != list(shipped.result.seeds):
        yield f"its records have the seeds {seeds}, but its result lists {list(shipped.result.seeds)}"
    try:
        now = recipe_now(shipped, runs[0].recipe, load_recipe(cell.recipe_path), grid, cell)
    except (RecipeError, KeyError):
        now = recipe
    if missing := [seed for seed in now.seeds if seed not in seeds]:
        yield f"seed {', '.join(map(str, missing))} of the recipe is missing"
    if surplus := [seed for seed in seeds if seed not in now.seeds]:
        yield f"seed {', '.join(map(str, surplus))} is not in the recipe"
    try:
        splits = shape_of(get_spec(cell.dataset)).num_splits
    except DatasetError:
        return
    for run in runs:
        try:
            expected = now.split_of(run.seed, splits)
        except RecipeError as error:
            yield str(error)
            return
        if run.split != expected:
            yield f"seed {run.seed} ran on split {run.split}, but the recipe gives it split {expected}"


def _plausible(shipped: Shipped, recipe: Recipe, cell: Cell) -> tuple[list[str], list[str], list[str]]:
    """Returns (problems, what is fine, what could not be checked) of curves, times and number of parameters."""
    spec = get_spec(cell.dataset)
    own_loop = create_task(spec.task, spec.metric, also=spec.also).runner is not None or recipe.protocol is not None
    problems, curves = [], dict[str, int]()
    for record in shipped.records:
        seed = record.run.seed
        problems += [f"seed {seed}: {line}" for line in (*_curves(record, recipe, own_loop), *_times(record))]
        curve = [value for value in record.run.epochs["train_loss"] if value is not None]
        if curve and (other := curves.setdefault(json.dumps(curve), seed)) != seed:
            problems.append(f"seed {seed}: has the training losses of seed {other}")
    failed = [r.run.status for r in shipped.records if r.run.status != "ok"]
    if shipped.result.status != (failed[0] if failed else "ok"):
        problems.append(f"its result has status {shipped.result.status}, but its runs {', '.join(failed) or 'ok'}")
    counts = {record.run.parameters for record in shipped.records}
    try:
        count = parameters_of(recipe, cell.dataset, str(shipped.path))
    except UserError as error:
        return problems, [], [f"number of parameters: {error}"]
    if counts != {count}:
        problems.append(f"the model has {count:,} parameters, but the runs have {', '.join(map(str, sorted(counts)))}")
    return problems, [f"curves are finite, times are consistent, {count:,} parameters"], []


def _curves(record: RunRecord, recipe: Recipe, own_loop: bool) -> Iterator[str]:
    run = record.run
    if run.status != "ok":
        return
    for name, curve in run.epochs.items():
        if any(value is not None and not math.isfinite(value) for value in curve):
            yield f"status ok, but its curve {name} is not finite"
    epochs = run.epochs["epoch"]
    if epochs != list(range(1, len(epochs) + 1)):
        yield "its epochs are not numbered from 1"
    if own_loop or len(epochs) == recipe.total_epochs:
        return
    stopped = recipe.patience and run.best_epoch and len(epochs) - run.best_epoch >= recipe.patience
    if len(epochs) > recipe.total_epochs or not stopped:
        yield f"its curves have {len(epochs)} epochs, but the recipe has {recipe.total_epochs}"


def _times(record: RunRecord) -> Iterator[str]:
    run, measured = record.run, record.measured
    parts = measured.train_seconds_per_epoch * max(1, len(run.epochs["epoch"]))
    parts += measured.eval_seconds_per_epoch * max(1, sum(v is not None for v in run.epochs["val"]))
    if not (math.isfinite(measured.seconds) and measured.seconds > 0):
        yield f"it took {measured.seconds} seconds"
    elif measured.seconds < parts * (1 - 1e-6):
        yield f"it took {measured.seconds:.4g} s, less than its epochs together ({parts:.4g} s)"
    started, finished = (datetime.fromisoformat(text) for text in (measured.started, measured.finished))
    if started > finished or finished > datetime.now(UTC):
        yield f"it was computed from {measured.started} to {measured.finished}"


def _predictions(shipped: Shipped) -> tuple[list[str], list[str], list[str]]:
    """Returns (problems, what is fine, what could not be checked) of the predictions next to the file."""
    path = predictions.shipped_file(shipped.path)
    if not path.exists():
        return [], [], [f"{path.name} is not there: it is written by `gt-bench store export` up to 200 kB"]
    if problems := predictions.shipped_problems(shipped.path, shipped.records):
        return problems, [], []
    try:
        stored = predictions.shipped_predictions(shipped.path, shipped.records)
    except StoreError as error:
        return [str(error)], [], []
    wrong = []
    for each in stored:
        run = each.record.run
        for part, recorded in (("test", run.test), ("val", run.val)):
            if part not in each.parts or recorded is None:
                continue
            try:
                value = each.score(run.metric, part)
            except (KeyError, ValueError, IndexError, RuntimeError, TypeError) as error:
                wrong.append(f"seed {run.seed}: {run.metric} on {part} cannot be computed: {error}")
                continue
            if not predictions.same_value(value, recorded):
                wrong.append(
                    f"seed {run.seed}: {run.metric} on {part} is {value:.6g} by its predictions, but "
                    f"{recorded:.6g} in its record"
                )
    without = len(shipped.records) - len(stored)
    rest = [f"{without} of {len(shipped.records)} runs have no predictions"] if without else []
    return wrong, [f"the metric of {len(stored)} runs follows from their predictions"], rest
