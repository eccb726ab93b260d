"""Checks of records and results: keys and types by their models, checksums, and values that contradict each other."""

import math
from typing import cast

from pydantic import ValidationError

from gt_bench.records.base import problems
from gt_bench.records.cell import CellResult
from gt_bench.records.run import RunRecord
from gt_bench.schemas import Ran, Record
from gt_bench.store.run_store import SCHEMA, Store, StoreError, fault_of, run_digest
from gt_bench.utils.digest import digest_of

CURVES = ("epoch", "train_loss", "val")  # curves that every run has
# metrics between 0 and 1; "f1@jets-b" counts as "f1"
NOT_NEGATIVE = {"mae", "mse", "rmse", "squared-error"}
UNIT_INTERVAL = {
    "accuracy", "balanced-accuracy", "roc-auc", "auc", "ap", "aupr", "f1", "f1-macro", "f1-micro", "precision",
    "recall", "partition-f1", "rand-index", "ordered-pair-accuracy", "f1-binary", "mrr", "hits",
}  # fmt: skip


def is_trial(record: Record) -> bool:
    """Returns whether a record is a trial of a search, which never reads the test split."""
    run = record["deterministic"]
    return record["digest"] == run_digest(
        run["recipe"], run["seed"], run["split"], run["digests"], run["versions"], test=False
    )


def result_problems(result: object) -> list[str]:
    """Returns what is wrong with the keys and types of a cell's result."""
    try:
        CellResult.from_disk(result)
    except ValidationError as error:
        return problems(error)
    return []


def stored_problem(store: Store, digest: str) -> list[str]:
    """Return what is wrong with the record of a run, one line each; nothing if there is no record."""
    try:
        record = store.get(digest)
    except StoreError as error:
        return [str(error)]
    if record is None:
        return []
    wrong = [f"{store.folder(digest)}/record.json: {line}" for line in record_problems(record)]
    if not record.get("predictions"):
        return wrong
    from gt_bench.store import predictions  # imports torch

    outputs = predictions.problem_of(record, store)
    return [*wrong, outputs] if outputs else wrong


def record_problems(record: object) -> list[str]:
    """Returns what is wrong with one record: keys, types, digest, checksum, and values that contradict each other."""
    if not isinstance(record, dict):
        return ["is not a record"]
    if record.get("schema") != SCHEMA:
        return [f"schema {record.get('schema')!r:.200}, but this code reads schema {SCHEMA}"]
    try:
        checked = RunRecord.from_disk(record)
    except ValidationError as error:
        return problems(error)
    if missing := [name for name in CURVES if name not in checked.run.epochs]:
        return [f"the curve {', '.join(missing)} is missing"]
    if checked.by is not None and checked.verified is None:
        return ["it has `by` but not `verified`; expected 'schema only' or 'recomputed'"]
    record = cast(Record, record)
    run, digests = record["deterministic"], record["deterministic"]["digests"]
    wrong = [fault] if (fault := fault_of(record)) else []
    key = (run["recipe"], run["seed"], run["split"], digests, run["versions"])
    trial = is_trial(record)
    if not trial and run_digest(*key) != record["digest"]:
        wrong.append(f"its content has the digest {run_digest(*key)}, not {record['digest']}")
    if digest_of(run["recipe"]) != digests["recipe"]:
        wrong.append("the digest of its recipe does not match its recipe")
    lengths = {len(curve) for curve in run["epochs"].values()}
    if len(lengths) > 1:
        wrong.append(f"its curves have {', '.join(map(str, sorted(lengths)))} epochs")
    tested = run["status"] == "ok" and not trial
    if tested and run["test"] is None:
        wrong.append("status ok without a test value")
    elif tested and not _same(run["test"], run["test_metrics"].get(run["metric"])):
        wrong.append(
            f"its test value is {run['test']}, but its {run['metric']} on the test split is "
            f"{run['test_metrics'].get(run['metric'])}"
        )
    if not tested and (run["test"] is not None or run["test_metrics"]):
        wrong.append("a search trial with a test value" if trial else f"status {run['status']} with a test value")
    return wrong + _validation_problems(run) + _metric_problems(run)


def _validation_problems(run: Ran) -> list[str]:
    """Returns why the tested epoch is not the one that validation selects."""
    epoch, validated = run["best_epoch"], dict(zip(run["epochs"]["epoch"], run["epochs"]["val"], strict=False))
    if epoch is None and all(v is None for v in (run["val"], *validated.values())):
        return []  # no validation, or the run ended before it
    if epoch is None or validated.get(epoch) is None:
        return [f"its best epoch is {epoch}, but its validation curve has no value there"]
    if not _same(run["val"], validated[epoch]):
        return [f"its validation value is {run['val']}, but its curve has {validated[epoch]} in epoch {epoch}"]
    if (selected := selected_epoch(run)) != epoch:
        rule = "last" if run["recipe"].get("select") == "last" else "first best"
        return [
            f"its best epoch is {epoch}, but the {rule} validation value is in epoch {selected}: the tested epoch was "
            "not selected on validation"
        ]
    return []


def selected_epoch(run: Ran) -> int | None:
    """Returns the epoch that validation selects, as the training loop does: the first best one, or the last one."""
    last, best, selected = run["recipe"].get("select") == "last", None, None
    for epoch, value in zip(run["epochs"]["epoch"], run["epochs"]["val"], strict=False):
        if value is None:
            continue
        if best is None or last or (value > best if run["direction"] == "max" else value < best):
            best, selected = value, epoch
    return selected


def _metric_problems(run: Ran) -> list[str]:
    from gt_bench.data.registry import catalog
    from gt_bench.tasks.registry import create_task

    wrong, spec = [], catalog().get(run["dataset"])
    if spec is not None:
        direction = create_task(spec.task, spec.metric, also=spec.also).direction
        if (run["metric"], run["direction"]) != (spec.metric, direction):
            wrong.append(
                f"its metric is {run['metric']} ({run['direction']}), but the metric of {run['dataset']} is "
                f"{spec.metric} ({direction})"
            )
    # with this metric, "accuracy" is 1 - slowdown, which has no lower bound
    bounded = UNIT_INTERVAL - {"accuracy"} if run["metric"] == "ordered-pair-accuracy" else UNIT_INTERVAL
    numbers = [(f"{run['metric']} on validation", run["metric"].partition("@")[0], run["val"])]
    numbers += [(f"{k} on the test split", k.partition("@")[0], v) for k, v in run["test_metrics"].items()]
    # NaN is allowed, because a metric can be undefined on a split
    known = [(what, name, v) for what, name, v in numbers if v is not None and not math.isnan(v)]
    wrong += [f"its {what} is {v}, but it must not be negative" for what, name, v in known if _is_negative(name, v)]
    return wrong + [
        f"its {what} is {v}, but it must be between 0 and 1"
        for what, name, v in known
        if name in bounded and not 0 <= v <= 1 + 1e-9
    ]


def _is_negative(metric: str, value: float) -> bool:
    return metric in NOT_NEGATIVE and value < 0


def _same(one: float | None, other: float | None) -> bool:
    """Returns whether two numbers are equal. NaN equals NaN."""
    return one == other or (one is not None and other is not None and math.isnan(one) and math.isnan(other))
