"""Content of the tracking store for a cell and its runs, computed from its result and records.

Live tracking and later updates both end with this content, so a store that is built later equals one that was filled
live.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path

from gt_bench.config.recipe import DESCRIPTIVE
from gt_bench.leaderboard.collect import summarise
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.words import notes_of, reduced_of, rival_of, status_of
from gt_bench.records.cell import CellNames, CellResult
from gt_bench.records.run import RunRecord, points
from gt_bench.records.trials import COST, DESCRIBED
from gt_bench.store.attempts import attempt_id, when
from gt_bench.tracking.descriptions import describe_cell, describe_run, path_of, repository
from gt_bench.tracking.figures import learning_curves
from gt_bench.utils.digest import digest_of
from gt_bench.utils.nested import flat
from gt_bench.utils.redact import commit_id
from gt_bench.utils.versions import version_text

# Lengths in characters that all versions and backends of MLflow accept.
PARAM_LENGTH, TAG_LENGTH, DIGEST_LENGTH = 500, 5000, 36
NOTE = "mlflow.note.content"  # tag that MLflow shows as description
OF_DATA = {"in_dim", "out_dim", "level"}  # arguments of a model that are no hyperparameters
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


def run_metrics(record: RunRecord) -> dict[str, list[tuple[int, float]]]:
    """Return the metrics of a run: name -> [(step, value)], in raw units. Curves have one point per epoch."""
    run, measured = record.run, record.measured
    metrics = {
        f"curve/{k}": [(epoch, _storable(value)) for epoch, value in points(run.epochs, k)]
        for k in run.epochs
        if k != "epoch"
    }
    usage = measured.usage
    metrics |= {f"system/process_{k}": points(usage, k) for k in usage if k != "epoch"}
    metric = _key(run.metric)
    figures = {f"test/{metric}": run.test, f"val/{metric}": run.val}  # the first is what MLflow compares
    figures |= {f"test/{_key(k)}": v for k, v in run.test_metrics.items() if k != run.metric}
    figures |= {"result/best_epoch": run.best_epoch, "cost/parameters": run.parameters}
    figures |= {
        f"cost/{k}": getattr(measured, k)
        for k in ("seconds", "train_seconds_per_epoch", "eval_seconds_per_epoch", "peak_memory_mib")
    }
    return _points(figures) | {k: v for k, v in metrics.items() if v}


def tracked_run(
    cell: CellNames, record: RunRecord, current: bool = True, best: bool = False, weights: Path | None = None
) -> Tracked:
    """Return the content of the run of one seed.

    Args:
        cell: with suite, dataset, model and cell; a result is accepted.
        record: of the run.
        current: False for a run of an earlier attempt.
        best: whether it is the best seed of its cell on validation.
        weights: file with its weights, if the store has it.
    """
    run, measured = record.run, record.measured
    environment = measured.environment
    tags = {
        "gt.kind": "run", "gt.cell": cell.cell, "gt.digest": record.digest, "gt.status": run.status,
        "gt.current": _word(current), "gt.best_seed": _word(best), "gt.error": run.error, "gt.metric": run.metric,
        "gt.direction": run.direction, "gt.device": measured.device, "gt.threads": measured.threads,
        "gt.commit": environment.commit, "gt.torch": environment.package("torch"), **_origin([record]),
        **_source(cell, environment.commit), NOTE: describe_run(cell, record, current, weights),
    }  # fmt: skip
    artifacts: dict[str, Callable[[], bytes] | Path] = {"record.json": lambda: _json(record.to_disk())}
    if weights is not None and best and weights.exists():
        artifacts[f"model/{weights.name}"] = weights
    return Tracked(
        name=f"{cell_name(cell)} seed {run.seed}",
        status="FINISHED" if run.status == "ok" else "FAILED",
        params=_arguments(record) | hyperparameters(run.recipe) | {"seed": str(run.seed), "split": str(run.split)},
        metrics=run_metrics(record),
        tags=_tags(tags),
        dataset=(run.dataset, run.digests.data),
        artifacts=artifacts,
        source=record.to_disk(),
        start=milliseconds(measured.started),
        end=_end(record),
    )


def _verdict_tags(row: Row) -> dict[str, object]:
    """Return the verdicts of a row as tags; a tag without a value is None."""
    verdict, claim = row.verdict, row.claim
    tags: dict[str, object] = {}
    if verdict:
        tags |= {
            "gt.verdict": verdict.word, "gt.verdict.margin": verdict.margin, "gt.verdict.power": verdict.power,
            "gt.verdict.seeds_needed": verdict.seeds_needed, "gt.verdict.q": verdict.q_difference,
        }  # fmt: skip
    if claim:
        tags |= {
            "gt.claim": claim.word,
            "gt.claim.rival": claim.rival and rival_of(claim.rival),
            "gt.claim.more_seeds": claim.more_seeds,
        }
    for tag, interval in ("gt.verdict.interval", row.interval), ("gt.claim.interval", claim and claim.interval):
        tags[tag] = f"[{interval[0]:.6g}, {interval[1]:.6g}]" if interval else None
    return tags


def tracked_cell(
    result: CellResult, records: Sequence[RunRecord], judged: Row | None = None, current: bool = True
) -> Tracked:
    """Return the content of the parent run of a cell: recipe, results in raw units, and the published number.

    Args:
        result: of the cell.
        records: of the result.
        judged: the row of the leaderboard, which has the verdicts; None while the cell trains.
        current: False for an earlier attempt.
    """
    row = judged or summarise(result, records)
    runs = [r.run for r in records]
    validated = [r.val for r in runs if r.status == "ok" and r.val is not None]
    metric = _key(row.metric or "")
    figures = {
        f"test/{metric}": row.summary.mean,  # the first is what MLflow compares
        f"val/{metric}": math.fsum(validated) / len(validated) if validated else None,
        "result/test_mean": row.summary.mean, "result/test_std": row.summary.spread,
        "result/runs_ok": row.summary.runs, "result/runs_asked": row.summary.wanted,
        "result/published_mean": row.published.mean if row.published else None,
        "result/published_std": row.published.std if row.published else None,
        "result/difference": row.difference, "cost/parameters": row.cost.parameters,
        "cost/seconds": math.fsum(r.measured.seconds for r in records) if records else None,
        "cost/train_seconds_per_epoch": row.cost.seconds_per_epoch, "cost/peak_memory_mib": row.cost.peak_memory_mib,
    }  # fmt: skip
    scores = [r.test_metrics or {} for r in runs if r.status == "ok"]
    for name in sorted({n for found in scores for n in found if n != row.metric}):
        values = [found[name] for found in scores if found.get(name) is not None]
        figures[f"test/{_key(name)}"] = math.fsum(values) / len(values) if values else None
    commits = sorted({r.measured.environment.commit or "unknown" for r in records})
    tags: dict[str, object] = {
        **cell_tags(result), "gt.digest": attempt_id(result), "gt.current": _word(current),
        "gt.status": status_of(row.state),
        "gt.reason": row.reason, "gt.reduced": ", ".join(reduced_of(row)) or None,
        "gt.metric": row.metric, "gt.direction": row.direction,
        "gt.published": row.published.source if row.published else None,
        "gt.published.printed": row.published.printed if row.published else None,
        "gt.notes": "; ".join(notes_of(row)), "gt.flags": "; ".join(row.published.flags if row.published else ()),
        "gt.device": row.cost.device,
        "gt.commit": ", ".join(commits) or None, **_origin(records), **_source(result, commits[0] if commits else None),
        NOTE: describe_cell(result, row, records, current),
    }  # fmt: skip
    tags |= _verdict_tags(row)
    artifacts: dict[str, Callable[[], bytes] | Path] = {"result.json": lambda: _json(result.to_disk())}
    if any(r.epochs["epoch"] for r in runs):
        artifacts["learning_curves.png"] = lambda: learning_curves(result.cell, records)
    artifacts |= search_plots(result) if current and result.search else {}
    return Tracked(
        name=cell_name(result) if current else f"{cell_name(result)}, until {when(records)}",
        # MLflow has no other final states; the tag gt.status has the kind of failure
        status="FINISHED" if row.state.done and not row.state.undefined else "FAILED",
        params=(_arguments(records[0]) if records else {}) | hyperparameters(result.recipe),
        metrics=_points(figures),
        tags=_tags(tags),
        dataset=(runs[0].dataset, runs[0].digests.data) if runs else None,
        artifacts=artifacts,
        source=[result.to_disk(), [record.to_disk() for record in records]],
        start=min((milliseconds(r.measured.started) for r in records), default=None),
        end=max((_end(r) for r in records), default=None),
    )


def _source(cell: CellNames, commit: str | None) -> dict[str, str | None]:
    """Return the tags that MLflow defines for the source of a run."""
    clean = commit_id(commit)
    return {
        "mlflow.source.name": path_of(cell.cell), "mlflow.source.type": "LOCAL", "mlflow.source.git.commit": clean,
        "mlflow.source.git.dirty": _word(commit != clean) if clean else None,
        "mlflow.source.git.repoURL": repository() or None,
    }  # fmt: skip


def _arguments(record: RunRecord) -> dict[str, str]:
    """Return all arguments of the model's constructor with defaults, except those that the data determine."""
    arguments = record.measured.arguments
    return flatten({"model": {key: value for key, value in arguments.items() if key not in OF_DATA}})


def hyperparameters(recipe: Mapping[str, object]) -> dict[str, str]:
    """Return the values of a recipe that a run depends on, as MLflow parameters."""
    return flatten({key: value for key, value in recipe.items() if key not in DESCRIPTIVE and value != {}})


def _origin(records: Sequence[RunRecord]) -> dict[str, str]:
    """Return digests and versions as tags. They are no parameters: MLflow would compare them as hyperparameters."""
    runs = [record.run for record in records]
    digests = {name: sorted({getattr(run.digests, name) for run in runs}) for name in ("recipe", "data", "encodings")}
    versions = sorted({version_text(run.versions, run.digests.modified is not None) for run in runs})
    found = "; ".join(f"{name} {', '.join(values)}" for name, values in digests.items() if values)
    return {"gt.digests": found, "gt.versions": ", ".join(versions)}


def _end(record: RunRecord) -> int:
    """Return the end of a run in milliseconds. Times of a record are whole seconds: add the duration of a short run."""
    measured = record.measured
    return max(
        milliseconds(measured.finished),
        milliseconds(measured.started) + max(1, math.ceil(1000 * measured.seconds)),
    )


def _word(true: bool) -> str:
    return str(bool(true)).lower()


def search_plots(cell: CellNames, tuned: Path = Path("tuned")) -> dict[str, Callable[[], bytes] | Path]:
    """Return the existing plots of a cell's search as artifacts."""
    base = tuned / cell.cell
    paths = sorted(base.parent.glob(f"{base.name}.*.png"))
    return {f"search.{path.name.removeprefix(base.name + '.')}": path.read_bytes for path in paths}


def tracked_search(cell: CellNames, rows: Sequence[Mapping[str, str]], tuned: Path = Path("tuned")) -> list[Tracked]:
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
    named = {f"gt.{k}": getattr(cell, k) for k in ("cell", "suite", "dataset", "model")}
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


def cell_name(cell: CellNames) -> str:
    """Return the name of a cell's run."""
    return f"{cell.dataset} {cell.model}"


def cell_tags(cell: CellNames) -> dict[str, str]:
    """Return the tags that identify a cell's run."""
    return {"gt.kind": "cell", "gt.current": "true"} | {
        f"gt.{k}": getattr(cell, k) for k in ("cell", "suite", "dataset", "model")
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


def _json(content: Mapping[str, object]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
