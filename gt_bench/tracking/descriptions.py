"""Descriptions of runs in MLflow: the result, the command that reproduces it, and where its recipe is."""

import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from gt_bench.config.recipe import BY_SET, TRIED, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_options import options_of
from gt_bench.config.space_text import space_text
from gt_bench.leaderboard.columns import SHOWN, cells
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.words import reduced_of, status_of
from gt_bench.records.cell import CellNames, CellResult
from gt_bench.records.run import RunRecord
from gt_bench.utils.format import markdown_text
from gt_bench.utils.paths import recipe_file
from gt_bench.utils.redact import commit_id, without_credentials

ROOT = Path(__file__).parents[2]


def describe_cell(result: CellResult, row: Row, records: Sequence[RunRecord] = (), current: bool = True) -> str:
    """Return the description of a cell in three lines of Markdown: result, published number, how to reproduce it."""
    shown = dict(zip(SHOWN, cells(row), strict=True))
    diff = "" if result.suite == TRIED else f": `gt-bench diff {result.cell}` shows what changed"
    superseded = "" if current else f"**Superseded** by a later attempt{diff}. "
    what = f"`{result.model}` on `{result.dataset}` (suite `{result.suite}`)"
    mean = (
        f": **{shown['mean ± std']}** {shown['metric']} over {shown['runs']} runs"
        if row.summary.mean is not None
        else f": {status_of(row.state)}"
    )
    reason = f"; {row.reason}" if row.reason else ""
    reduced = f"; reduced, not the published setting: {', '.join(reduced_of(row))}" if row.reduced else ""
    compared = []
    if row.published:
        difference = shown["difference [95 %]"]
        compared = [f"Published: {shown['published']} ({row.published.source}); ours minus published: {difference}"]
    if row.verdict:
        compared.append(f"**{shown['verdict']}**" + (f"; {shown['claim']}" if row.claim else ""))
    commit = next((r.measured.environment.commit for r in records), None)
    return _three_lines([superseded + what + mean + reason + reduced, "; ".join(compared)], result, commit)


def describe_run(cell: CellNames, record: RunRecord, current: bool, weights: Path | None) -> str:
    """Return the description of the run of one seed in three lines of Markdown."""
    run = record.run
    ended = f"{run.metric} {run.test:.6g} on test" if run.test is not None else f"{run.status}: {run.error}"
    superseded = "" if current else "**Superseded** by a later attempt. "
    epochs = f"epoch {run.best_epoch} of {len(run.epochs['epoch'])}"
    said = [f"{superseded}Seed {run.seed}, split {run.split} of `{cell.cell}`: {ended}, {epochs}"]
    if weights is not None and weights.exists():
        score = "" if cell.suite == TRIED else f"; `gt-bench score {cell.cell}` evaluates it again"
        said.append(
            f'The best seed on validation. Its model: `gt_bench.store.weights.load_trained("{weights}")`{score}'
        )
    return _three_lines(said, cell, record.measured.environment.commit)


def _three_lines(said: Sequence[str], cell: CellNames, commit: str | None) -> str:
    """Return the lines that are not empty, as Markdown, and a last line with the command that reproduces the run."""
    last = f"Reproduce: `{command_of(cell)}`. {recipe_at(cell.cell, commit)}"
    return "  \n".join([*(markdown_text(line) for line in said if line), last])


def command_of(cell: CellNames) -> str:
    """Return the command that runs a cell again; for `gt-bench try` with the options that its recipe contains."""
    if cell.suite != TRIED:
        return f"python -m stages.train {cell.cell}"
    try:
        recipe = load_recipe(path_of(cell.cell))
    except RecipeError:  # removed or damaged
        return f"gt-bench try MODEL {cell.dataset}"
    options = [f"{key}={json.dumps(recipe.value(key))}" for key, origin in recipe.origin.items() if origin == BY_SET]
    search = ["--search", str(recipe.search.trials)] if recipe.search else []
    for key, space in recipe.search.space.items() if recipe.search else ():
        search += ["--space", f"{key}={space_text(space)}"]
    search += options_of(recipe.search) if recipe.search else []
    said = [word for option in options for word in ("--set", option)]
    seeds = ["--seeds", ",".join(map(str, recipe.seeds))]
    return shlex.join(["gt-bench", "try", recipe.model.name, cell.dataset, *seeds, *said, *search])


def path_of(cell: str) -> str:
    """Return the path of the recipe of a cell."""
    return f"{cell}.yaml" if cell.startswith(f"{TRIED}/") else recipe_file(cell).as_posix()


def recipe_at(cell: str, commit: str | None) -> str:
    """Return where the recipe of a commit is: a link if the repository has a web address, otherwise a git command."""
    path, commit = path_of(cell), commit_id(commit)
    if commit is None or cell.startswith(f"{TRIED}/"):  # not in a commit
        return f"Recipe: `{path}`"
    address = repository()
    files = _files_of(commit)
    if (
        path not in files if files is not None else not address
    ):  # a recipe of this folder, or a commit that git does not know
        return f"Recipe: `{path}`"
    if address.startswith("http"):
        return f"Recipe: [{path} at {commit[:12]}]({address}/blob/{commit}/{path})"
    return f"Recipe: `git show {commit[:12]}:{path}`"


@cache
def repository() -> str:
    """Return the web address of this repository, without credentials; empty if it has none."""
    url = (_git("config", "--get", "remote.origin.url") or "").strip()
    address = without_credentials(re.sub(r"^git@([^:]+):", r"https://\1/", url)).removesuffix(".git")
    return address if address.startswith("http") else ""


@cache
def _files_of(commit: str) -> frozenset[str] | None:
    """Return the files of a commit; None if git does not know it."""
    paths = _git("ls-tree", "-r", "--name-only", "--full-tree", "--end-of-options", commit)
    return None if paths is None else frozenset(paths.splitlines())


def _git(*arguments: str) -> str | None:
    """Return the output of git in this repository; None if the command fails."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, encoding="utf-8", check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
