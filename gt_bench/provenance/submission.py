"""Checks of a contributed file of records: `gt-bench submit`. Nothing is computed again; see `recompute` for that."""

import hashlib
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from gt_bench.config.grid import Cell, Grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError, nearest, validated
from gt_bench.experiment.match_size import parameters_of
from gt_bench.papers.units import PERCENT, mean_and_std, metric_label
from gt_bench.provenance.staleness import compare_golden_values, freshness, recipe_now, without_source
from gt_bench.provenance.transfer import commit_of_changed_code, differences, kind_differences
from gt_bench.records.run import MAX_NAME, Verification
from gt_bench.schemas import Record, Settings
from gt_bench.store import predictions
from gt_bench.store.run_store import SCHEMA, StoreError
from gt_bench.store.shipped_files import Shipped, content_problems, contribution_of, file_of, read, write
from gt_bench.utils.errors import DatasetError, UserError
from gt_bench.utils.format import markdown_line, markdown_text, print_text
from gt_bench.utils.io import read_bytes
from gt_bench.utils.nested import flat
from gt_bench.utils.paths import recipe_file, suite_name
from gt_bench.utils.redact import printable

OK, PROBLEM, OPEN = "ok", "problem", "not checked"
SHOWN = 5  # lines of one check in a report
# texts of problems of `record_problems` that concern the selected epoch
SELECTION = ("its best epoch is", "its validation value is")
TRUSTED = (
    "that the numbers were computed by the code, data and machine that the records name: a checksum detects damage, "
    "not a forger. To recompute one seed"
)


@dataclass(frozen=True)
class Check:
    """One check: what was checked, OK, PROBLEM or OPEN, and a line per finding."""

    what: str
    outcome: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """All checks of one file. `shipped` is None if the file cannot be read."""

    path: Path
    shipped: Shipped | None
    checks: tuple[Check, ...]

    @property
    def acceptable(self) -> bool:
        """Whether no check found a problem."""
        return all(check.outcome != PROBLEM for check in self.checks)

    @property
    def is_readable(self) -> bool:
        """Whether the records have the form that `facts` reads."""
        return self.shipped is not None and self.checks[0].outcome == OK

    def facts(self) -> dict[str, str]:
        """Returns the head of the report: what the file contains and who computed it."""
        found = {"file": str(self.path)}
        if not self.is_readable:
            return found
        one = cast(Shipped, self.shipped)
        runs, measured = [r["deterministic"] for r in one.records], [r["measured"] for r in one.records]
        tests = [run["test"] for run in runs if run["status"] == "ok" and run["test"] is not None]
        mean, std = statistics.fmean(tests) if tests else None, statistics.pstdev(tests) if len(tests) > 1 else None
        metric = runs[0]["metric"]
        number = f"{mean_and_std(mean, std, metric in PERCENT)} over {len(tests)} runs" if tests else "none"
        machines = [f"{m['device']}, {m['environment'].get('cpu', 'processor unknown')}" for m in measured]
        return found | {
            "sha256": hashlib.sha256(read_bytes(self.path)).hexdigest(),
            "cell": one.cell,
            "by": contribution_of(one.records) or "not marked; `gt-bench submit FILE --by NAME` marks it",
            "seeds": ", ".join(str(run["seed"]) for run in runs),
            f"test {metric_label(metric)}": number,
            "computed on": "; ".join(dict.fromkeys(machines)),
            "commit": ", ".join(dict.fromkeys(str(m["environment"].get("commit")) for m in measured)),
        }

    def markdown(self) -> str:
        """Returns the report for a pull request."""
        name = self.shipped.cell if self.is_readable and self.shipped else self.path.name
        lines = [f"# Submission of {markdown_text(name)}: {'acceptable' if self.acceptable else 'not acceptable'}", ""]
        lines += [markdown_line(row) for row in (("", ""), ("---", "---"))]
        lines += [markdown_line((key, markdown_text(value))) for key, value in self.facts().items()]
        lines += ["", "## Checks", ""]
        for check in self.checks:
            box, note = {OK: ("x", ""), PROBLEM: (" ", ": **problem**"), OPEN: (" ", ": not checked")}[check.outcome]
            lines.append(f"- [{box}] {check.what}{note}")
            lines += [f"    - {markdown_text(line)}" for line in check.lines[:SHOWN]]
            lines += [f"    - and {len(check.lines) - SHOWN} more"] if len(check.lines) > SHOWN else []
        lines += ["", "## Trusted", "", f"What remains trusted: {TRUSTED}:", ""]
        return "\n".join([*lines, f"    gt-bench verify-submission {self.path} --runs 1"]) + "\n"

    def as_json(self) -> dict[str, object]:
        """Returns the report as documented in docs/json.md."""
        checks = [{"check": one.what, "outcome": one.outcome, "lines": list(one.lines)} for one in self.checks]
        return {"file": str(self.path), "acceptable": self.acceptable, "facts": self.facts(), "checks": checks}


def submit(paths: Sequence[Path], grid: Grid, by: str | None = None, mark: bool = False) -> list[Report]:
    """Checks contributed files, and marks the records of acceptable ones as contributed.

    Args:
        paths: the files.
        grid: the grid, with the cells of the files.
        by: name of the contributor, which marks the records.
        mark: whether to mark the records without a name.

    Raises:
        RecipeError: `by` is not a name.
        WriteError: a marked file cannot be written.
    """
    if by is not None and (not 0 < len(by) <= MAX_NAME or by != printable(by)):
        raise RecipeError(f"--by {by!r:.80}: expected a name of at most {MAX_NAME} characters on one line")
    reports = [check(path, grid, by, mark or by is not None) for path in paths]
    for report in reports:
        if (mark or by is not None) and report.acceptable and report.shipped:
            write(report.shipped)
    return reports


def check(path: Path, grid: Grid, by: str | None = None, mark: bool = False) -> Report:
    """Checks one contributed file; see `submit`. The file is not changed."""
    try:
        one = read(path)
    except StoreError as error:
        return Report(path, None, (Check("file", PROBLEM, (str(error),)),))
    if problems := content_problems(one):
        lines = [line.removeprefix(f"{path}: ") for line in problems]
        selection = [line for line in lines if any(text in line for text in SELECTION)]
        form = [line for line in lines if line not in selection]
        checks = [_check("schema, digests and checksums", form)]
        return Report(
            path,
            one,
            (
                *checks,
                _check("selection on validation", selection, open_=() if selection else ("needs valid records",)),
            ),
        )
    if mark:
        one = marked(one, by)
    kinds = f"schema {SCHEMA}, {len(one.records)} runs" + (f", {len(one.trials)} trials" if one.trials else "")
    checks = [
        _check("schema, digests and checksums", [], [kinds]),
        _check("selection on validation", list(_search(one)), [_selection(one)]),
        _check("marks", list(_marks(one)), [contribution_of(one.records) or "none"]),
    ]
    cell = next((cell for cell in grid.cells.values() if cell.cell == one.cell), None)
    if cell is None:
        checks.append(_check("cell and recipe", [_no_such(one.cell, grid)]))
        return Report(path, one, tuple(checks))
    checks += _of_cell(one, cell, grid)
    return Report(path, one, (*checks, _check("predictions", *_predictions(one))))


def marked(one: Shipped, by: str | None, recomputed: Sequence[int] = ()) -> Shipped:
    """Returns the file with marks on its records and trials.

    Args:
        one: the file.
        by: name of the contributor. None leaves a name that is there.
        recomputed: seeds that were computed again with equal results; the others are Verification.SCHEMA_ONLY.
    """

    def with_marks(record: Record, verified: str) -> Record:
        return cast(Record, {**record, "verified": verified} | ({"by": by} if by else {}))

    records = [
        with_marks(r, Verification.RECOMPUTED if r["deterministic"]["seed"] in recomputed else Verification.SCHEMA_ONLY)
        for r in one.records
    ]
    return replace(one, records=records, trials=[with_marks(trial, Verification.SCHEMA_ONLY) for trial in one.trials])


def _check(what: str, problems: Sequence[str], fine: Sequence[str] = (), open_: Sequence[str] = ()) -> Check:
    """Returns a check with its problems, or else with what was not checked, or else with what is fine."""
    outcome = PROBLEM if problems else OPEN if open_ else OK
    return Check(what, outcome, tuple(printable(line) for line in (*problems, *open_, *(() if problems else fine))))


def _no_such(name: str, grid: Grid) -> str:
    known = [cell.cell for cell in grid.cells.values()]
    return (
        f"{name} is not a cell of the grid{nearest(name, known)}. A new cell brings its recipe: add "
        f"{recipe_file(name)}, run `python -m gt_bench.pipeline.grid`, and submit again"
    )


def _selection(one: Shipped) -> str:
    tested = [r["deterministic"] for r in one.records if r["deterministic"]["best_epoch"] is not None]
    if not tested:
        return "the protocol has no validation"
    rule = {
        "last": "the last one (`select: last`)",
        "test": "the first best one on test (`select: test`): the row is flagged and counts in no verdict",
    }.get(str(tested[0]["recipe"].get("select")), "the first best one on validation")
    return f"the tested epoch of {len(tested)} of {len(one.records)} runs is {rule}"


def _search(one: Shipped) -> Iterator[str]:
    """Yields what is wrong with the values that a search chose."""
    run = one.records[0]["deterministic"]
    found = [t["deterministic"] for t in one.trials if t["deterministic"]["status"] == "ok"]
    mine = [t["val"] for t in found if t["recipe"] == run["recipe"] and t["val"] is not None]
    values = [t["val"] for t in found if t["val"] is not None]
    if mine and values:
        better = max if run["direction"] == "max" else min
        if better(values) != better(mine):
            yield (
                f"the search chose values with validation {better(mine)}, but another trial has {better(values)}: "
                "values were not selected on validation"
            )


def _marks(one: Shipped) -> Iterator[str]:
    claimed = [r["deterministic"]["seed"] for r in one.records if r.get("verified") == Verification.RECOMPUTED]
    if claimed:
        yield (
            f"seed {', '.join(map(str, claimed))} is marked as {Verification.RECOMPUTED}, which only a maintainer's "
            "`gt-bench verify-submission --mark` may do; `gt-bench submit FILE --mark` resets it"
        )


def _of_cell(one: Shipped, cell: Cell, grid: Grid) -> list[Check]:
    """Returns the checks that need the cell: recipe, versions, golden values, data, seeds, plausibility."""
    from gt_bench.data.registry import get_spec

    try:
        recipe = validated(Recipe, one.result["recipe"], f"{one.path}: result.recipe")
        get_spec(cell.dataset)
    except (RecipeError, DatasetError) as error:
        return [_check("cell and recipe", [str(error)])]
    compare_golden_values([one], grid)
    state = freshness(one, grid)
    recipes = [line for line in state.stale if line == "recipe"]
    data = [line for line in state.stale if line in ("data", "encodings")]
    code = [line for line in state.stale if line not in (*recipes, *data)]
    different, seeds = list(_recipe_problems(one, recipe, cell, grid)), list(_seeds(one, recipe, cell, grid))
    if recipes and not different and not seeds:
        different = [f"the recipe of the runs is not the one of {cell.recipe_path}"]
    versions = one.records[0]["deterministic"]["versions"]
    declared = ", ".join(f"{name} {version}" for name, version in versions.items())
    unknown = [line for line in state.unknown if line.startswith(("data", "encodings"))]
    commit = (commit_of_changed_code(cell, one.records) or "").removesuffix("-dirty")[:12]
    changed = [f"the runs used code that differs from commit {commit}"] if commit else []
    reduced = ", ".join(one.result["reduced"])
    complete = f"reduced: {reduced}" if reduced else f"{len(one.records)} seeds, complete and distinct"
    return [
        _check("cell and recipe", different, [f"the recipe of {cell.cell}"]),
        _check("versions and golden values", [f"stale: {line}" for line in code], [declared]),
        _check(
            "data and encodings",
            [f"the {line} of the runs are not those of the current code and data" for line in data],
            [] if unknown else ["digests are those of the current code"],
            [f"{line}: `python -m stages.download {cell.dataset}` makes the data" for line in unknown],
        ),
        _check("committed code", changed),
        _check("shipped records", *_shipped(one)),
        _check("seeds", seeds, [complete]),
        _check("plausibility", *_plausible(one, recipe, cell)),
    ]


def _shipped(one: Shipped) -> tuple[list[str], list[str]]:
    """Returns (contradictions, remarks) of a file that would replace shipped records of its cell."""
    path = file_of(one.cell)
    if not path.exists() or path.resolve() == one.path.resolve():
        return [], ["no other records of this cell are shipped"]
    try:
        held = {record["digest"]: record for record in read(path).records}
    except StoreError as error:
        return [], [str(error)]
    wrong: list[str] = []
    rounded: list[str] = []
    for record in one.records:
        if (other := held.get(record["digest"])) and (keys := differences(other, record)):
            kinds = ", ".join(kind_differences(other, record))
            where = f"differs: {kinds}" if kinds else "same kind of processor"
            line = f"seed {record['deterministic']['seed']} differs from the shipped record of the same run in {keys}"
            (rounded if kinds else wrong).append(f"{line} ({where})")
    common = sum(record["digest"] in held for record in one.records)
    return wrong, [f"replaces {len(held)} shipped runs, {common} of them the same runs", *rounded]


def _recipe_problems(one: Shipped, recipe: Recipe, cell: Cell, grid: Grid) -> Iterator[str]:
    """Yields how recipes differ: of the runs, of the result, and of the cell."""
    result, runs = one.result, [record["deterministic"] for record in one.records]
    if [result["suite"], result["dataset"], result["model"]] != cell.cell.split("/"):
        yield "suite, dataset and model of its result are not those of its cell"
    ran = without_source(runs[0]["recipe"])
    for run in runs:
        if keys := _differing(ran, without_source(run["recipe"])):
            yield f"seed {run['seed']} has another recipe than seed {runs[0]['seed']}: {', '.join(keys)}"
    if keys := _differing(without_source(recipe.decisive()), ran):
        yield f"the recipe of its result is not the one of its runs: {', '.join(keys)}"
    try:
        now = recipe_now(one, runs[0]["recipe"], load_recipe(cell.recipe_path), grid, cell)
    except RecipeError as error:
        yield f"{cell.recipe_path}: {error}"
        return
    except KeyError as error:
        yield f"the value of {error.args[0]} is not in the search space of {cell.recipe_path}"
        return
    if keys := _differing(without_source(now.decisive()), ran):
        yield f"differs from {cell.recipe_path}: {', '.join(keys)}"
    if _published(result["published"]) != _published(now.published.model_dump() if now.published else None):
        yield f"its result is compared with another published number than that of {cell.recipe_path}"


def _published(reference: Settings | None) -> Settings | None:
    return reference and reference | {"paper": suite_name(str(reference.get("paper")))}


def _differing(one: Settings, other: Settings) -> list[str]:
    """Returns the dotted keys in which two recipes differ, with both values."""
    a, b = ({key: json.dumps(value, sort_keys=True) for key, value in flat(side)} for side in (one, other))
    keys = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
    return [f"{key} {a.get(key, 'none')} and {b.get(key, 'none')}" for key in keys]


def _seeds(one: Shipped, recipe: Recipe, cell: Cell, grid: Grid) -> Iterator[str]:
    """Yields seeds that are missing or surplus, and runs on another split than their seed has."""
    from gt_bench.data.registry import get_spec
    from gt_bench.data.standin import shape_of

    runs = [record["deterministic"] for record in one.records]
    seeds = [run["seed"] for run in runs]
    if seeds != list(one.result["seeds"]):
        yield f"its records have the seeds {seeds}, but its result lists {list(one.result['seeds'])}"
    try:
        now = recipe_now(one, runs[0]["recipe"], load_recipe(cell.recipe_path), grid, cell)
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
            expected = now.split_of(run["seed"], splits)
        except RecipeError as error:
            yield str(error)
            return
        if run["split"] != expected:
            yield f"seed {run['seed']} ran on split {run['split']}, but the recipe gives it split {expected}"


def _plausible(one: Shipped, recipe: Recipe, cell: Cell) -> tuple[list[str], list[str], list[str]]:
    """Returns (problems, what is fine, what could not be checked) of curves, times and number of parameters."""
    from gt_bench.data.registry import get_spec
    from gt_bench.tasks.registry import create_task

    spec = get_spec(cell.dataset)
    own_loop = create_task(spec.task, spec.metric, also=spec.also).runner is not None or recipe.protocol is not None
    problems, curves = [], dict[str, int]()
    for record in one.records:
        seed = record["deterministic"]["seed"]
        problems += [f"seed {seed}: {line}" for line in (*_curves(record, recipe, own_loop), *_times(record))]
        curve = [value for value in record["deterministic"]["epochs"]["train_loss"] if value is not None]
        if curve and (other := curves.setdefault(json.dumps(curve), seed)) != seed:
            problems.append(f"seed {seed}: has the training losses of seed {other}")
    failed = [r["deterministic"]["status"] for r in one.records if r["deterministic"]["status"] != "ok"]
    if one.result["status"] != (failed[0] if failed else "ok"):
        problems.append(f"its result has status {one.result['status']}, but its runs {', '.join(failed) or 'ok'}")
    found = {record["deterministic"]["parameters"] for record in one.records}
    try:
        count = parameters_of(recipe, cell.dataset, str(one.path))
    except UserError as error:
        return problems, [], [f"number of parameters: {error}"]
    if found != {count}:
        problems.append(f"the model has {count:,} parameters, but the runs have {', '.join(map(str, sorted(found)))}")
    return problems, [f"curves are finite, times are consistent, {count:,} parameters"], []


def _curves(record: Record, recipe: Recipe, own_loop: bool) -> Iterator[str]:
    run = record["deterministic"]
    if run["status"] != "ok":
        return
    for name, curve in run["epochs"].items():
        if any(value is not None and not math.isfinite(value) for value in curve):
            yield f"status ok, but its curve {name} is not finite"
    epochs = run["epochs"]["epoch"]
    if epochs != list(range(1, len(epochs) + 1)):
        yield "its epochs are not numbered from 1"
    if own_loop or len(epochs) == recipe.total_epochs:
        return
    stopped = recipe.patience and run["best_epoch"] and len(epochs) - run["best_epoch"] >= recipe.patience
    if len(epochs) > recipe.total_epochs or not stopped:
        yield f"its curves have {len(epochs)} epochs, but the recipe has {recipe.total_epochs}"


def _times(record: Record) -> Iterator[str]:
    run, measured = record["deterministic"], record["measured"]
    parts = measured["train_seconds_per_epoch"] * max(1, len(run["epochs"]["epoch"]))
    parts += measured["eval_seconds_per_epoch"] * max(1, sum(v is not None for v in run["epochs"]["val"]))
    if not (math.isfinite(measured["seconds"]) and measured["seconds"] > 0):
        yield f"it took {measured['seconds']} seconds"
    elif measured["seconds"] < parts * (1 - 1e-6):
        yield f"it took {measured['seconds']:.4g} s, less than its epochs together ({parts:.4g} s)"
    started, finished = (datetime.fromisoformat(measured[key]) for key in ("started", "finished"))
    if started > finished or finished > datetime.now(UTC):
        yield f"it was computed from {measured['started']} to {measured['finished']}"


def _predictions(one: Shipped) -> tuple[list[str], list[str], list[str]]:
    """Returns (problems, what is fine, what could not be checked) of the predictions next to the file."""
    path = predictions.shipped_file(one.path)
    if not path.exists():
        return [], [], [f"{path.name} is not there: it is written by `gt-bench store export` up to 200 kB"]
    if problems := predictions.shipped_problems(one.path, one.records):
        return problems, [], []
    try:
        found = predictions.shipped_predictions(one.path, one.records)
    except StoreError as error:
        return [str(error)], [], []
    wrong = []
    for each in found:
        run = each.record["deterministic"]
        for part, recorded in (("test", run["test"]), ("val", run["val"])):
            if part not in each.parts or recorded is None:
                continue
            try:
                value = each.score(run["metric"], part)
            except (KeyError, ValueError, IndexError, RuntimeError, TypeError) as error:
                wrong.append(f"seed {run['seed']}: {run['metric']} on {part} cannot be computed: {error}")
                continue
            if not predictions.same_value(value, recorded):
                wrong.append(
                    f"seed {run['seed']}: {run['metric']} on {part} is {value:.6g} by its predictions, but "
                    f"{recorded:.6g} in its record"
                )
    without = len(one.records) - len(found)
    rest = [f"{without} of {len(one.records)} runs have no predictions"] if without else []
    return wrong, [f"the metric of {len(found)} runs follows from their predictions"], rest


def show(reports: Sequence[Report]) -> None:
    """Prints reports as Markdown."""
    for report in reports:
        print_text(report.markdown())
