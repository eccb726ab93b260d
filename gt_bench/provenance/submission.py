"""Checks of a contributed file of records: `gt-bench submit`. Nothing is computed again; see `recompute` for that."""

import hashlib
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from gt_bench.config.grid import Grid
from gt_bench.config.option_text import OptionError
from gt_bench.config.schema import nearest
from gt_bench.papers.units import PERCENT, mean_and_std, metric_label
from gt_bench.provenance.cell_checks import OK, OPEN, PROBLEM, Check, cell_checks, checked
from gt_bench.records.run import MAX_NAME, RunRecord, Verification
from gt_bench.store.record_checks import form_problems, selection_problems
from gt_bench.store.run_store import SCHEMA, StoreError
from gt_bench.store.shipped_files import Shipped, content_problems, contribution_of, read, write
from gt_bench.utils.format import markdown_line, markdown_text, print_text
from gt_bench.utils.io import read_bytes
from gt_bench.utils.paths import recipe_file
from gt_bench.utils.redact import printable

ON_VALIDATION = "selection on validation"
SHOWN = 5  # lines of one check in a report
TRUSTED = (
    "that the numbers were computed by the code, data and machine that the records name: a checksum detects damage, "
    "not a forger. To recompute one seed"
)


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
        facts = {"file": str(self.path)}
        if not self.is_readable:
            return facts
        shipped = cast(Shipped, self.shipped)
        runs, measured = [r.run for r in shipped.records], [r.measured for r in shipped.records]
        tests = [run.test for run in runs if run.status == "ok" and run.test is not None]
        mean, std = statistics.fmean(tests) if tests else None, statistics.pstdev(tests) if len(tests) > 1 else None
        metric = runs[0].metric
        number = f"{mean_and_std(mean, std, metric in PERCENT)} over {len(tests)} runs" if tests else "none"
        machines = [f"{m.device}, {m.environment.cpu or 'processor unknown'}" for m in measured]
        return facts | {
            "sha256": hashlib.sha256(read_bytes(self.path)).hexdigest(),
            "cell": shipped.cell,
            "by": contribution_of(shipped.records) or "not marked; `gt-bench submit FILE --by NAME` marks it",
            "seeds": ", ".join(str(run.seed) for run in runs),
            f"test {metric_label(metric)}": number,
            "computed on": "; ".join(dict.fromkeys(machines)),
            "commit": ", ".join(dict.fromkeys(str(m.environment.commit) for m in measured)),
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
        """Returns the report as documented in docs/json_output.md."""
        checks = [{"check": check.what, "outcome": check.outcome, "lines": list(check.lines)} for check in self.checks]
        return {"file": str(self.path), "acceptable": self.acceptable, "facts": self.facts(), "checks": checks}


def submit(paths: Sequence[Path], grid: Grid, by: str | None = None, mark: bool = False) -> list[Report]:
    """Checks contributed files, and marks the records of acceptable ones as contributed.

    Args:
        paths: the files.
        grid: the grid, with the cells of the files.
        by: name of the contributor, which marks the records.
        mark: whether to mark the records without a name.

    Raises:
        OptionError: `by` is not a name.
        WriteError: a marked file cannot be written.
    """
    if by is not None and (not 0 < len(by) <= MAX_NAME or by != printable(by)):
        problem = f"expected a name of at most {MAX_NAME} characters on one line"
        raise OptionError(problem, place="--by", value=f"{by!r:.80}")
    reports = [check(path, grid, by, mark or by is not None) for path in paths]
    for report in reports:
        if (mark or by is not None) and report.acceptable and report.shipped:
            write(report.shipped)
    return reports


def check(path: Path, grid: Grid, by: str | None = None, mark: bool = False) -> Report:
    """Checks one contributed file; see `submit`. The file is not changed."""
    try:
        shipped = read(path)
    except StoreError as error:
        return Report(path, None, (Check("file", PROBLEM, (str(error),)),))
    form = content_problems(shipped, form_problems)
    selection = [
        f"{what} {n}: {line}"
        for what, records in (("record", shipped.records), ("trial", shipped.trials))
        for n, record in enumerate(records)
        for line in selection_problems(record.run)
    ]
    if form or selection:
        unchecked = () if selection else ("needs valid records",)
        unread = checked("schema, digests and checksums", form), checked(ON_VALIDATION, selection, open_=unchecked)
        return Report(path, shipped, unread)
    if mark:
        shipped = marked(shipped, by)
    kinds = f"schema {SCHEMA}, {len(shipped.records)} runs" + (
        f", {len(shipped.trials)} trials" if shipped.trials else ""
    )
    checks = [
        checked("schema, digests and checksums", [], [kinds]),
        checked(ON_VALIDATION, list(_search(shipped)), [_selection(shipped)]),
        checked("marks", list(_marks(shipped)), [contribution_of(shipped.records) or "none"]),
    ]
    cell = next((cell for cell in grid.cells.values() if cell.cell == shipped.cell), None)
    if cell is None:
        checks.append(checked("cell and recipe", [_no_such(shipped.cell, grid)]))
        return Report(path, shipped, tuple(checks))
    return Report(path, shipped, (*checks, *cell_checks(shipped, cell, grid)))


def marked(shipped: Shipped, by: str | None, recomputed: Sequence[int] = ()) -> Shipped:
    """Returns the file with marks on its records and trials.

    Args:
        shipped: the file.
        by: name of the contributor. None leaves a name that is there.
        recomputed: seeds that were computed again with equal results; the others are Verification.SCHEMA_ONLY.
    """

    def with_marks(record: RunRecord, verified: Verification) -> RunRecord:
        return record.model_copy(update={"verified": verified} | ({"by": by} if by else {}))

    records = [
        with_marks(r, Verification.RECOMPUTED if r.run.seed in recomputed else Verification.SCHEMA_ONLY)
        for r in shipped.records
    ]
    return replace(
        shipped, records=records, trials=[with_marks(trial, Verification.SCHEMA_ONLY) for trial in shipped.trials]
    )


def _no_such(name: str, grid: Grid) -> str:
    known = [cell.cell for cell in grid.cells.values()]
    return (
        f"{name} is not a cell of the grid{nearest(name, known)}. A new cell brings its recipe: add "
        f"{recipe_file(name)}, run `python -m gt_bench.pipeline.grid`, and submit again"
    )


def _selection(shipped: Shipped) -> str:
    tested = [r.run for r in shipped.records if r.run.best_epoch is not None]
    if not tested:
        return "the protocol has no validation"
    rule = {
        "last": "the last one (`select: last`)",
        "test": "the first best one on test (`select: test`): the row is flagged and counts in no verdict",
    }.get(str(tested[0].recipe.get("select")), "the first best one on validation")
    return f"the tested epoch of {len(tested)} of {len(shipped.records)} runs is {rule}"


def _search(shipped: Shipped) -> Iterator[str]:
    """Yields what is wrong with the values that a search chose."""
    run = shipped.records[0].run
    trials = [t.run for t in shipped.trials if t.run.status == "ok"]
    mine = [t.val for t in trials if t.recipe == run.recipe and t.val is not None]
    values = [t.val for t in trials if t.val is not None]
    if mine and values:
        better = max if run.direction == "max" else min
        if better(values) != better(mine):
            yield (
                f"the search chose values with validation {better(mine)}, but another trial has {better(values)}: "
                "values were not selected on validation"
            )


def _marks(shipped: Shipped) -> Iterator[str]:
    claimed = [r.run.seed for r in shipped.records if r.verified == Verification.RECOMPUTED]
    if claimed:
        yield (
            f"seed {', '.join(map(str, claimed))} is marked as {Verification.RECOMPUTED}, which only a maintainer's "
            "`gt-bench verify-submission --mark` may do; `gt-bench submit FILE --mark` resets it"
        )


def show(reports: Sequence[Report]) -> None:
    """Prints reports as Markdown."""
    for report in reports:
        print_text(report.markdown())
