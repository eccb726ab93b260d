"""Your own data as a dataset: a folder of CSV files, an npz file, or any torch_geometric dataset. See docs/add_a_dataset.md.

DATASETS = [custom_dataset("mine", "path/to/folder", task="graph-regression", metric="mae")]
"""

import difflib
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.custom.facts import Facts
from gt_bench.data.custom.readers import Reader, Source
from gt_bench.data.custom.remarks import PARTS
from gt_bench.data.packed import PackedWriter
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError

_CLASSES = ("accuracy", "balanced-accuracy", "f1-macro", "f1-micro", "roc-auc")
METRICS = {  # task -> the metrics that fit it
    "graph-classification": _CLASSES,
    "graph-multilabel": ("ap", "roc-auc"),
    "graph-regression": ("mae", "mse"),
    "node-classification": _CLASSES,
    "node-regression": ("mae", "mse"),
}
VERSION = 2


def custom_dataset(
    name: str,
    source: Source,
    *,
    task: str,
    metric: str,
    split: tuple[float, float, float] = (0.8, 0.1, 0.1),
    num_splits: int = 1,
    seed: int = 0,
    undirected: bool = False,
    citation: str = "your own",
    licence: str = "your own",
    notes: tuple[str, ...] = (),
) -> DatasetSpec:
    """An entry for a family file's `DATASETS`.

    Args:
        source: a folder with nodes.csv, edges.csv and, at graph level, graphs.csv; an npz file with the arrays of `pack`; or a function
            without arguments that returns a Data, a list of Data or a torch_geometric dataset (it is called when the dataset is prepared).
        task: node-classification, node-regression, graph-classification, graph-regression or graph-multilabel.
        metric: one that fits the task, see `METRICS`.
        split: shares of train, val and test where the data name no split of their own; `num_splits` of them, seeds `seed`, `seed` + 1, ...
        undirected: add the reverse of each edge where it is missing.

    Raises DatasetError for a task, metric, split or source that cannot be.
    """
    if task not in METRICS:
        raise DatasetError(
            f"dataset {name!r}: no task {task!r}{_near(task, METRICS)}; known for your own data: {', '.join(METRICS)}"
        )
    if metric not in METRICS[task]:
        known = METRICS[task]
        raise DatasetError(
            f"dataset {name!r}: {task} has no metric {metric!r}{_near(metric, known)}; it takes {', '.join(known)}"
        )
    if not isinstance(num_splits, int) or num_splits < 1:
        raise DatasetError(f"dataset {name!r}: num_splits must be 1 or more; got {num_splits!r}")
    if len(tuple(split)) != 3:
        raise DatasetError(f"dataset {name!r}: split must be the shares of train, val and test; got {split!r}")
    if callable(source) and not inspect.isfunction(source):
        raise DatasetError(
            f"dataset {name!r}: the source must be a function written with def, whose text can be read; got a {type(source).__name__}: "
            "write def load(): return ... and give load"
        )
    level = "node" if task.startswith("node-") else "graph"
    train, val, test = split
    reader = Reader(source, level, (train, val, test), num_splits, seed, undirected)
    return DatasetSpec(
        name=name,
        family="custom",
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
    """Packs the blocks that `spec.arguments["reader"]` reads, with the data's own split or drawn ones. Raises DatasetError for data that do
    not fit the task."""
    reader: Reader = spec.arguments["reader"]
    with PackedWriter(folder) as writer:
        facts = Facts(spec, reader)
        for block in reader.blocks():
            writer.graphs(**{key: value for key, value in facts.see(block).items() if key != "split"})
        facts.check()
        split = facts.split()
        writer.append("split", split.astype(np.uint8))
        remarks = tuple(dict.fromkeys([*reader.remarks, *facts.remarks(split)]))
        header = spec.header(
            in_dim=facts.dim("x"),
            edge_dim=facts.dim("edge_attr"),
            out_dim=facts.out_dim,
            num_splits=len(split),
            notes=remarks,
        )
        provenance = header.provenance | {"arguments": {"content": spec.arguments["content"]}}
        writer.finish(header.model_copy(update={"provenance": provenance}))


def check(spec: DatasetSpec) -> None:
    """Raises DatasetError where the data are not what their task and metric need."""
    reader: Reader = spec.arguments["reader"]
    facts = Facts(spec, reader)
    for block in reader.blocks():
        facts.see(block)
    facts.check()
    split = facts.split()
    for number, row in enumerate(split):
        for code, part in enumerate(PARTS, 1):
            if not (row == code).any():
                raise DatasetError(
                    f"dataset {spec.name!r}: the {part} part of split {number} is empty; put some {spec.level}s into it, or take the split out: then "
                    "splits are drawn"
                )


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, 2)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
