"""The attempts at a cell, and what changed between two of them: in the recipe, in the code and in the number."""

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gt_bench.config.grid import Cell
from gt_bench.experiment.components import modules_of_run
from gt_bench.leaderboard.columns import SHOWN, cells
from gt_bench.leaderboard.rows import summarise
from gt_bench.plugins.models import is_own
from gt_bench.schemas import Record, Result
from gt_bench.store.archive import read_result
from gt_bench.store.attempts import attempt_id, attempts, records_of, when
from gt_bench.store.run_store import Store
from gt_bench.utils.code_digest import ROOT, closure
from gt_bench.utils.errors import UserError
from gt_bench.utils.redact import commit_id

ABSENT = "(default)"  # of a value that the recipe does not give


class NoAttempt(UserError, ValueError):
    """There is no such attempt at the cell; the message says which there are."""


class Attempt(NamedTuple):
    """`number`: from 1, in order of time; `records`: those that the store has; `current`: what results/ has now."""

    number: int
    result: Result
    records: list[Record]
    current: bool

    @property
    def commit(self) -> str:
        """The short commits that computed its runs."""
        return ", ".join(sorted({_short(r["measured"]["environment"].get("commit")) for r in self.records}))

    @property
    def shown(self) -> dict[str, str]:
        """Column -> text, as the leaderboard shows it."""
        return dict(zip(SHOWN, cells(summarise(self.result, self.records) | {"verdict": ""}), strict=True))

    @property
    def name(self) -> str:
        """Its number, dates and commit."""
        return f"attempt {self.number} ({when(self.records)} UTC, commit {self.commit})"


def history(cell: str, store: Store, result: Result | None = None) -> list[Attempt]:
    """The attempts at a cell whose records the store has, oldest first. `result`: the one in results/, which is the current one whatever came
    after it. Raises NoAttempt where there is none, StoreError."""
    found = [(one, records) for one in attempts(cell, store) if (records := records_of(one, store))]
    if result and result["runs"] and not any(attempt_id(one) == attempt_id(result) for one, _ in found):
        found.append((result.copy(), records_of(result, store)))  # of before attempts were kept, or imported
    found = [(one, records) for one, records in found if records]
    if not found:
        raise NoAttempt(f"{cell}: no attempt is in {store.root}/; `gt-bench train {cell}` makes one")
    now = attempt_id(result) if result else attempt_id(found[-1][0])
    return [Attempt(i, one, records, attempt_id(one) == now) for i, (one, records) in enumerate(found, 1)]


def attempts_at(cell: Cell) -> list[Attempt]:
    """`history` of a cell of the grid, from the store and the results of this folder. Raises as `history`."""
    return history(cell.cell, Store(), read_result(Path("results", f"{cell.cell}.json"), cell.cell))


def history_lines(found: Sequence[Attempt]) -> list[str]:
    """The attempts, one line each, and between two of them what changed."""
    lines: list[str] = []
    for before, one in zip([None, *found], found, strict=False):
        lines += [f"    {change}" for change in changes(before, one)] if before else []
        now = "  <- current" if one.current else ""
        lines.append(
            f"{one.name}: {one.shown['mean ± std']} {one.shown['metric']}, {one.shown['runs']} runs, {one.shown['status']}{now}"
        )
    return lines


def difference_lines(found: Sequence[Attempt], before: int, after: int) -> list[str]:
    """What differs between two attempts, and their numbers; `before`, `after`: their numbers, counted from the last one where not positive. Raises
    NoAttempt."""
    if len(found) == 1:
        raise NoAttempt(
            f"{found[0].result['cell']}: there is one attempt only, {found[0].name}: nothing to compare it with"
        )
    first, second = (chosen(found, n if n > 0 else len(found) + n) for n in (before, after))
    return [*changes(first, second), *number_lines(first, second)]


def chosen(found: Sequence[Attempt], number: int) -> Attempt:
    """Raises NoAttempt."""
    if not 1 <= number <= len(found):
        raise NoAttempt(
            f"{found[0].result['cell']}: there is no attempt {number}; there are 1 to {len(found)} (`gt-bench history`)"
        )
    return found[number - 1]


def changes(before: Attempt, after: Attempt) -> list[str]:
    """What differs between two attempts, one line each: the recipe's values, then what else decides a number, then versions."""
    lines = [
        f"recipe  {key}: {old} -> {new}"
        for key, old, new in recipe_changes(before.result["recipe"], after.result["recipe"])
    ]
    if before.result["reduced"] != after.result["reduced"]:
        lines.append(
            f"cut     {', '.join(before.result['reduced']) or 'nothing'} -> {', '.join(after.result['reduced']) or 'nothing'}"
        )
    for what in ("data", "encodings", "files", "modified"):
        old, new = (
            {str(r["deterministic"]["digests"].get(what, "none")) for r in one.records} for one in (before, after)
        )
        if old != new:
            lines.append(f"{what:<7} {_digests(old)} -> {_digests(new)}")
    lines += [f"version {component}: {then} -> {now}" for component, then, now in _version_changes(before, after)]
    if len({r["measured"]["code"] for one in (before, after) for r in one.records}) > 1:
        lines += code_changes(before, after)
    was, now = (_environment(one.records) for one in (before, after))
    return lines + [
        f"machine {key}: {was.get(key)} -> {now.get(key)}"
        for key in sorted(was.keys() | now.keys())
        if was.get(key) != now.get(key)
    ]


def recipe_changes(before: Mapping[str, object], after: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """(key, value before, value after) of what decides; `absent` where one side lacks the key."""
    old, new = (
        _flat({k: v for k, v in recipe.items() if k not in ("origin", "published")}) for recipe in (before, after)
    )
    keys = [*old, *(key for key in new if key not in old)]
    return [
        (key, old.get(key, ABSENT), new.get(key, ABSENT))
        for key in keys
        if old.get(key, ABSENT) != new.get(key, ABSENT)
    ]


def code_changes(before: Attempt, after: Attempt) -> list[str]:
    """The files that the cell's runs import and that differ between the commits of two attempts, as far as git knows them."""
    lines, run = [f"code    commit {before.commit} -> {after.commit}"], after.records[0]["deterministic"]
    named = [one.records[0]["measured"]["environment"].get("commit") for one in (before, after)]
    commits = [commit for text in named if (commit := commit_id(text))]
    if len(commits) < len(named):
        return [*lines, "        one of them names no commit, 7 to 64 hexadecimal digits: git cannot show what changed"]
    if any(str(text).endswith("-dirty") for text in named):
        return [*lines, "        the code of one of them was in no commit (-dirty): git cannot show it"]
    from gt_bench.data.registry import get_spec

    model, task = run["recipe"]["model"]["name"], get_spec(run["dataset"]).task
    modules = closure(modules_of_run(None if is_own(model) else model, task, run["recipe"]).values())
    paths = [name.replace(".", "/") for name in modules]
    files = [path for stem in paths for path in (f"{stem}.py", f"{stem}/__init__.py")]
    stat = subprocess.run(
        ["git", "diff", "--stat", "--end-of-options", *commits, "--", *files],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return lines + (
        [f"       {line}" for line in stat.stdout.splitlines()]
        if stat.returncode == 0
        else [f"        {stat.stderr.strip()}"]
    )


def number_lines(before: Attempt, after: Attempt) -> list[str]:
    """Both means, their difference, and that of the seeds that both have."""
    lines = [
        f"{one.name}: {one.shown['mean ± std']} {one.shown['metric']}, {one.shown['runs']} runs"
        for one in (before, after)
    ]
    old, new = (_tested(one.records) for one in (before, after))
    both = [seed for seed in old if seed in new]
    if both:
        percent, differences = after.shown["metric"].endswith("%"), [new[seed] - old[seed] for seed in both]
        scale = 100 if percent else 1
        spread = f" ± {scale * statistics.stdev(differences):.4g} (standard deviation)" if len(both) > 1 else ""
        lines.append(f"difference over {len(both)} common seeds: {scale * statistics.fmean(differences):+.4g}{spread}")
    return lines


def _version_changes(before: Attempt, after: Attempt) -> list[tuple[str, str, str]]:
    """(component, versions before, versions now) of those that differ."""
    old, new = ([r["deterministic"]["versions"] for r in one.records] for one in (before, after))
    components = dict.fromkeys(component for versions in (*old, *new) for component in versions)
    shown = [
        (
            component,
            *(", ".join(sorted({str(versions.get(component, "none")) for versions in side})) for side in (old, new)),
        )
        for component in components
    ]
    return [(component, then, now) for component, then, now in shown if then != now]


def _tested(records: Sequence[Record]) -> dict[int, float]:
    """Seed -> test value, of the runs that have one."""
    runs = [record["deterministic"] for record in records]
    return {run["seed"]: run["test"] for run in runs if run["test"] is not None}


def _environment(records: Sequence[Record]) -> dict[str, str]:
    """What the machine and its packages were, as text; several values where the runs differ."""
    found: dict[str, set[str]] = {}
    for record in records:
        for key, value in record["measured"]["environment"].items():
            if key != "commit":
                found.setdefault(key, set()).add(value if isinstance(value, str) else json.dumps(value, sort_keys=True))
    return {key: ", ".join(sorted(values)) for key, values in found.items()}


def _flat(content: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in content.items():
        flat |= (
            _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": str(value)}
        )
    return flat


def _digests(digests: set[str]) -> str:
    return ", ".join(sorted(digest[:12] for digest in digests))


def _short(commit: object) -> str:
    known = commit_id(commit)
    return "unknown" if known is None else known[:12] + ("-dirty" if str(commit).endswith("-dirty") else "")
