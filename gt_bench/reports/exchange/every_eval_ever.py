"""Results in the schema of evaluation results of the EvalEval Coalition ("Every Eval Ever").

    DIR/data/gt-bench-SUITE/graph-transformer-benchmark/ROW/<uuid>.json

One file per row of a suite, own or shipped, with the test metric of each dataset: mean, deviation and values over the
seeds. The schema is eval.schema.json of https://github.com/evaleval/every_eval_ever, version SCHEMA_VERSION. Values in
`additional_details` are text, as the schema requires. Equal results give equal files.
"""

import hashlib
import json
import math
import statistics
import uuid
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from gt_bench.config.tried import TRIED
from gt_bench.data.registry import get_spec
from gt_bench.leaderboard.collect import Gathered, Version
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.words import reduced_of, status_of
from gt_bench.store.record_checks import ERRORS, UNIT_INTERVAL
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import write_json
from gt_bench.utils.json_types import Settings
from gt_bench.utils.redact import shareable

SCHEMA_VERSION = "0.3.0"
LIBRARY = "graph-transformer-benchmark"
TITLE = "Graph transformer benchmark"


def write(held: Gathered, folder: Path) -> list[Path]:
    """Writes a file per row of a suite that has results.

    Args:
        held: results of all cells.
        folder: the folder DIR.

    Returns:
        The files.

    Raises:
        WriteError: a file cannot be written.
    """
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in (*held.rows, *held.others):
        mean = row.summary.mean
        if mean is not None and math.isfinite(mean) and (row.source, row.cell) in held.versions:
            groups.setdefault((row.suite, row.model, str(row.source)), []).append(row)
    paths = []
    for (suite, model, source), rows in sorted(groups.items()):
        versions = [held.versions[source, row.cell] for row in rows]
        name = f"{uuid_of(rows)}.json"
        path = folder / "data" / f"gt-bench-{suite}" / LIBRARY / model / name
        paths.append(write_json(path, log_of(suite, model, source, rows, versions)))
    return paths


def uuid_of(rows: Sequence[Row]) -> uuid.UUID:
    """Returns a UUID (version 4) that depends on the runs alone, so that a second export writes the same file."""
    runs = json.dumps([[row.cell, row.source, row.metric, row.summary.digests] for row in rows])
    return uuid.UUID(bytes=hashlib.sha256(runs.encode()).digest()[:16], version=4)


def log_of(suite: str, model: str, source: str, rows: Sequence[Row], versions: Sequence[Version]) -> Settings:
    """Returns the content of one file.

    Args:
        suite: name of the suite.
        model: row of the suite.
        source: own or shipped.
        rows: rows of leaderboards.
        versions: result and records of each row.
    """
    records = [record for one in versions for record in one.records]
    first = records[0]
    finished = max(datetime.fromisoformat(record.measured.finished).timestamp() for record in records)
    name = f"{LIBRARY}/{model}"
    contributors = list(dict.fromkeys(record.by for record in records if record.by))
    marks = list(dict.fromkeys(row.contributed for row in rows if row.contributed))
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"gt-bench-{suite}/{name}/{finished:.0f}",
        "evaluation_timestamp": max(record.measured.finished for record in records),
        "retrieved_timestamp": f"{finished:.0f}",
        "source_metadata": {
            "source_name": f"{TITLE}, suite {suite}",
            "source_type": "evaluation_run",
            "source_organization_name": ", ".join(contributors) or TITLE,
            "evaluator_relationship": "other" if suite == TRIED else "third_party",
            "additional_details": {"records": source} | ({"contributed": "; ".join(marks)} if marks else {}),
        },
        "eval_library": {"name": LIBRARY, "version": version(LIBRARY)},
        "model_info": {
            "name": model,
            "id": name,
            "developer": LIBRARY,
            "inference_engine": {"name": "torch", "version": str(first.measured.environment.package("torch"))},
            "additional_details": {
                "deployment_type": "self_deployed",
                "model_availability": "unknown",
                "architecture": str(first.run.recipe["model"]["name"]),
                "training": "trained from scratch with the recipe of each result",
            },
        },
        "evaluation_results": [_result(row, one) for row, one in zip(rows, versions, strict=True)],
    }


def _result(row: Row, version: Version) -> Settings:
    metric, runs, first = str(row.metric), row.summary.runs, version.records[0].run
    low, high = bounds(metric)
    selection = "last" if first.recipe.get("select") == "last" else "best on validation"
    if first.best_epoch is None:
        selection = "none: no validation"
    details = {
        "status": status_of(row.state),
        "seeds": json.dumps([record.run.seed for record in version.records]),
        "values": json.dumps(row.summary.values),
        "selected epoch": selection,
        "commits": ", ".join(dict.fromkeys(str(r.measured.environment.commit) for r in version.records)),
        "parameters": str(row.cost.parameters),
        "device": str(row.cost.device),
        "digests": json.dumps(row.summary.digests),
    }
    details |= {"reduced": "; ".join(reduced_of(row))} if row.reduced else {}
    if row.published and row.verdict:
        details |= {"published": row.published.printed, "verdict": row.verdict.word}
    return {
        "evaluation_result_id": f"{row.cell}/{metric}",
        "evaluation_name": row.dataset,
        "source_data": _source_of(row.dataset, first.digests.data),
        "evaluation_timestamp": max(record.measured.finished for record in version.records),
        "metric_config": {
            "evaluation_description": f"{metric} on the test split of {row.dataset}, mean over {runs} seeds",
            "metric_id": metric,
            "metric_name": metric,
            "metric_unit": "proportion" if (low, high) == (0, 1) else "none",
            "lower_is_better": row.direction == "min",
            "score_type": "continuous",
            "min_score": low,
            "max_score": high,
        },
        "score_details": {
            "score": row.summary.mean,
            "details": {key: shareable(value) for key, value in details.items()},
            "uncertainty": _uncertainty(row.summary.values),
        },
        "generation_config": {
            "generation_args": {"execution_command": f"gt-bench train {row.cell}"},
            "additional_details": {"recipe": json.dumps(first.recipe, sort_keys=True)},
        },
    }


def bounds(metric: str) -> tuple[float | str, float | str]:
    """Returns the smallest and largest value of a metric, "-Infinity" and "Infinity" where there is none."""
    name = metric.partition("@")[0].partition(" ")[0]
    if name in UNIT_INTERVAL:
        return 0, 1
    return (0 if name in ERRORS or name.startswith("pairs-") else "-Infinity"), "Infinity"


def _uncertainty(values: Sequence[float]) -> Settings:
    if len(values) < 2:
        return {"num_samples": len(values)}
    deviation = statistics.stdev(values)
    error = {"value": deviation / math.sqrt(len(values)), "method": "over seeds"}
    return {"standard_deviation": deviation, "standard_error": error, "num_samples": len(values)}


def _source_of(dataset: str, digest: str) -> Settings:
    details = {"digest of the packed data": digest}
    try:
        spec = get_spec(dataset)
    except DatasetError:
        return {"dataset_name": dataset, "source_type": "other", "additional_details": details}
    details |= {"task": spec.task, "licence": spec.licence, "citation": spec.citation}
    urls = list(dict.fromkeys(filter(None, [spec.homepage, *(file.urls[0] for file in spec.files if file.urls)])))
    if not urls:
        return {"dataset_name": dataset, "source_type": "other", "additional_details": details}
    return {"dataset_name": dataset, "source_type": "url", "url": urls, "additional_details": details}
