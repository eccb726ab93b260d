"""Checks of records and results: keys, types, checksums, and values that contradict each other."""

import json
import math
from collections.abc import Mapping
from typing import cast

from gt_bench.schemas import Ran, Record
from gt_bench.store.run_store import FINAL, SCHEMA, Store, StoreError, fault_of, run_digest
from gt_bench.utils.digest import digest_of
from gt_bench.utils.redact import printable

STATUSES = (*FINAL, "oom", "timed-out")
# types of values of a record; compared exactly, so that `true` is not a number
TEXT, WHOLE, NUMBER, LIST, MAPPING = "text", "a whole number", "a number", "a list", "a mapping"
TYPES: dict[str, tuple[type, ...]] = {
    TEXT: (str,),
    WHOLE: (int,),
    NUMBER: (int, float),
    LIST: (list,),
    MAPPING: (dict,),
}
RESULT_FORM = {
    "cell": TEXT, "suite": TEXT, "dataset": TEXT, "model": TEXT, "status": TEXT, "runs": LIST, "seeds": LIST,
    "recipe": MAPPING, "reduced": LIST,
}  # fmt: skip
RUN_FORM = {
    "status": TEXT, "error": TEXT, "seed": WHOLE, "split": WHOLE, "recipe": MAPPING, "digests": MAPPING,
    "versions": MAPPING, "dataset": TEXT, "metric": TEXT, "direction": TEXT, "parameters": WHOLE, "epochs": MAPPING,
    "best_epoch": WHOLE, "val": NUMBER, "test": NUMBER, "test_metrics": MAPPING,
}  # fmt: skip
MEASURED_FORM = {
    "started": TEXT, "finished": TEXT, "seconds": NUMBER, "train_seconds_per_epoch": NUMBER,
    "eval_seconds_per_epoch": NUMBER, "peak_memory_mib": NUMBER, "device": TEXT, "code": TEXT, "environment": MAPPING,
}  # fmt: skip
# optional keys of a result, and the keys of its search
RESULT_OPTIONS = {
    "published": MAPPING,
    "search": MAPPING,
    "metric": TEXT,
    "direction": TEXT,
    "reason": TEXT,
    "imported": MAPPING,
}
SEARCH_FORM = {"trials": WHOLE, "states": MAPPING}
RUN_KEYS, MEASURED_KEYS = tuple(RUN_FORM), tuple(MEASURED_FORM)
NULLABLE = ("error", "best_epoch", "val", "test")
# marks of contributed records; records of the maintainers have none
SCHEMA_ONLY, RECOMPUTED = "schema only", "recomputed"
MAX_NAME = 200  # characters of the name of a contributor
# curves that every run has
CURVES = ("epoch", "train_loss", "val")
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
    if not isinstance(result, dict):
        return ["is not a mapping"]
    if wrong := _form_problems(result, RESULT_FORM):
        return wrong
    options = {key: kind for key, kind in RESULT_OPTIONS.items() if result.get(key) is not None}
    wrong = _form_problems(result, options) or _form_problems(
        result.get("search") or {}, SEARCH_FORM if result.get("search") else {}
    )
    return wrong or [
        f"an entry of {key} is not {kind}"
        for key, kind in (("runs", TEXT), ("seeds", WHOLE), ("reduced", TEXT))
        if any(type(one) not in TYPES[kind] for one in result[key])
    ]


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
    run, measured = record.get("deterministic", {}), record.get("measured", {})
    missing = [k for k in ("digest", "deterministic", "measured") if k not in record]
    for part, keys in ((run, RUN_KEYS), (measured, MEASURED_KEYS)):
        missing += [k for k in keys if not isinstance(part, dict) or k not in part]
    if record.get("schema") != SCHEMA:
        return [f"schema {record.get('schema')!r:.200}, but this code reads schema {SCHEMA}"]
    if missing:
        return [f"{', '.join(dict.fromkeys(missing))} is missing"]
    if wrong := [*_form_problems(run, RUN_FORM), *_form_problems(measured, MEASURED_FORM), *_number_problems(run)]:
        return wrong
    if wrong := mark_problems(record):
        return wrong
    record = cast(Record, record)
    wrong, digests = [fault] if (fault := fault_of(record)) else [], run["digests"]
    absent = [k for k in ("recipe", "data", "encodings") if k not in digests]
    if absent:
        return [f"the digest of {', '.join(absent)} is missing"]
    key = (run["recipe"], run["seed"], run["split"], digests, run["versions"])
    trial = is_trial(record)
    if not trial and run_digest(*key) != record["digest"]:
        wrong.append(f"its content has the digest {run_digest(*key)}, not {record['digest']}")
    if digest_of(run["recipe"]) != digests["recipe"]:
        wrong.append("the digest of its recipe does not match its recipe")
    if run["status"] not in STATUSES:
        wrong.append(f"unknown status {run['status']!r:.200}")
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


def mark_problems(record: Mapping[str, object]) -> list[str]:
    """Returns what is wrong with the marks of a contributed record: `by` and `verified`."""
    by, verified = record.get("by"), record.get("verified")
    wrong = []
    if by is not None and (not isinstance(by, str) or not 0 < len(by) <= MAX_NAME or by != printable(by)):
        wrong.append(f"its `by` is {by!r:.80}; expected a name of at most {MAX_NAME} characters on one line")
    if verified not in (None, SCHEMA_ONLY, RECOMPUTED):
        wrong.append(f"its `verified` is {verified!r:.80}; expected {SCHEMA_ONLY!r} or {RECOMPUTED!r}")
    if by is not None and verified is None:
        wrong.append(f"it has `by` but not `verified`; expected {SCHEMA_ONLY!r} or {RECOMPUTED!r}")
    return wrong


def _form_problems(content: Mapping[str, object], form: Mapping[str, str]) -> list[str]:
    """Returns the keys of `form` that are missing in `content`, or the values of a wrong type."""
    if missing := [k for k in form if k not in content]:
        return [f"{', '.join(missing)} is missing"]
    return [
        f"its {key} is {json.dumps(content[key])[:40]}, not {kind}"
        for key, kind in form.items()
        if type(content[key]) not in TYPES[kind] and not (key in NULLABLE and content[key] is None)
    ]


def _number_problems(run: Ran) -> list[str]:
    """Returns curves and test metrics that contain something else than numbers."""
    curves = run["epochs"]
    if missing := [k for k in CURVES if k not in curves]:
        return [f"the curve {', '.join(missing)} is missing"]
    wrong = [f"its curve {k} is not a list" for k, v in curves.items() if type(v) is not list]
    wrong += [
        f"its curve {k} contains a value that is not a number"
        for k, v in curves.items()
        if type(v) is list and any(x is not None and type(x) not in TYPES[NUMBER] for x in v)
    ]
    return wrong + [
        f"its {k} on the test split is not a number"
        for k, v in run["test_metrics"].items()
        if type(v) not in TYPES[NUMBER]
    ]


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
