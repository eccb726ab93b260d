"""User-supplied datasets: a folder of CSV files, an npz file, or a torch_geometric dataset (docs/add_a_dataset.md).

DATASETS = [custom_dataset("mine", "path/to/folder", task="graph-regression", metric="mae")]
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gt_bench.config.schema import nearest
from gt_bench.data.custom.edges import LINK, NEGATIVES, EdgeSummary, summary_of
from gt_bench.data.custom.metric import is_custom, load_metric
from gt_bench.data.custom.readers import Reader, Source
from gt_bench.data.custom.remarks import PARTS
from gt_bench.data.custom.splits import SplitSection, section_of
from gt_bench.data.custom.summary import TWO_CLASSES
from gt_bench.data.packed import SEEN
from gt_bench.data.packed_writer import PackedWriter
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError

_CLASSES = ("accuracy", "balanced-accuracy", "f1-macro", "f1-micro", *TWO_CLASSES)
_NUMBERS = ("mae", "mse", "rmse", "r2")
METRICS = {  # task -> its metrics, the usual one first; in addition `file.py:function`
    "edge-classification": _CLASSES,
    "edge-regression": _NUMBERS,
    "graph-classification": _CLASSES,
    "graph-multilabel": ("ap", "roc-auc", "f1-macro", "f1-micro"),
    "graph-regression": _NUMBERS,
    LINK: ("mrr", *(f"hits@{k}" for k in (1, 3, 5, 10, 20, 50, 100)), "roc-auc", "ap"),
    "node-classification": _CLASSES,
    "node-regression": _NUMBERS,
}
# defaults for data without a split: shares of train, val and test
SHARES = {"node": (0.6, 0.2, 0.2), "edge": (0.6, 0.2, 0.2), "link": (0.8, 0.1, 0.1), "graph": (0.8, 0.1, 0.1)}
VERSION = 3


def custom_dataset(
    name: str,
    source: Source,
    *,
    task: str,
    metric: str,
    split: tuple[float, float, float] | Mapping[str, Any] | str | SplitSection | None = (0.8, 0.1, 0.1),
    num_splits: int = 1,
    seed: int = 0,
    undirected: bool = False,
    inductive: bool = False,
    negatives: int | None = None,
    citation: str = "your own",
    licence: str = "your own",
    notes: tuple[str, ...] = (),
) -> DatasetSpec:
    """Make the spec of a user-supplied dataset, for example for `DATASETS` of a family module.

    Args:
        name: unique name.
        source: a folder with nodes.csv, edges.csv and, at graph level, graphs.csv; an npz file with the arrays of
            `pack`; or a function without arguments that returns a Data, a list of Data or a torch_geometric dataset.
            The function is called when the dataset is prepared.
        task: node-, edge- or graph-classification or -regression, graph-multilabel, or link-prediction.
        metric: a metric of the task, see `METRICS`, or `path/to/file.py:function` (`gt_bench.data.custom.metric`).
        split: shares of train, val and test, if the data have no split; or how to split them in any case, as
            `gt_bench.data.custom.splits.SplitSection`: {"kind": "temporal", "column": "year"}. None for the usual
            shares of the task.
        num_splits: number of splits to draw.
        seed: seed of the first split; the next ones use seed + 1, ...
        undirected: add the reverse of each edge where it is missing.
        inductive: training sees neither the nodes of val and test nor their edges, validation not those of test.
        negatives: for link prediction: negatives per edge on validation and test. None for `NEGATIVES`.
        citation: the paper.
        licence: licence of the data.
        notes: flaws and choices that a user must know.

    Returns:
        The spec.

    Raises:
        DatasetError: an argument is invalid.
    """
    where = f"dataset {name!r}"
    if task not in METRICS:
        raise DatasetError(
            f"{where}: no task {task!r}{nearest(task, list(METRICS))}; expected one of {', '.join(METRICS)}"
        )
    if metric not in METRICS[task] and not is_custom(metric):
        known = METRICS[task]
        raise DatasetError(
            f"{where}: {task} has no metric {metric!r}{nearest(metric, list(known))}; expected one of "
            f"{', '.join(known)}, or path/to/file.py:function"
        )
    negatives = _checked_negatives(where, task, metric, negatives)
    if not isinstance(num_splits, int) or num_splits < 1:
        raise DatasetError(f"{where}: num_splits is {num_splits!r}; expected 1 or more")
    section = section_of(split, f"{where}: split") if isinstance(split, str | Mapping | SplitSection) else None
    usual = SHARES["link" if task == LINK else level_of_task(task)]
    shares = (split or usual) if section is None else section.shares or usual
    if not isinstance(shares, tuple | list) or len(shares) != 3:
        raise DatasetError(f"{where}: split is {split!r}; expected the shares of train, val and test")
    if inductive and not task.startswith("node-"):
        raise DatasetError(
            f"{where}: inductive is for targets of nodes; {task} splits "
            + ("edges, and training sees all nodes" if level_of_task(task) == "edge" else "whole graphs")
            + ": remove it"
        )
    if callable(source) and not inspect.isfunction(source):
        raise DatasetError(
            f"{where}: the source is a {type(source).__name__}; expected a function written with def, whose source "
            "code can be read: write def load(): return ... and pass load"
        )
    level = level_of_task(task)
    if level == "edge" and section and section.kind not in ("random", "given"):
        raise DatasetError(
            f"{where}: split is {section.kind}; targets of edges have random splits or those of the data: give the "
            "column split of edges.csv (or masks), or use random"
        )
    train, val, test = shares
    read = "link" if task == LINK else level
    reader = Reader(source, read, (train, val, test), num_splits, seed, undirected, section, inductive)
    return DatasetSpec(
        name=name,
        task=task,
        metric=metric,
        level=level,
        split_kind=level,
        prepare=prepare,
        arguments={"reader": reader, "content": reader.content()} | ({"negatives": negatives} if negatives else {}),
        citation=citation,
        licence=licence,
        notes=notes,
    )


def level_of_task(task: str) -> str:
    """Returns what the targets of a task belong to: "node", "edge" or "graph"."""
    return "edge" if task == LINK else task.partition("-")[0]


def _checked_negatives(where: str, task: str, metric: str, negatives: int | None) -> int | None:
    """Return the number of negatives of link prediction, None for other tasks."""
    if task != LINK:
        if negatives is not None:
            raise DatasetError(f"{where}: negatives is for link-prediction, not for {task}; remove it")
        return None
    negatives = NEGATIVES if negatives is None else negatives
    if isinstance(negatives, bool) or not isinstance(negatives, int) or negatives < 1:
        raise DatasetError(f"{where}: negatives is {negatives!r}; expected 1 or more")
    if metric.startswith("hits@") and int(metric.removeprefix("hits@")) > negatives:
        raise DatasetError(
            f"{where}: {metric} is always 1 with {negatives} negatives per edge; use a smaller k or more negatives"
        )
    return negatives


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack the blocks of `spec.arguments["reader"]`, with the split of the data or drawn ones.

    Args:
        spec: a spec from `custom_dataset`.
        paths: no files.
        folder: folder of the packed dataset.

    Raises:
        DatasetError: the data do not match the task.
    """
    reader: Reader = spec.arguments["reader"]
    with PackedWriter(folder) as writer:
        summary = summary_of(spec, reader)
        for block in reader.blocks():
            writer.graphs(**{key: value for key, value in summary.add(block).items() if key not in ("split", "by")})
        summary.check()
        split = summary.split()
        writer.append("split", split.astype(np.uint8))
        tables = summary.tables() if isinstance(summary, EdgeSummary) else {}
        tables |= {SEEN: summary.drawn.seen} if reader.inductive else {}
        for name, table in tables.items():
            writer.append(name, table)
        header = spec.header(
            in_dim=summary.dim("x"),
            edge_dim=summary.dim("edge_attr"),
            out_dim=summary.out_dim,
            num_splits=len(split),
            extras={name: "edge" if name == "link" else "table" for name in tables},
            notes=tuple(dict.fromkeys([*reader.remarks, *summary.remarks(split)])),
        )
        arguments = {"content": spec.arguments["content"]} | ({"labels": reader.labels} if reader.labels else {})
        if "negatives" in spec.arguments:
            arguments |= {"negatives": spec.arguments["negatives"]}
        if reader.section or reader.inductive:
            arguments |= {"split_made": summary.drawn.stated}
        writer.finish(header.model_copy(update={"provenance": header.provenance | {"arguments": arguments}}))


def check(spec: DatasetSpec) -> None:
    """Check the data of a user-supplied dataset without packing them.

    Args:
        spec: a spec from `custom_dataset`.

    Raises:
        DatasetError: the data do not match the task or metric, or a part of a split is empty.
        MetricError: a user-supplied metric cannot be used.
    """
    if is_custom(spec.metric):
        load_metric(spec.metric)
    reader: Reader = spec.arguments["reader"]
    summary = summary_of(spec, reader)
    for block in reader.blocks():
        summary.add(block)
    summary.check()
    for number, row in enumerate(summary.split()):
        for code, part in enumerate(PARTS, 1):
            if not (row == code).any():
                raise DatasetError(
                    f"dataset {spec.name!r}: the {part} part of split {number} is empty; add {spec.level}s to it, or "
                    "remove the split: then splits are drawn"
                )
