"""User-supplied datasets: a folder of CSV files, an npz file, or a torch_geometric dataset (docs/add_a_dataset.md).

DATASETS = [custom_dataset("mine", "path/to/folder", task="graph-regression", metric="mae")]
"""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gt_bench.config.schema import nearest
from gt_bench.data.custom.readers import Reader, Source
from gt_bench.data.custom.remarks import PARTS
from gt_bench.data.custom.splits import SplitSection, section_of
from gt_bench.data.custom.summary import Summary
from gt_bench.data.packed import SEEN, PackedWriter
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError

_CLASSES = ("accuracy", "balanced-accuracy", "f1-macro", "f1-micro", "roc-auc")
METRICS = {  # task -> its metrics
    "graph-classification": _CLASSES,
    "graph-multilabel": ("ap", "roc-auc"),
    "graph-regression": ("mae", "mse"),
    "node-classification": _CLASSES,
    "node-regression": ("mae", "mse"),
}
# defaults for data without a split: shares of train, val and test
SHARES = {"node": (0.6, 0.2, 0.2), "graph": (0.8, 0.1, 0.1)}
VERSION = 2


def custom_dataset(
    name: str,
    source: Source,
    *,
    task: str,
    metric: str,
    split: tuple[float, float, float] | Mapping[str, Any] | str | SplitSection = (0.8, 0.1, 0.1),
    num_splits: int = 1,
    seed: int = 0,
    undirected: bool = False,
    inductive: bool = False,
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
        task: node-classification, node-regression, graph-classification, graph-regression or graph-multilabel.
        metric: a metric of the task, see `METRICS`.
        split: shares of train, val and test, if the data have no split; or how to split them in any case, as
            `gt_bench.data.custom.splits.SplitSection`: {"kind": "temporal", "column": "year"}.
        num_splits: number of splits to draw.
        seed: seed of the first split; the next ones use seed + 1, ...
        undirected: add the reverse of each edge where it is missing.
        inductive: training sees neither the nodes of val and test nor their edges, validation not those of test.
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
    if metric not in METRICS[task]:
        known = METRICS[task]
        raise DatasetError(
            f"{where}: {task} has no metric {metric!r}{nearest(metric, list(known))}; expected one of "
            f"{', '.join(known)}"
        )
    if not isinstance(num_splits, int) or num_splits < 1:
        raise DatasetError(f"{where}: num_splits is {num_splits!r}; expected 1 or more")
    section = section_of(split, f"{where}: split") if isinstance(split, str | Mapping | SplitSection) else None
    shares = split if section is None else section.shares or SHARES["node" if task.startswith("node-") else "graph"]
    if not isinstance(shares, tuple | list) or len(shares) != 3:
        raise DatasetError(f"{where}: split is {split!r}; expected the shares of train, val and test")
    if inductive and not task.startswith("node-"):
        raise DatasetError(
            f"{where}: inductive is for targets of nodes; {task} splits whole graphs, and training never sees those of "
            "val and test: remove it"
        )
    if callable(source) and not inspect.isfunction(source):
        raise DatasetError(
            f"{where}: the source is a {type(source).__name__}; expected a function written with def, whose source "
            "code can be read: write def load(): return ... and pass load"
        )
    level = "node" if task.startswith("node-") else "graph"
    train, val, test = shares
    reader = Reader(source, level, (train, val, test), num_splits, seed, undirected, section, inductive)
    return DatasetSpec(
        name=name,
        task=task,
        metric=metric,
        level=level,
        split_kind="node" if level == "node" else "graph",
        prepare=prepare,
        arguments={"reader": reader, "content": reader.content()},
        citation=citation,
        licence=licence,
        notes=notes,
    )


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
        summary = Summary(spec, reader)
        for block in reader.blocks():
            writer.graphs(**{key: value for key, value in summary.add(block).items() if key not in ("split", "by")})
        summary.check()
        split = summary.split()
        writer.append("split", split.astype(np.uint8))
        stated = {"split_made": summary.drawn.stated} if reader.section or reader.inductive else {}
        if reader.inductive:
            writer.append(SEEN, summary.drawn.seen)
        header = spec.header(
            in_dim=summary.dim("x"),
            edge_dim=summary.dim("edge_attr"),
            out_dim=summary.out_dim,
            num_splits=len(split),
            **({"extras": {SEEN: "table"}} if reader.inductive else {}),
            notes=tuple(dict.fromkeys([*reader.remarks, *summary.remarks(split)])),
        )
        arguments = {"content": spec.arguments["content"]} | ({"labels": reader.labels} if reader.labels else {})
        arguments |= stated
        provenance = header.provenance | {"arguments": arguments}
        writer.finish(header.model_copy(update={"provenance": provenance}))


def check(spec: DatasetSpec) -> None:
    """Check the data of a user-supplied dataset without packing them.

    Args:
        spec: a spec from `custom_dataset`.

    Raises:
        DatasetError: the data do not match the task or metric, or a part of a split is empty.
    """
    reader: Reader = spec.arguments["reader"]
    summary = Summary(spec, reader)
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
