"""The shipped file of a cell: its form, reading and writing it, and what can be wrong with it.

    suites/SUITE/records/DATASET/ROW.json.gz    {"schema", "result", "records", "trials", "origins"}; equal records give equal bytes

`trials` are the runs of a cell's search: where they were imported, the search finds its way again without training.
`origins` are digests that can be compared where the data are not at hand: of the dataset's spec and of each encoding's algorithm.
"""

import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from gt_bench.config.grid import Grid
from gt_bench.config.recipe import digest_of
from gt_bench.schemas import Origins, Ran, Record, Result
from gt_bench.store.run_store import FINAL, SCHEMA, StoreError, fault_of, run_digest
from gt_bench.utils.io import read_bytes, read_text, write_bytes
from gt_bench.utils.paths import INSTALLED, SUITES, is_project, packaged_suites, place, record_file

ROOT = SUITES
STATUSES = (*FINAL, "oom", "timed-out")
# what the values of a record are; types are held exactly, so that true is no number
TEXT, WHOLE, NUMBER, LIST, MAPPING = "text", "a whole number", "a number", "a list", "a mapping"
TYPES: dict[str, tuple[type, ...]] = {
    TEXT: (str,),
    WHOLE: (int,),
    NUMBER: (int, float),
    LIST: (list,),
    MAPPING: (dict,),
}
RESULT_FORM = {
    "cell": TEXT, "suite": TEXT, "dataset": TEXT, "model": TEXT, "status": TEXT, "runs": LIST, "seeds": LIST, "recipe": MAPPING, "reduced": LIST,
}  # fmt: skip
RUN_FORM = {
    "status": TEXT, "error": TEXT, "seed": WHOLE, "split": WHOLE, "recipe": MAPPING, "digests": MAPPING, "versions": MAPPING, "dataset": TEXT, "metric": TEXT,
    "direction": TEXT, "parameters": WHOLE, "epochs": MAPPING, "best_epoch": WHOLE, "val": NUMBER, "test": NUMBER, "test_metrics": MAPPING,
}  # fmt: skip
MEASURED_FORM = {
    "started": TEXT, "finished": TEXT, "seconds": NUMBER, "train_seconds_per_epoch": NUMBER, "eval_seconds_per_epoch": NUMBER,
    "peak_memory_mib": NUMBER, "device": TEXT, "code": TEXT, "environment": MAPPING,
}  # fmt: skip
# what a result may have besides, and the keys of its search
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
MOST_BYTES = 1 << 29  # of a file, unpacked
# curves that every run has
CURVES = ("epoch", "train_loss", "val")
# metrics between 0 and 1; "f1@jets-b" is one as "f1" is
SHARES = {
    "accuracy", "balanced-accuracy", "roc-auc", "auc", "ap", "aupr", "f1", "f1-macro", "f1-micro", "precision", "recall", "partition-f1",
    "rand-index", "ordered-pair-accuracy",
}  # fmt: skip


@dataclass(frozen=True)
class Shipped:
    """One file: a cell's result, its records in the order of `result["runs"]`, those of its search, and where data and encodings came from."""

    path: Path
    result: Result
    records: list[Record]
    origins: Origins = field(default_factory=Origins)
    trials: list[Record] = field(default_factory=list)

    @property
    def cell(self) -> str:
        """Its name, suite/dataset/row."""
        return self.result["cell"]


def is_trial(record: Record) -> bool:
    """Whether a record is a search's run, which never read the test split."""
    run = record["deterministic"]
    return record["digest"] == run_digest(
        run["recipe"], run["seed"], run["split"], run["digests"], run["versions"], test=False
    )


def read(path: Path) -> Shipped:
    """Raises StoreError for a file that cannot be read."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(read_bytes(path))) as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES:,} bytes unpacked")
        content = json.loads(text)
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']}, this code reads {SCHEMA}")
        result, origins = cast(Result, dict(content["result"])), cast(Origins, dict(content["origins"]))
        return Shipped(path, result, list(content["records"]), origins, list(content["trials"]))
    except (OSError, EOFError, zlib.error, RecursionError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path}: not an export of records ({error}); get the file again (`git checkout {path}`)"
        ) from None


def write(shipped: Shipped) -> Path:
    """Raises WriteError, which names the file."""
    content = {k: getattr(shipped, k) for k in ("result", "origins", "records", "trials")} | {"schema": SCHEMA}
    # GzipFile without name and time: the same bytes from every Python, whatever the clock says
    file = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=9, mtime=0) as packed:
        packed.write((json.dumps(content, separators=(",", ":"), sort_keys=True, allow_nan=True) + "\n").encode())
    return write_bytes(shipped.path, file.getvalue())


def file_of(cell: str, root: Path = ROOT) -> Path:
    """The shipped file of a cell, there or not: where the folder is no project and has none of its own, the one that was installed. What is written goes to `root` itself."""
    return place(record_file(cell, root))


def check_folder(root: Path) -> None:
    """Raises StoreError where there is no such folder of shipped records."""
    if not place(root).is_dir():
        raise StoreError(
            f"{root}: no such folder of shipped records; name the one that holds SUITE/records/DATASET/ROW.json.gz (--records)"
        )


def shipped_paths(grid: Grid, names: Sequence[str] = (), root: Path = ROOT) -> list[Path]:
    """The files of these suites and cells; all files, in order of the path, for no name. Raises StoreError where there is no such folder."""
    check_folder(root)
    if not names:
        folders = [root] if is_project() else [root, INSTALLED / root]
        found = {path.relative_to(folder) for folder in folders for path in folder.glob("*/records/*/*.json.gz")}
        if root == ROOT:
            found |= {
                Path(suite, path.relative_to(folder))
                for suite, folder in packaged_suites().items()
                for path in folder.glob("records/*/*.json.gz")
            }
        return [place(root / path) for path in sorted(found)]
    return [path for cell in grid.chosen(names) if (path := file_of(cell.cell, root)).exists()]


def shipped_cells(grid: Grid, names: Sequence[str] = (), root: Path = ROOT) -> Iterator[Shipped]:
    """What `shipped_paths` names. Raises StoreError at the first file that cannot be read."""
    yield from (read(path) for path in shipped_paths(grid, names, root))


def read_result(path: Path, cell: str) -> Result | None:
    """What training left of `cell`; None where it has not run. Raises StoreError for a file that is no result of it."""
    try:
        result = json.loads(read_text(path))
        wrong = result_problems(result)
        if wrong or result["cell"] != cell:
            raise ValueError("; ".join(wrong) or f"of {result['cell']}")
        return result
    except FileNotFoundError:
        return None
    except (OSError, RecursionError, ValueError) as error:
        raise StoreError(f"{path}: not a result ({error}); delete it and run: python -m stages.train {cell}") from None


def result_problems(result: object) -> list[str]:
    """What is wrong with the form of a cell's result."""
    if not isinstance(result, dict):
        return ["is no mapping"]
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


def record_problems(record: object) -> list[str]:
    """What is wrong with one record by itself: shape, completeness, and whether digest, checksum and mark are those its contents give."""
    if not isinstance(record, dict):
        return ["is no record"]
    run, measured = record.get("deterministic", {}), record.get("measured", {})
    lacking = [k for k in ("digest", "deterministic", "measured") if k not in record]
    for part, keys in ((run, RUN_KEYS), (measured, MEASURED_KEYS)):
        lacking += [k for k in keys if not isinstance(part, dict) or k not in part]
    if record.get("schema") != SCHEMA:
        return [f"schema {record.get('schema')!r:.200}, this code reads {SCHEMA}"]
    if lacking:
        return [f"lacks {', '.join(dict.fromkeys(lacking))}"]
    if misshapen := [*_form_problems(run, RUN_FORM), *_form_problems(measured, MEASURED_FORM), *_number_problems(run)]:
        return misshapen
    record = cast(Record, record)
    wrong, digests = [fault] if (fault := fault_of(record)) else [], run["digests"]
    absent = [k for k in ("recipe", "data", "encodings") if k not in digests]
    if absent:
        return [f"lacks the digest of {', '.join(absent)}"]
    key = (run["recipe"], run["seed"], run["split"], digests, run["versions"])
    trial = is_trial(record)
    if not trial and run_digest(*key) != record["digest"]:
        wrong.append(f"its contents give the digest {run_digest(*key)}, not {record['digest']}")
    if digest_of(run["recipe"]) != digests["recipe"]:
        wrong.append("its recipe does not have the digest that it names")
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
            f"its test value is {run['test']}, its {run['metric']} on the test split {run['test_metrics'].get(run['metric'])}"
        )
    if not tested and (run["test"] is not None or run["test_metrics"]):
        wrong.append("a search trial with a test value" if trial else f"status {run['status']} with a test value")
    return wrong + _validation_problems(run) + _metric_problems(run)


def _form_problems(content: Mapping[str, object], form: Mapping[str, str]) -> list[str]:
    """What `content` lacks of `form`, and which of its values are of another type."""
    if lacking := [k for k in form if k not in content]:
        return [f"lacks {', '.join(lacking)}"]
    return [
        f"its {key} is {json.dumps(content[key])[:40]}, not {kind}"
        for key, kind in form.items()
        if type(content[key]) not in TYPES[kind] and not (key in NULLABLE and content[key] is None)
    ]


def _number_problems(run: Ran) -> list[str]:
    """Of the curves and the test metrics: what is no number."""
    curves = run["epochs"]
    if lacking := [k for k in CURVES if k not in curves]:
        return [f"lacks the curve of {', '.join(lacking)}"]
    wrong = [f"its curve of {k} is no list" for k, v in curves.items() if type(v) is not list]
    wrong += [
        f"its curve of {k} holds what is no number"
        for k, v in curves.items()
        if type(v) is list and any(x is not None and type(x) not in TYPES[NUMBER] for x in v)
    ]
    return wrong + [
        f"its {k} on the test split is no number"
        for k, v in run["test_metrics"].items()
        if type(v) not in TYPES[NUMBER]
    ]


def _validation_problems(run: Ran) -> list[str]:
    epoch, validated = run["best_epoch"], dict(zip(run["epochs"]["epoch"], run["epochs"]["val"], strict=False))
    if epoch is None and all(v is None for v in (run["val"], *validated.values())):
        return []  # nothing validates, or the run did not come so far
    if epoch is None or validated.get(epoch) is None:
        return [f"its best epoch is {epoch}, which its validation curve does not have"]
    if not _same(run["val"], validated[epoch]):
        return [f"its validation value is {run['val']}, its curve has {validated[epoch]} in epoch {epoch}"]
    return []


def _metric_problems(run: Ran) -> list[str]:
    from gt_bench.data.registry import catalog
    from gt_bench.tasks.registry import create_task

    wrong, spec = [], catalog().get(run["dataset"])
    if spec is not None:
        direction = create_task(spec.task, spec.metric, also=spec.also).direction
        if (run["metric"], run["direction"]) != (spec.metric, direction):
            wrong.append(
                f"it measures {run['metric']} ({run['direction']}), and {run['dataset']} is measured by {spec.metric} ({direction})"
            )
    # "accuracy" beside it is 1 - slowdown, which has no lower bound
    shares = SHARES - {"accuracy"} if run["metric"] == "ordered-pair-accuracy" else SHARES
    numbers = [(f"{run['metric']} on validation", run["metric"], run["val"])]
    numbers += [(f"{k} on the test split", k.partition("@")[0], v) for k, v in run["test_metrics"].items()]
    # NaN is allowed: a metric can be undefined on a split; the last digits are rounding
    return wrong + [
        f"its {what} is {v}, and a share lies between 0 and 1"
        for what, name, v in numbers
        if name in shares and v is not None and not math.isnan(v) and not 0 <= v <= 1 + 1e-9
    ]


def _same(one: float | None, other: float | None) -> bool:
    """Whether two numbers are equal; NaN equals NaN."""
    return one == other or (one is not None and other is not None and math.isnan(one) and math.isnan(other))


def problems_of(shipped: Shipped, root: Path = ROOT) -> list[str]:
    """What is wrong with one file: its records, their order and number, its name; one line each."""
    result, where = shipped.result, shipped.path
    if wrong := result_problems(result):
        return [f"{where}: its result: {line}" for line in wrong]
    if not shipped.records:
        return [f"{where}: holds no record"]
    parts = (("record", shipped.records), ("trial", shipped.trials))
    wrong = [
        f"{where}: {what} {n}: {line}"
        for what, held in parts
        for n, record in enumerate(held)
        for line in record_problems(record)
    ]
    if wrong:
        return wrong
    wrong = [f"{where}: record {n}: is a search trial" for n, record in enumerate(shipped.records) if is_trial(record)]
    wrong += [
        f"{where}: trial {n}: is no search trial" for n, record in enumerate(shipped.trials) if not is_trial(record)
    ]
    digests = [r["digest"] for r in shipped.records]
    seeds = [r["deterministic"]["seed"] for r in shipped.records]
    if where not in (record_file(result["cell"], root), file_of(result["cell"], root)):
        wrong.append(f"{where}: is the file of {result['cell']}")
    if digests != list(result["runs"]):
        wrong.append(f"{where}: its records are not the runs that its result names")
    repeated = sorted({s for s in seeds if seeds.count(s) > 1})
    if repeated or len(set(digests)) < len(digests):
        wrong.append(f"{where}: seed {', '.join(map(str, repeated))} stands twice")
    if any(r["deterministic"]["dataset"] != result["dataset"] for r in (*shipped.records, *shipped.trials)):
        wrong.append(f"{where}: a record is of another dataset")
    measure = (result.get("metric"), result.get("direction"))
    if any(
        (r["deterministic"]["metric"], r["deterministic"]["direction"]) != measure
        for r in (*shipped.records, *shipped.trials)
    ):
        wrong.append(f"{where}: a record measures another metric than its result names")
    return wrong
