"""Attempts at a cell, and what changed between two of them: recipe, code and result."""

import json
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gt_bench.config.components import modules_of_run
from gt_bench.config.grid import Cell
from gt_bench.data.registry import get_spec
from gt_bench.leaderboard.collect import summarise, tested_values
from gt_bench.leaderboard.columns import SHOWN, cells
from gt_bench.leaderboard.export import to_columns
from gt_bench.papers.units import mean_and_std
from gt_bench.records.cell import CellResult
from gt_bench.records.run import RunRecord
from gt_bench.store.attempts import attempt_id, attempts, records_of, when
from gt_bench.store.run_store import Store
from gt_bench.store.shipped_files import read_result
from gt_bench.utils.code_digest import ROOT, closure
from gt_bench.utils.errors import UserError
from gt_bench.utils.nested import flat
from gt_bench.utils.redact import commit_id

ABSENT = "(default)"  # value that the recipe does not set


class NoAttempt(UserError, ValueError):
    """There is no such attempt at the cell; the message lists the attempts."""


class Attempt(NamedTuple):
    """One attempt at a cell.

    Attributes:
        number: from 1, oldest first.
        result: its result.
        records: its records in the store.
        current: whether results/ has it now.
    """

    number: int
    result: CellResult
    records: list[RunRecord]
    current: bool

    @property
    def commit(self) -> str:
        """Short commits that computed its runs."""
        return ", ".join(sorted({_short(r.measured.environment.commit) for r in self.records}))

    @property
    def shown(self) -> dict[str, str]:
        """Column -> text, as in the leaderboard."""
        return dict(zip(SHOWN, cells(summarise(self.result, self.records)), strict=True))

    @property
    def name(self) -> str:
        """Number, dates and commit."""
        return f"attempt {self.number} ({when(self.records)} UTC, commit {self.commit})"


def history(cell: str, store: Store, result: CellResult | None = None) -> list[Attempt]:
    """Return the attempts at a cell whose records are in the store, oldest first.

    Args:
        cell: name of the cell.
        store: the store.
        result: the result in results/, which is the current one.

    Raises:
        NoAttempt: there is none.
        StoreError: a record is damaged.
    """
    tried = [(content, records) for content in attempts(cell, store) if (records := records_of(content, store))]
    if result and result.runs and not any(attempt_id(content) == attempt_id(result) for content, _ in tried):
        tried.append((result.copy(), records_of(result, store)))  # older than the list of attempts, or imported
    tried = [(content, records) for content, records in tried if records]
    if not tried:
        problem, remedy = f"no attempt is in {store.root}/", f"`gt-bench train {cell}` makes one"
        raise NoAttempt(problem, place=cell, remedy=remedy)
    now = attempt_id(result) if result else attempt_id(tried[-1][0])
    return [Attempt(i, content, records, attempt_id(content) == now) for i, (content, records) in enumerate(tried, 1)]


def attempts_at(cell: Cell) -> list[Attempt]:
    """Return `history` of a cell from the store and the results of this folder; raises the same errors."""
    return history(cell.cell, Store(), read_result(Path("results", f"{cell.cell}.json"), cell.cell))


def as_json(attempt: Attempt) -> dict[str, object]:
    """Return an attempt as JSON (docs/json_output.md)."""
    line: Mapping[str, object] = to_columns(summarise(attempt.result, attempt.records))
    return {
        "number": attempt.number,
        "current": attempt.current,
        "when": when(attempt.records),
        "commit": attempt.commit,
        **{key: line[key] for key in ("metric", "mean", "std", "runs", "seeds", "status", "digests")},
    }


def history_lines(attempts: Sequence[Attempt]) -> list[str]:
    """Return a line per attempt, and between two attempts what changed."""
    lines: list[str] = []
    for before, attempt in zip([None, *attempts], attempts, strict=False):
        lines += [f"    {change}" for change in changes(before, attempt)] if before else []
        now = "  <- current" if attempt.current else ""
        lines.append(
            f"{attempt.name}: {attempt.shown['mean ± std']} {attempt.shown['metric']}, {attempt.shown['runs']} runs, "
            f"{attempt.shown['status']}{now}"
        )
    return lines


def difference_lines(attempts: Sequence[Attempt], before: int, after: int) -> list[str]:
    """Return what differs between two attempts, and their results.

    Args:
        attempts: all attempts.
        before: number of an attempt; 0 is the last, -1 the one before it.
        after: number of the other attempt.

    Raises:
        NoAttempt: there is no such attempt.
    """
    first, second = pair_of(attempts, before, after)
    return [*changes(first, second), *number_lines(first, second)]


def pair_of(attempts: Sequence[Attempt], before: int, after: int) -> tuple[Attempt, Attempt]:
    """Return two attempts by number; arguments and errors as for `difference_lines`."""
    if len(attempts) == 1:
        problem = f"there is only one attempt, {attempts[0].name}: nothing to compare with"
        raise NoAttempt(problem, place=attempts[0].result.cell)
    first, second = (chosen(attempts, n if n > 0 else len(attempts) + n) for n in (before, after))
    return first, second


def chosen(attempts: Sequence[Attempt], number: int) -> Attempt:
    """Return the attempt with this number; raises NoAttempt."""
    if not 1 <= number <= len(attempts):
        problem = f"there is no attempt {number}; there are 1 to {len(attempts)} (`gt-bench history`)"
        raise NoAttempt(problem, place=attempts[0].result.cell, value=number)
    return attempts[number - 1]


def changes(before: Attempt, after: Attempt) -> list[str]:
    """Return what differs between two attempts, one line each: recipe, other inputs, versions, code, machine."""
    recipes = recipe_changes(before.result.recipe, after.result.recipe)
    lines = [f"recipe  {key}: {old} -> {new}" for key, old, new in recipes]
    if before.result.reduced != after.result.reduced:
        cuts = (", ".join(map(str, attempt.result.reduced)) or "nothing" for attempt in (before, after))
        lines.append(f"cut     {' -> '.join(cuts)}")
    for what in ("data", "encodings", "files", "modified"):
        old, new = ({getattr(r.run.digests, what) or "none" for r in attempt.records} for attempt in (before, after))
        if old != new:
            lines.append(f"{what:<7} {_digests(old)} -> {_digests(new)}")
    versions = [_by_key(record.run.versions for record in attempt.records) for attempt in (before, after)]
    lines += [f"version {component}: {old} -> {new}" for component, old, new in _differing(versions, "none")]
    if len({r.measured.code for attempt in (before, after) for r in attempt.records}) > 1:
        lines += code_changes(before, after)
    machines = [_by_key(r.measured.environment.to_disk() for r in attempt.records) for attempt in (before, after)]
    differing = sorted(_differing(machines, "None"))
    return lines + [f"machine {key}: {old} -> {new}" for key, old, new in differing if key != "commit"]


def recipe_changes(before: Mapping[str, object], after: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """Return (key, value before, value after) of each value that differs; `ABSENT` if one side does not set it."""
    old, new = (
        {key: str(value) for key, value in flat(recipe) if key.split(".")[0] not in ("origin", "published")}
        for recipe in (before, after)
    )
    return _differing([old, new], ABSENT)


def _differing(sides: Sequence[Mapping[str, str]], absent: str) -> list[tuple[str, str, str]]:
    """Return (key, old value, new value) of each value that differs; `absent` where there is none."""
    old, new = sides
    values = [(key, old.get(key, absent), new.get(key, absent)) for key in dict.fromkeys([*old, *new])]
    return [(key, then, now) for key, then, now in values if then != now]


def _by_key(runs: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Return the values of runs by key as text; several values if runs differ."""
    texts: dict[str, set[str]] = {}
    for run in runs:
        for key, value in run.items():
            texts.setdefault(key, set()).add(value if isinstance(value, str) else json.dumps(value, sort_keys=True))
    return {key: ", ".join(sorted(values)) for key, values in texts.items()}


def code_changes(before: Attempt, after: Attempt) -> list[str]:
    """Return the files imported by the cell's runs that differ between the commits of two attempts, by git."""
    lines, run = [f"code    commit {before.commit} -> {after.commit}"], after.records[0].run
    named = [attempt.records[0].measured.environment.commit for attempt in (before, after)]
    commits = [commit for text in named if (commit := commit_id(text))]
    if len(commits) < len(named):
        return [*lines, "        the commit of one of them is unknown: git cannot show what changed"]
    if any(str(text).endswith("-dirty") for text in named):
        return [*lines, "        the code of one of them was not committed (-dirty): git cannot show it"]
    model, task = run.recipe["model"]["name"], get_spec(run.dataset).task
    modules = closure(modules_of_run(None if run.digests.files else model, task, run.recipe).values())
    paths = [name.replace(".", "/") for name in modules]
    files = [path for stem in paths for path in (f"{stem}.py", f"{stem}/__init__.py")]
    stat = subprocess.run(
        ["git", "diff", "--stat", "--end-of-options", *commits, "--", *files],
        cwd=ROOT, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    if stat.returncode:
        return [*lines, f"        {stat.stderr.strip()}"]
    return lines + [f"       {line}" for line in stat.stdout.splitlines()]


def number_lines(before: Attempt, after: Attempt) -> list[str]:
    """Return both means, and the difference over common seeds."""
    lines = [
        f"{attempt.name}: {attempt.shown['mean ± std']} {attempt.shown['metric']}, {attempt.shown['runs']} runs"
        for attempt in (before, after)
    ]
    old, new = (tested_values(attempt.records) for attempt in (before, after))
    both = [run for run in old if run in new]
    if both:
        percent = summarise(after.result, after.records).percent
        differences = [new[run] - old[run] for run in both]
        mean, std = statistics.fmean(differences), statistics.pstdev(differences) if len(both) > 1 else None
        lines.append(
            f"difference over {len(both)} common seeds: {'+' if mean > 0 else ''}{mean_and_std(mean, std, percent)}"
            + ("" if std is None else " (standard deviation)")
        )
    return lines


def _digests(digests: set[str]) -> str:
    return ", ".join(sorted(digest[:12] for digest in digests))


def _short(commit: object) -> str:
    known = commit_id(commit)
    return "unknown" if known is None else known[:12] + ("-dirty" if str(commit).endswith("-dirty") else "")
