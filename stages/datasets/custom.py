"""Your own data as a dataset: a folder of CSV files, an npz file, or any torch_geometric dataset. See docs/add_a_dataset.md.

DATASETS = [custom_dataset("mine", "path/to/folder", task="graph-regression", metric="mae")]
"""

import difflib
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from stages.datasets.custom_files import Reader, Source
from stages.datasets.packed import PackedWriter
from stages.datasets.spec import DatasetSpec
from stages.errors import DatasetError

_CLASSES = ("accuracy", "balanced-accuracy", "f1-macro", "f1-micro", "roc-auc")
METRICS = {  # task -> the metrics that fit it
    "graph-classification": _CLASSES,
    "graph-multilabel": ("ap", "roc-auc"),
    "graph-regression": ("mae", "mse"),
    "node-classification": _CLASSES,
    "node-regression": ("mae", "mse"),
}
MOST_CLASSES = 100_000


def custom_dataset(
    name: str,
    source: Source,
    *,
    task: str,
    metric: str,
    split: tuple[float, float, float] = (0.8, 0.1, 0.1),
    num_splits: int = 1,
    seed: int = 0,
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

    Raises DatasetError for a task, metric, split or source that cannot be.
    """
    if task not in METRICS:
        raise DatasetError(f"dataset {name!r}: no task {task!r}{_near(task, METRICS)}; known for your own data: {', '.join(METRICS)}")
    if metric not in METRICS[task]:
        known = METRICS[task]
        raise DatasetError(f"dataset {name!r}: {task} has no metric {metric!r}{_near(metric, known)}; it takes {', '.join(known)}")
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
    reader = Reader(source, level, (train, val, test), num_splits, seed)
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
        facts = _Facts(spec, reader)
        for block in reader.blocks():
            facts.see(block)
            writer.graphs(**{key: value for key, value in block.items() if key != "split"})
        facts.check_targets()
        split = facts.split()
        writer.append("split", split.astype(np.uint8))
        remarks = tuple(dict.fromkeys(reader.remarks))
        header = spec.header(
            in_dim=facts.dim("x"), edge_dim=facts.dim("edge_attr"), out_dim=facts.out_dim, num_splits=len(split), notes=remarks
        )
        provenance = header.provenance | {"arguments": {"content": spec.arguments["content"]}}
        writer.finish(header.model_copy(update={"provenance": provenance}))


def check_first(spec: DatasetSpec) -> None:
    """Raises DatasetError where the first block of the data is not what its task and metric ask for."""
    reader: Reader = spec.arguments["reader"]
    _Facts(spec, reader).see(next(iter(reader.blocks())))


class _Facts:
    """Widths, vocabularies, classes and splits, gathered while blocks go by."""

    def __init__(self, spec: DatasetSpec, reader: Reader):
        self.spec, self.reader = spec, reader
        self.widths: dict[str, int | np.ndarray] = {}
        self.splits: list[np.ndarray] = []
        self.out_dim = 0
        self.known: set[int] = set()  # classes that occur
        self.labelled: list[np.ndarray] = []  # of each block, which rows have a target, bool [rows]

    def see(self, block: Mapping[str, np.ndarray]) -> None:
        for key in ("x", "edge_attr"):
            if key in block:
                values = block[key]
                if values.dtype.kind == "f":
                    self.widths[key] = values.shape[1]
                else:
                    most = values.max(axis=0, initial=0).astype(np.int64) + 1
                    self.widths[key] = np.maximum(self.widths.get(key, 0), most)
        y = block["y"]
        classes = self.spec.task.endswith("-classification")
        if classes and y.dtype.kind == "f":
            raise DatasetError(f"dataset {self.spec.name!r}: {self.spec.task} needs whole numbers 0, 1, ... as targets")
        self._see_targets(y)
        self.out_dim = max(self.out_dim, int(y.max(initial=0)) + 1 if classes else y.shape[1] if y.ndim > 1 else 1)
        if classes and self.spec.metric == "roc-auc" and self.out_dim > 2:
            raise DatasetError(f"dataset {self.spec.name!r}: the metric roc-auc needs two classes; the targets have {self.out_dim}")
        if "split" in block:
            self.splits.append(np.atleast_2d(block["split"]))

    def _see_targets(self, y: np.ndarray) -> None:
        name, task, columns = self.spec.name, self.spec.task, tuple(range(1, y.ndim))
        if task.endswith("-classification"):
            if y.size and y.max() >= MOST_CLASSES:
                raise DatasetError(
                    f"dataset {name!r}: a label is {y.max()}; classes are numbered 0, 1, ... and fewer than {MOST_CLASSES:,}"
                )
            if y.size and y.min() < -1:
                raise DatasetError(f"dataset {name!r}: a label is {y.min()}; classes are numbered from 0, and -1 is none")
            self.known.update(np.unique(y[y >= 0]).tolist())
            self.labelled.append(np.asarray((y >= 0).all(axis=columns)))
            return
        self.labelled.append(~np.isnan(y).all(axis=columns))
        if task == "graph-multilabel":
            values = np.unique(y if y.dtype.kind != "f" else y[~np.isnan(y)])
            wrong = values[(values != 0) & (values != 1)]
            if wrong.size:
                raise DatasetError(f"dataset {name!r}: a target is {wrong[0]:g}; labels of {task} are 0 and 1 (empty or NaN: not known)")

    def check_targets(self) -> None:
        """Raises DatasetError for targets that teach nothing."""
        if self.spec.task.endswith("-classification"):
            if len(self.known) < 2:
                only = f"all labels are {next(iter(self.known))}" if self.known else "there is no label"
                raise DatasetError(f"dataset {self.spec.name!r}: {only}; {self.spec.task} needs two classes or more")
        elif not any(rows.any() for rows in self.labelled):
            raise DatasetError(f"dataset {self.spec.name!r}: every target is empty or NaN")

    def dim(self, key: str) -> int | list[int] | None:
        width = self.widths.get(key)
        return width.tolist() if isinstance(width, np.ndarray) else width

    def split(self) -> np.ndarray:
        """Codes [S, rows]: the data's own, or random ones, which leave out what has no target."""
        labelled = np.concatenate(self.labelled)
        if self.splits:
            split = np.concatenate(self.splits, axis=1)
            if (wrong := np.argwhere((split > 0) & ~labelled)).size:
                number, row = wrong[0]
                part, what = ("train", "val", "test")[split[number, row] - 1], self.spec.level
                raise DatasetError(
                    f"dataset {self.spec.name!r}: {what} {row} has no target, but is in the {part} part of split {number}: take it out of all parts "
                    "(in CSV: the split none)"
                )
            return split
        train, val, test = self.reader.shares
        if min(train, val, test) < 0 or abs(train + val + test - 1) > 1e-6:
            raise DatasetError(f"dataset {self.spec.name!r}: the shares of a split must add up to 1; got {self.reader.shares}")
        count = int(labelled.sum())
        held = [round(count * val), round(count * test)]
        codes = np.repeat([1, 2, 3], [count - sum(held), *held])
        split = np.zeros((self.reader.num_splits, len(labelled)), dtype=codes.dtype)
        for s, row in enumerate(split):
            row[labelled] = np.random.default_rng(self.reader.seed + s).permutation(codes)
        return split


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, 2)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
