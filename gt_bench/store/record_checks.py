"""Checks of records beyond keys and types: digests, checksums, and values that contradict each other."""

import math
from pathlib import Path

from gt_bench.records.cell import CellResult
from gt_bench.records.run import RunRecord, RunResult, points
from gt_bench.store.run_store import Store, StoreError, fault_of, run_digest
from gt_bench.utils.digest import digest_of

CURVES = ("epoch", "train_loss", "val")  # curves that every run has
ERRORS = {"mae", "mse", "rmse", "squared-error"}  # metrics that are not negative, and better if they are smaller
# metrics between 0 and 1; "f1@jets-b" counts as "f1"
UNIT_INTERVAL = {
    "accuracy", "balanced-accuracy", "roc-auc", "auc", "ap", "aupr", "f1", "f1-macro", "f1-micro", "precision",
    "recall", "partition-f1", "rand-index", "ordered-pair-accuracy", "f1-binary", "mrr", "hits",
}  # fmt: skip


def is_trial(record: RunRecord) -> bool:
    """Returns whether a record is a trial of a search, which never reads the test split."""
    run = record.run
    return record.digest == run_digest(run.recipe, run.seed, run.split, run.digests, run.versions, test=False)


def stored_problem(store: Store, digest: str) -> list[str]:
    """Return what is wrong with the record of a run, one line each; nothing if there is no record."""
    try:
        record = store.get(digest)
    except StoreError as error:
        return [str(error)]
    if record is None:
        return []
    wrong = [f"{store.folder(digest)}/record.json: {line}" for line in record_problems(record)]
    if record.predictions.sha256 is None:
        return wrong
    from gt_bench.store import predictions  # imports torch

    outputs = predictions.problem_of(record, store)
    return [*wrong, str(outputs)] if outputs else wrong


def missing_records(result: CellResult, path: Path, store: Store) -> list[str]:
    """Returns a line for each run that a result names and that has no record.

    Args:
        result: the result.
        path: its file.
        store: the run store.
    """
    files = [store.folder(digest) / "record.json" for digest in result.runs]
    return [
        f"{path}: runs names {file}, which is missing; `python -m stages.train {result.cell}` makes it again"
        for file in files
        if not file.exists()
    ]


def record_problems(record: RunRecord) -> list[str]:
    """Returns what is wrong with one record: digest, checksum, and values that contradict each other."""
    return form_problems(record) + selection_problems(record.run)


def form_problems(record: RunRecord) -> list[str]:
    """Returns the same, except for the selection of the tested epoch."""
    run, digests = record.run, record.run.digests
    if missing := [name for name in CURVES if name not in run.epochs]:
        return [f"the curve {', '.join(missing)} is missing"]
    if record.by is not None and record.verified is None:
        return ["it has `by` but not `verified`; expected 'schema only' or 'recomputed'"]
    wrong = [fault] if (fault := fault_of(record)) else []
    key = (run.recipe, run.seed, run.split, digests, run.versions)
    trial = is_trial(record)
    if not trial and run_digest(*key) != record.digest:
        wrong.append(f"its content has the digest {run_digest(*key)}, not {record.digest}")
    if digest_of(run.recipe) != digests.recipe:
        wrong.append("the digest of its recipe does not match its recipe")
    lengths = {len(curve) for curve in run.epochs.values()}
    if len(lengths) > 1:
        wrong.append(f"its curves have {', '.join(map(str, sorted(lengths)))} epochs")
    tested = run.status == "ok" and not trial
    if tested and run.test is None:
        wrong.append("status ok without a test value")
    elif tested and not _same(run.test, run.test_metrics.get(run.metric)):
        wrong.append(
            f"its test value is {run.test}, but its {run.metric} on the test split is "
            f"{run.test_metrics.get(run.metric)}"
        )
    if not tested and (run.test is not None or run.test_metrics):
        wrong.append("a search trial with a test value" if trial else f"status {run.status} with a test value")
    return wrong + _metric_problems(run)


def selection_problems(run: RunResult) -> list[str]:
    """Returns why the tested epoch is not the one that validation selects."""
    epoch, validated = run.best_epoch, dict(points(run.epochs, "val"))
    if epoch is None and all(v is None for v in (run.val, *validated.values())):
        return []  # no validation, or the run ended before it
    if epoch is None or validated.get(epoch) is None:
        return [f"its best epoch is {epoch}, but its validation curve has no value there"]
    if not _same(run.val, validated[epoch]):
        return [f"its validation value is {run.val}, but its curve has {validated[epoch]} in epoch {epoch}"]
    if (selected := selected_epoch(run)) != epoch:
        rule = "last" if run.recipe.get("select") == "last" else "first best"
        return [
            f"its best epoch is {epoch}, but the {rule} validation value is in epoch {selected}: the tested epoch was "
            "not selected on validation"
        ]
    return []


def selected_epoch(run: RunResult) -> int | None:
    """Returns the epoch that validation selects, as the training loop does: the first best one, or the last one."""
    last, best, selected = run.recipe.get("select") == "last", None, None
    for epoch, value in points(run.epochs, "val"):
        if best is None or last or (value > best if run.direction == "max" else value < best):
            best, selected = value, epoch
    return selected


def _metric_problems(run: RunResult) -> list[str]:
    from gt_bench.data.registry import catalog

    wrong, spec = [], catalog().get(run.dataset)
    if spec is not None:
        direction = "min" if spec.metric in ERRORS else "max"
        if (run.metric, run.direction) != (spec.metric, direction):
            wrong.append(
                f"its metric is {run.metric} ({run.direction}), but the metric of {run.dataset} is "
                f"{spec.metric} ({direction})"
            )
    # with this metric, "accuracy" is 1 - slowdown, which has no lower bound
    bounded = UNIT_INTERVAL - {"accuracy"} if run.metric == "ordered-pair-accuracy" else UNIT_INTERVAL
    numbers = [(f"{run.metric} on validation", run.metric.partition("@")[0], run.val)]
    numbers += [(f"{k} on the test split", k.partition("@")[0], v) for k, v in run.test_metrics.items()]
    # NaN is allowed, because a metric can be undefined on a split
    known = [(what, name, v) for what, name, v in numbers if v is not None and not math.isnan(v)]
    wrong += [f"its {what} is {v}, but it must not be negative" for what, name, v in known if name in ERRORS and v < 0]
    return wrong + [
        f"its {what} is {v}, but it must be between 0 and 1"
        for what, name, v in known
        if name in bounded and not 0 <= v <= 1 + 1e-9
    ]


def _same(one: float | None, other: float | None) -> bool:
    """Returns whether two numbers are equal. NaN equals NaN."""
    return one == other or (one is not None and other is not None and math.isnan(one) and math.isnan(other))
