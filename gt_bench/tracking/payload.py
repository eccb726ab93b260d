"""Content of the tracking store for a cell and its runs, computed from its result and records.

Live tracking and later updates both end with this content, so a store that is built later equals one that was filled
live.
"""

import hashlib
import json
import math
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path

from gt_bench.config.recipe import BY_SET, TRIED, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_options import options_of
from gt_bench.config.space_text import space_text
from gt_bench.leaderboard.columns import SHOWN, cells
from gt_bench.leaderboard.rows import spread, summarise
from gt_bench.records.state import CellState
from gt_bench.schemas import Named, Record, Result, Row
from gt_bench.search.artifacts import COST, DESCRIBED
from gt_bench.store.attempts import attempt_id, when
from gt_bench.tracking.figures import learning_curves
from gt_bench.utils.digest import digest_of
from gt_bench.utils.format import markdown_text
from gt_bench.utils.nested import flat
from gt_bench.utils.paths import recipe_file
from gt_bench.utils.redact import commit_id, without_credentials
from gt_bench.utils.versions import version_text

# Lengths in characters that all versions and backends of MLflow accept.
PARAM_LENGTH, TAG_LENGTH, DIGEST_LENGTH = 500, 5000, 36
NOTE = "mlflow.note.content"  # tag that MLflow shows as description
ROOT = Path(__file__).parents[2]
LARGEST = 1.7976931348623157e308


@dataclass(frozen=True)
class Tracked:
    """Content of one MLflow run.

    Attributes:
        name: of the run.
        status: of MLflow.
        params: name -> value.
        metrics: name -> [(step, value)].
        tags: name -> value.
        dataset: (name, sha256).
        artifacts: name -> a file of the store, or a function that returns bytes.
        source: data that the artifacts are made from, so that the seal covers them.
        start: milliseconds since 1970; None for now.
        end: the same.
    """

    name: str
    status: str
    metrics: dict[str, list[tuple[int, float]]]
    tags: dict[str, str]
    params: dict[str, str] = field(default_factory=dict)
    dataset: tuple[str, str] | None = None
    artifacts: dict[str, Callable[[], bytes] | Path] = field(default_factory=dict, hash=False)
    source: object = None
    start: int | None = None
    end: int | None = None

    @cached_property
    def seal(self) -> str:
        """Digest of everything except ids and times. It is written last, so a run with a seal is complete."""
        content = [
            self.name, self.status, self.params, self.metrics, self.tags, self.dataset, sorted(self.artifacts),
            self.source,
        ]  # fmt: skip
        return digest_of(content)


def run_metrics(record: Record) -> dict[str, list[tuple[int, float]]]:
    """Return the metrics of a run: name -> [(step, value)], in raw units. Curves have one point per epoch."""
    run, measured = record["deterministic"], record["measured"]
    curves = {f"curve/{k}": v for k, v in run["epochs"].items() if k != "epoch"}
    metrics = {
        k: [(e, _storable(v)) for e, v in zip(run["epochs"]["epoch"], values) if v is not None]
        for k, values in curves.items()
    }
    usage = measured.get("usage") or {"epoch": []}
    metrics |= {f"system/process_{k}": list(zip(usage["epoch"], values)) for k, values in usage.items() if k != "epoch"}
    figures = {
        "result/best_epoch": run["best_epoch"],
        "result/val": run["val"],
        "result/test": run["test"],
        "cost/parameters": run["parameters"],
    }
    figures |= {f"result/test_{_key(k)}": v for k, v in (run["test_metrics"] or {}).items()}
    figures |= {
        f"cost/{k}": measured[k]
        for k in ("seconds", "train_seconds_per_epoch", "eval_seconds_per_epoch", "peak_memory_mib")
    }
    return {k: v for k, v in metrics.items() if v} | _points(figures)


def tracked_run(
    cell: Named, record: Record, current: bool = True, best: bool = False, weights: Path | None = None
) -> Tracked:
    """Return the content of the run of one seed.

    Args:
        cell: with suite, dataset, model and cell; a result is accepted.
        record: of the run.
        current: False for a run of an earlier attempt.
        best: whether it is the best seed of its cell on validation.
        weights: file with its weights, if the store has it.
    """
    run, measured = record["deterministic"], record["measured"]
    environment = measured["environment"]
    tags = {
        "gt.kind": "run", "gt.cell": cell["cell"], "gt.digest": record["digest"], "gt.status": run["status"],
        "gt.current": _word(current), "gt.best_seed": _word(best), "gt.error": run["error"], "gt.metric": run["metric"],
        "gt.direction": run["direction"], "gt.device": measured["device"], "gt.threads": measured.get("threads"),
        "gt.commit": environment.get("commit"), "gt.torch": environment.get("torch"),
        **_source(cell, environment.get("commit")), NOTE: describe_run(cell, record, current, weights),
    }  # fmt: skip
    artifacts: dict[str, Callable[[], bytes] | Path] = {"record.json": lambda: _json(record)}
    if weights is not None and best and weights.exists():
        artifacts[f"model/{weights.name}"] = weights
    return Tracked(
        name=f"{cell_name(cell)} seed {run['seed']}",
        status="FINISHED" if run["status"] == "ok" else "FAILED",
        params=_arguments(record)
        | flatten(run["recipe"])
        | {"seed": str(run["seed"]), "split": str(run["split"])}
        | _origin([record]),
        metrics=run_metrics(record),
        tags=_tags(tags),
        dataset=(run["dataset"], run["digests"]["data"]),
        artifacts=artifacts,
        source=record,
        start=milliseconds(measured["started"]),
        end=_end(record),
    )


# Column of the leaderboard -> tag of a cell's run.
VERDICT_TAGS = {
    "verdict": "gt.verdict", "margin": "gt.verdict.margin", "power": "gt.verdict.power",
    "seeds_needed": "gt.verdict.seeds_needed", "q_difference": "gt.verdict.q", "claim": "gt.claim",
    "claim_rival": "gt.claim.rival", "claim_more_seeds": "gt.claim.more_seeds",
}  # fmt: skip


def tracked_cell(result: Result, records: Sequence[Record], judged: Row | None = None, current: bool = True) -> Tracked:
    """Return the content of the parent run of a cell: recipe, results in raw units, and the published number.

    Args:
        result: of the cell.
        records: of the result.
        judged: the row of the leaderboard, which has the verdicts; None while the cell trains.
        current: False for an earlier attempt.
    """
    row = judged or summarise(result, records)
    runs = [r["deterministic"] for r in records]
    validated = [r["val"] for r in runs if r["status"] == "ok" and r["val"] is not None]
    figures = {
        "result/test_mean": row["mean"], "result/test_std": spread(row), "result/runs_ok": row["runs"],
        "result/runs_asked": row["seeds"],
        "result/val_mean": math.fsum(validated) / len(validated) if validated else None,
        "result/published_mean": row["published_mean"], "result/published_std": row["published_std"],
        "result/difference": row["difference"], "cost/parameters": row["parameters"],
        "cost/seconds": math.fsum(r["measured"]["seconds"] for r in records) if records else None,
        "cost/train_seconds_per_epoch": row["seconds_per_epoch"], "cost/peak_memory_mib": row["peak_memory_mib"],
    }  # fmt: skip
    scores = [r["test_metrics"] or {} for r in runs if r["status"] == "ok"]
    for name in sorted({n for found in scores for n in found if n != row["metric"]}):
        values = [found[name] for found in scores if found.get(name) is not None]
        figures[f"result/test_{_key(name)}_mean"] = math.fsum(values) / len(values) if values else None
    commits = sorted({r["measured"]["environment"].get("commit") or "unknown" for r in records})
    tags = {
        **cell_tags(result), "gt.digest": attempt_id(result), "gt.current": _word(current), "gt.status": row["status"],
        "gt.reason": row["reason"], "gt.reduced": ", ".join(row["reduced"]) or None,
        "gt.metric": row["metric"], "gt.direction": row["direction"],
        "gt.published": row["published_source"], "gt.published.printed": row["published_printed"],
        "gt.notes": "; ".join(row["notes"]) or None, "gt.flags": "; ".join(row["flags"]) or None,
        "gt.device": row["device"],
        "gt.commit": ", ".join(commits) or None, **_source(result, commits[0] if commits else None),
        NOTE: describe_cell(result, row, records, current),
    }  # fmt: skip
    if judged:
        tags |= {
            tag: str(value)
            for column, value in judged.items()
            if value is not None and (tag := VERDICT_TAGS.get(column))
        }
        for tag, low, high in (
            ("gt.verdict.interval", judged["interval_low"], judged["interval_high"]),
            ("gt.claim.interval", judged["claim_low"], judged["claim_high"]),
        ):
            tags[tag] = None if low is None else f"[{low:.6g}, {high:.6g}]"
    artifacts: dict[str, Callable[[], bytes] | Path] = {"result.json": lambda: _json(result)}
    if any(r["epochs"]["epoch"] for r in runs):
        artifacts["learning_curves.png"] = lambda: learning_curves(result["cell"], records)
    artifacts |= search_plots(result) if current and result.get("search") else {}
    return Tracked(
        name=cell_name(result) if current else f"{cell_name(result)}, until {when(records)}",
        status=_status(row["state"]),
        params=(_arguments(records[0]) if records else {}) | flatten(result["recipe"]) | _origin(records),
        metrics=_points(figures),
        tags=_tags(tags),
        dataset=(runs[0]["dataset"], runs[0]["digests"]["data"]) if runs else None,
        artifacts=artifacts,
        source=[result, records],
        start=min((milliseconds(r["measured"]["started"]) for r in records), default=None),
        end=max((_end(r) for r in records), default=None),
    )


def describe_cell(result: Result, row: Row, records: Sequence[Record] = (), current: bool = True) -> str:
    """Return the description of a cell as Markdown: result, verdict, published number, how to reproduce it."""
    shown = dict(zip(SHOWN, cells(row), strict=True))
    diff = "" if result["suite"] == TRIED else f": `gt-bench diff {result['cell']}` shows what changed"
    said = [] if current else [f"**Superseded** by a later attempt{diff}."]
    what = f"`{result['model']}` on `{result['dataset']}` (suite `{result['suite']}`)"
    mean = (
        f": **{shown['mean ± std']}** {shown['metric']} over {shown['runs']} runs"
        if row["mean"] is not None
        else f": {row['status']}"
    )
    said.append(what + mean)
    if row["published_printed"]:
        difference = shown["difference [95 %]"]
        said.append(f"Published: {shown['published']} ({row['published_source']}); ours minus published: {difference}")
    if row.get("verdict"):
        said.append(f"Verdict: **{row['verdict']}**" + (f"; {shown['claim']}" if row["claim"] else ""))
    said += [f"Reason: {row['reason']}"] if row["reason"] else []
    said += [f"Reduced, not the published setting: {', '.join(row['reduced'])}"] if row["reduced"] else []
    commit = next((r["measured"]["environment"].get("commit") for r in records), None)
    return "  \n".join(
        [*map(markdown_text, said), f"Reproduce: `{command_of(result)}`", recipe_at(result["cell"], commit)]
    )


def describe_run(cell: Named, record: Record, current: bool, weights: Path | None) -> str:
    """Return the description of the run of one seed as Markdown."""
    run = record["deterministic"]
    ended = (
        f"{run['metric']} {run['test']:.6g} on test" if run["test"] is not None else f"{run['status']}: {run['error']}"
    )
    said = [] if current else ["**Superseded** by a later attempt."]
    epochs = f"epoch {run['best_epoch']} of {len(run['epochs']['epoch'])}"
    said.append(f"Seed {run['seed']}, split {run['split']} of `{cell['cell']}`: {ended}, {epochs}")
    if weights is not None and weights.exists():
        score = "" if cell["suite"] == TRIED else f"; `gt-bench score {cell['cell']}` evaluates it again"
        said.append(
            f'The best seed on validation. Its model: `gt_bench.store.weights.load_trained("{weights}")`{score}'
        )
    recipe = recipe_at(cell["cell"], record["measured"]["environment"].get("commit"))
    return "  \n".join([*map(markdown_text, said), f"Reproduce: `{command_of(cell)}`", recipe])


def command_of(cell: Named) -> str:
    """Return the command that runs a cell again; for `gt-bench try` with the options that its recipe contains."""
    if cell["suite"] != TRIED:
        return f"python -m stages.train {cell['cell']}"
    try:
        recipe = load_recipe(path_of(cell["cell"]))
    except RecipeError:  # removed or damaged
        return f"gt-bench try MODEL {cell['dataset']}"
    options = [f"{key}={json.dumps(recipe.value(key))}" for key, origin in recipe.origin.items() if origin == BY_SET]
    search = ["--search", str(recipe.search.trials)] if recipe.search else []
    for key, space in recipe.search.space.items() if recipe.search else ():
        search += ["--space", f"{key}={space_text(space)}"]
    search += options_of(recipe.search) if recipe.search else []
    said = [word for option in options for word in ("--set", option)]
    seeds = ["--seeds", ",".join(map(str, recipe.seeds))]
    return shlex.join(["gt-bench", "try", recipe.model.name, cell["dataset"], *seeds, *said, *search])


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
    found = _git("config", "--get", "remote.origin.url") or ""
    address = without_credentials(re.sub(r"^git@([^:]+):", r"https://\1/", found.strip())).removesuffix(".git")
    return address if address.startswith("http") else ""


@cache
def _files_of(commit: str) -> frozenset[str] | None:
    """The files of a commit; None where git does not know it."""
    found = _git("ls-tree", "-r", "--name-only", "--full-tree", "--end-of-options", commit)
    return None if found is None else frozenset(found.splitlines())


def _git(*arguments: str) -> str | None:
    """Return the output of git in this repository; None if the command fails."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, encoding="utf-8", check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def _source(cell: Named, commit: str | None) -> dict[str, str | None]:
    """Return the tags that MLflow defines for the source of a run."""
    clean = commit_id(commit)
    return {
        "mlflow.source.name": path_of(cell["cell"]), "mlflow.source.type": "LOCAL", "mlflow.source.git.commit": clean,
        "mlflow.source.git.dirty": _word(commit != clean) if clean else None,
        "mlflow.source.git.repoURL": repository() or None,
    }  # fmt: skip


def _arguments(record: Record) -> dict[str, str]:
    """Return all arguments of the model's constructor with defaults, if the record has them."""
    arguments = record["measured"].get("arguments")
    return flatten({"model": arguments}) if arguments else {}


def _origin(records: Sequence[Record]) -> dict[str, str]:
    """Return digests and versions as parameters: as tags they would fill the page above the description."""
    runs = [record["deterministic"] for record in records]
    found = {f"digest.{name}": {run["digests"][name] for run in runs} for name in ("recipe", "data", "encodings")}
    found["versions"] = {version_text(run["versions"], "modified" in run["digests"]) for run in runs}
    return flatten({name: ", ".join(sorted(values)) for name, values in found.items() if values})


def _end(record: Record) -> int:
    """Return the end of a run in milliseconds. Times of a record are whole seconds: add the duration of a short run."""
    measured = record["measured"]
    return max(
        milliseconds(measured["finished"]),
        milliseconds(measured["started"]) + max(1, math.ceil(1000 * measured["seconds"])),
    )


def _word(true: bool) -> str:
    return str(bool(true)).lower()


def search_plots(cell: Named, tuned: Path = Path("tuned")) -> dict[str, Callable[[], bytes] | Path]:
    """Return the existing plots of a cell's search as artifacts."""
    base = tuned / cell["cell"]
    paths = sorted(base.parent.glob(f"{base.name}.*.png"))
    return {f"search.{path.name.removeprefix(base.name + '.')}": path.read_bytes for path in paths}


def tracked_search(cell: Named, rows: Sequence[Mapping[str, str]], tuned: Path = Path("tuned")) -> list[Tracked]:
    """Return a search as MLflow runs: the run of the search with its plots, then one run per trial.

    Args:
        cell: the cell.
        rows: of tuned/<cell>.csv.
        tuned: folder of the search stage.
    """
    values = [(int(r["number"]), float(r["value"])) for r in rows if r["state"] == "COMPLETE"]
    better = max if rows[0]["direction"] == "max" else min
    counts = {
        f"cost/trials_{state.lower()}": sum(r["state"] == state for r in rows)
        for state in sorted({r["state"] for r in rows})
    }
    named = {f"gt.{k}": cell[k] for k in ("cell", "suite", "dataset", "model")}
    whole = Tracked(
        name=f"{cell_name(cell)} search",
        status="FINISHED",
        metrics=_points({"result/best_validation": better(v for _, v in values) if values else None, **counts}),
        tags=_tags({"gt.kind": "search", **named, "gt.direction": rows[0]["direction"]}),
        artifacts=search_plots(cell, tuned),
        source=[dict(row) for row in rows],
    )
    costs = [key for key in rows[0] if key.startswith(COST)]
    return [whole] + [
        Tracked(
            name=f"{cell_name(cell)} trial {row['number']}",
            # a pruned trial is not a failure
            status="FAILED" if row["state"] == "FAIL" else "FINISHED",
            params={_key(k): v for k, v in row.items() if k not in (*DESCRIBED, *costs)},
            metrics=_points(
                {"result/validation": float(row["value"])}
                | {f"result/{key.removeprefix(COST)}": float(row[key]) for key in costs}
            )
            if row["state"] == "COMPLETE"
            else {},
            tags=_tags(
                {"gt.kind": "trial", **named, "gt.digest": f"trial {row['number']}"}
                | {f"gt.{key}": row[key] for key in ("state", "status")}
            ),
            source=dict(row),
        )
        for row in rows
    ]


def cell_name(cell: Named) -> str:
    """Return the name of a cell's run."""
    return f"{cell['dataset']} {cell['model']}"


def cell_tags(cell: Named) -> dict[str, str]:
    """Return the tags that identify a cell's run."""
    return {"gt.kind": "cell", "gt.current": "true"} | {
        f"gt.{k}": cell[k] for k in ("cell", "suite", "dataset", "model")
    }


def flatten(content: Mapping[str, object]) -> dict[str, str]:
    """Return nested settings as MLflow parameters: dotted keys, lists as JSON, long values cut with a digest."""
    found: dict[str, str] = {}
    for key, value in flat(content):
        text = value if isinstance(value, str) else json.dumps(value)
        mark = f"… ({len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})"
        found[_key(key)] = text if len(text) <= PARAM_LENGTH else text[: PARAM_LENGTH - len(mark)] + mark
    return found


def milliseconds(moment: str) -> int:
    """Return an ISO 8601 time in milliseconds since 1970."""
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


def _status(state: CellState) -> str:
    # MLflow has no other final states; the tag gt.status has the kind of failure
    return "FINISHED" if state.done and not state.undefined else "FAILED"


def _points(figures: Mapping[str, float | None]) -> dict[str, list[tuple[int, float]]]:
    """Return figures as points, rounded to six digits, as MLflow shows all of them; counts are exact."""
    return {k: [(0, _storable(v if v % 1 == 0 else float(f"{v:.6g}")))] for k, v in figures.items() if v is not None}


def _storable(value: float) -> float:
    # the database of MLflow stores infinity as the largest float
    return math.copysign(LARGEST, value) if math.isinf(value) else float(value)


def _key(name: str) -> str:
    return re.sub(r"[^\w\-. /:]", "_", name)


def _tags(tags: Mapping[str, object]) -> dict[str, str]:
    return {k: str(v)[:TAG_LENGTH] for k, v in tags.items() if v not in (None, "")}


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
