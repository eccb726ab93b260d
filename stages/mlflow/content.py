"""What the tracking store must hold for a cell and its runs, from its result and records alone.

Live tracking and completion after the fact both end in this description, so a store built later equals one that was filled live.
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
from typing import Any

from stages.report.table import summarise

# limits of MLflow: 500 characters of a parameter are kept by every version and backend, 36 of a dataset digest
PARAM_LENGTH, TAG_LENGTH, DIGEST_LENGTH = 500, 5000, 36
LARGEST = 1.7976931348623157e308


@dataclass(frozen=True)
class Tracked:
    """One MLflow run. `metrics`: name -> [(step, value)]; `dataset`: (name, sha256); `artifacts`: file name -> its bytes, made when needed;
    `start`, `end`: milliseconds, None for now; `source`: what the artifacts are made of, so that the seal covers them."""

    name: str
    status: str
    params: dict[str, str]
    metrics: dict[str, list[tuple[int, float]]]
    tags: dict[str, str]
    dataset: tuple[str, str] | None
    artifacts: dict[str, Callable[[], bytes]] = field(hash=False)
    source: Any = None
    start: int | None = None
    end: int | None = None

    @cached_property
    def seal(self) -> str:
        """Digest of everything but ids and clocks; the last thing that is written to a run, so that a run that bears it is whole."""
        content = [self.name, self.status, self.params, self.metrics, self.tags, self.dataset, sorted(self.artifacts), self.source]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def tracked_run(cell: Mapping[str, Any], record: Mapping[str, Any]) -> Tracked:
    """The run of one seed. `cell`: mapping with suite, dataset, model and cell (a result will do)."""
    run, measured = record["deterministic"], record["measured"]
    curves = {k: v for k, v in run["epochs"].items() if k != "epoch"}
    metrics = {k: [(e, _storable(v)) for e, v in zip(run["epochs"]["epoch"], values) if v is not None] for k, values in curves.items()}
    figures = {"best_epoch": run["best_epoch"], "best_val": run["val"], "test": run["test"], "parameters": run["parameters"]}
    figures |= {f"test_{_key(k)}": v for k, v in (run["test_metrics"] or {}).items()}
    figures |= {k: measured[k] for k in ("seconds", "train_seconds_per_epoch", "eval_seconds_per_epoch", "peak_memory_mib")}
    environment = measured["environment"]
    tags = {
        "gt.kind": "run", "gt.cell": cell["cell"], "gt.digest": record["digest"], "gt.status": run["status"],
        "gt.error": run["error"], "gt.metric": run["metric"], "gt.direction": run["direction"], "gt.device": measured["device"],
        "gt.commit": environment.get("commit"), "gt.torch": environment.get("torch"),
        **{f"gt.digest.{k}": v for k, v in run["digests"].items()},
    }  # fmt: skip
    return Tracked(
        name=f"{cell['dataset']} {cell['model']} seed {run['seed']}",
        status=_status(run["status"]),
        params=flatten(run["recipe"]) | {"seed": str(run["seed"]), "split": str(run["split"])},
        metrics={k: v for k, v in metrics.items() if v} | _points(figures),
        tags=_tags(tags),
        dataset=(run["dataset"], run["digests"]["data"]),
        artifacts={"record.json": lambda: _json(record)},
        source=record,
        start=milliseconds(measured["started"]),
        end=milliseconds(measured["finished"]),
    )


# column of the leaderboard -> tag of a cell's run
VERDICT_TAGS = {
    "verdict": "gt.verdict", "margin": "gt.verdict.margin", "power": "gt.verdict.power", "seeds_needed": "gt.verdict.seeds_needed",
    "q_difference": "gt.verdict.q", "claim": "gt.claim", "claim_rival": "gt.claim.rival", "claim_more_seeds": "gt.claim.more_seeds",
}  # fmt: skip


def tracked_cell(result: Mapping[str, Any], records: Sequence[Mapping[str, Any]], judged: Mapping[str, Any] | None = None) -> Tracked:
    """The parent run of a cell: its recipe, its figures in raw units, and the published number. `judged`: the cell's row of the leaderboard,
    which alone knows the rivals' runs; while a cell trains there is none, and no verdict is shown."""
    row = summarise(result, records)
    runs = [r["deterministic"] for r in records]
    validated = [r["val"] for r in runs if r["status"] == "ok" and r["val"] is not None]
    figures = {
        "test_mean": row["mean"], "test_std": row["std"], "runs_ok": row["runs"], "runs_asked": row["seeds"],
        "val_mean": math.fsum(validated) / len(validated) if validated else None,
        "published_mean": row["published_mean"], "published_std": row["published_std"], "difference": row["difference"],
        "parameters": row["parameters"], "train_seconds_per_epoch": row["seconds_per_epoch"], "peak_memory_mib": row["peak_memory_mib"],
    }  # fmt: skip
    scores = [r["test_metrics"] or {} for r in runs if r["status"] == "ok"]
    for name in sorted({n for found in scores for n in found if n != row["metric"]}):
        values = [found[name] for found in scores if found.get(name) is not None]
        figures[f"test_{_key(name)}_mean"] = math.fsum(values) / len(values) if values else None
    tags = {
        **cell_tags(result), "gt.status": row["status"], "gt.reason": row["reason"], "gt.reduced": ", ".join(row["reduced"]) or None,
        "gt.metric": row["metric"], "gt.direction": row["direction"], "gt.published": row["published_source"],
        "gt.published.printed": row["published_printed"], "gt.notes": "; ".join(row["notes"]) or None, "gt.flags": "; ".join(row["flags"]) or None, "gt.device": row["device"],
        "gt.commit": ", ".join(sorted({r["measured"]["environment"].get("commit") or "unknown" for r in records})) or None,
    }  # fmt: skip
    if judged:
        tags |= {tag: judged[column] for column, tag in VERDICT_TAGS.items()}
        for tag, kind in (("gt.verdict.interval", "interval"), ("gt.claim.interval", "claim")):
            low, high = judged[f"{kind}_low"], judged[f"{kind}_high"]
            tags[tag] = None if low is None else f"[{low:.6g}, {high:.6g}]"
    for name in ("recipe", "data", "encodings", "code"):
        tags[f"gt.digest.{name}"] = ", ".join(sorted({r["digests"][name] for r in runs})) or None
    artifacts: dict[str, Callable[[], bytes]] = {"result.json": lambda: _json(result)}
    if any(r["epochs"]["epoch"] for r in runs):
        artifacts["learning_curves.png"] = lambda: _figure(result["cell"], records)
    artifacts |= search_plots(result)
    return Tracked(
        name=cell_name(result),
        status=_status(row["status"]),
        params=flatten(result["recipe"]),
        metrics=_points(figures),
        tags=_tags(tags),
        dataset=(runs[0]["dataset"], runs[0]["digests"]["data"]) if runs else None,
        artifacts=artifacts,
        source=[result, records],
        start=min((milliseconds(r["measured"]["started"]) for r in records), default=None),
        end=max((milliseconds(r["measured"]["finished"]) for r in records), default=None),
    )


def search_plots(result: Mapping[str, Any], tuned: Path = Path("tuned")) -> dict[str, Callable[[], bytes]]:
    """The pictures of a cell's search as artifacts, where it had one and they are there."""
    base = tuned / result["cell"]
    paths = sorted(base.parent.glob(f"{base.name}.*.png")) if result.get("search") else []
    return {f"search.{path.name.removeprefix(base.name + '.')}": path.read_bytes for path in paths}


def tracked_search(cell: Mapping[str, Any], rows: Sequence[Mapping[str, str]], tuned: Path = Path("tuned")) -> list[Tracked]:
    """A search as MLflow runs, from the rows of tuned/<cell>.csv: first the one of the search, with its pictures, then one per trial."""
    values = [(int(r["number"]), float(r["value"])) for r in rows if r["state"] == "COMPLETE"]
    better = max if rows[0]["direction"] == "max" else min
    counts = {f"trials_{state.lower()}": sum(r["state"] == state for r in rows) for state in sorted({r["state"] for r in rows})}
    named = {f"gt.{k}": cell[k] for k in ("cell", "suite", "dataset", "model")}
    whole = Tracked(
        name=f"{cell_name(cell)} search",
        status="FINISHED",
        params={},
        metrics=_points({"best_validation": better(v for _, v in values) if values else None, **counts}),
        tags=_tags({"gt.kind": "search", **named, "gt.direction": rows[0]["direction"]}),
        dataset=None,
        artifacts=search_plots({**cell, "search": True}, tuned),
        source=[dict(row) for row in rows],
    )
    described = ("number", "state", "value", "status", "direction")
    return [whole] + [
        Tracked(
            name=f"{cell_name(cell)} trial {row['number']}",
            # a pruned trial is no failure
            status="FAILED" if row["state"] == "FAIL" else "FINISHED",
            params={_key(k): v for k, v in row.items() if k not in described},
            metrics=_points({"validation": float(row["value"])}) if row["state"] == "COMPLETE" else {},
            tags=_tags(
                {"gt.kind": "trial", **named, "gt.digest": f"trial {row['number']}", "gt.state": row["state"], "gt.status": row["status"]}
            ),
            dataset=None,
            artifacts={},
            source=dict(row),
        )
        for row in rows
    ]


def cell_name(cell: Mapping[str, Any]) -> str:
    return f"{cell['dataset']} {cell['model']}"


def cell_tags(cell: Mapping[str, Any]) -> dict[str, str]:
    return {"gt.kind": "cell"} | {f"gt.{k}": cell[k] for k in ("cell", "suite", "dataset", "model")}


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as MLflow parameters: keys joined by dots, lists as JSON, values over 500 characters cut with a mark."""
    flat: dict[str, str] = {}
    for key, value in content.items():
        name = prefix + _key(str(key))
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value)
            mark = f"… ({len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})"
            flat[name] = text if len(text) <= PARAM_LENGTH else text[: PARAM_LENGTH - len(mark)] + mark
    return flat


def milliseconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1000)


def _figure(title: str, records: Sequence[Mapping[str, Any]]) -> bytes:
    from stages.report.figures import learning_curves

    return learning_curves(title, records)


def _status(status: str) -> str:
    # MLflow knows no other ending; what kind of failure it was stands in the tag gt.status
    return "FINISHED" if status.startswith("ok") else "FAILED"


def _points(figures: Mapping[str, float | None]) -> dict[str, list[tuple[int, float]]]:
    return {k: [(0, _storable(v))] for k, v in figures.items() if v is not None}


def _storable(value: float) -> float:
    # MLflow's database holds infinities as the largest float
    return math.copysign(LARGEST, value) if math.isinf(value) else float(value)


def _key(name: str) -> str:
    return re.sub(r"[^\w\-. /:]", "_", name)


def _tags(tags: Mapping[str, Any]) -> dict[str, str]:
    return {k: str(v)[:TAG_LENGTH] for k, v in tags.items() if v not in (None, "")}


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
