"""Widths, vocabularies, classes and splits of a user's own data, gathered while its blocks go by; what does not fit the task is refused."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.custom import remarks as custom_remarks
from gt_bench.data.custom.readers import Reader
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError

MOST_CLASSES = 100_000


class Facts:
    """See `see`; what is said of all blocks (`check`, `split`, `remarks`) comes after the last."""

    def __init__(self, spec: DatasetSpec, reader: Reader):
        self.spec, self.reader = spec, reader
        self.classes = spec.task.endswith("-classification")
        self.widths: dict[str, int | np.ndarray] = {}
        self.columns: dict[str, custom_remarks.Columns] = {}
        self.edges = custom_remarks.Edges()
        self.splits: list[np.ndarray] = []
        self.out_dim = 0
        self.targets: list[np.ndarray] = []
        self.as_floats = False  # classes that were written as 0.0, 1.0, ...

    def see(self, block: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The block with classes as whole numbers. Raises DatasetError where its targets do not fit the task."""
        for key in ("x", "edge_attr"):
            if key in block:
                values = block[key]
                if values.dtype.kind == "f":
                    self.widths[key] = values.shape[1]
                else:
                    most = values.max(axis=0, initial=0).astype(np.int64) + 1
                    self.widths[key] = np.maximum(self.widths.get(key, 0), most)
                self.columns.setdefault(key, custom_remarks.Columns()).see(values)
        self.edges.see(block)
        y = self._classes(block["y"]) if self.classes else block["y"]
        if self.spec.task.endswith("-regression"):
            y = y.astype(np.float32)  # whole numbers too: they are standardised
        self._check_rows(block)
        self._check_targets(y)
        self.targets.append(y)
        self.out_dim = max(self.out_dim, int(y.max(initial=0)) + 1 if self.classes else y.shape[1] if y.ndim > 1 else 1)
        if "split" in block:
            self.splits.append(np.atleast_2d(block["split"]))
        return {**block, "y": y}

    def _classes(self, y: np.ndarray) -> np.ndarray:
        """Classes as whole numbers: 1.0 is the class 1, and what is not a number is -1."""
        spec = self.spec
        if y.ndim > 1 and y.shape[1] > 1:
            raise DatasetError(
                f"{self._name}: {spec.task} needs one target per {spec.level}, a class 0, 1, ...; there are {y.shape[1]} columns: give the number of the class "
                f"(of one column per class, the largest)"
                + (", or --task graph-multilabel" if spec.level == "graph" else "")
            )
        if y.dtype.kind != "f":
            return y
        self.as_floats = True
        known = ~np.isnan(y)
        if (wrong := np.flatnonzero(known & (y != np.floor(y)))).size:
            row = wrong[0]
            raise DatasetError(
                f"{self._name}: {spec.task} needs whole numbers 0, 1, ... as targets; that of {spec.level} {self._seen + row} is {y.flat[row]:g}: number the "
                f"classes, or give --task {spec.level}-regression"
            )
        return np.where(known, y, -1).astype(np.int64)

    def _check_rows(self, block: Mapping[str, np.ndarray]) -> None:
        """Raises DatasetError where arrays do not have a row for each node, edge or graph, or an edge names a node that its graph does not have."""
        sizes, counts = np.asarray(block["num_nodes"], np.int64), np.asarray(block["num_edges"], np.int64)
        nodes, edges, graphs = int(sizes.sum()), int(counts.sum()), len(sizes)
        targets = nodes if self.spec.level == "node" else graphs
        what = {
            "x": (nodes, "nodes"),
            "edge_attr": (edges, "edges"),
            "y": (targets, "nodes" if self.spec.level == "node" else "graphs"),
        }
        rows = {key: len(block[key]) for key in what if key in block} | {
            "edge_index": block["edge_index"].shape[1],
            "num_edges": len(counts),
        }
        for key, (count, of) in (what | {"num_edges": (graphs, "graphs"), "edge_index": (edges, "edges")}).items():
            if key in rows and rows[key] != count:
                hint = "; several graphs need num_nodes and num_edges" if key == "y" and graphs == 1 else ""
                raise DatasetError(
                    f"{self._name}: {key} has {rows[key]} entries for {count} {of}; {self.spec.task} needs one for each{hint}"
                )
        if "split" in block and np.atleast_2d(block["split"]).shape[1] != targets:
            raise DatasetError(
                f"{self._name}: split has {np.atleast_2d(block['split']).shape[1]} entries for {targets} {what['y'][1]}; give a column for each"
            )
        graph = np.repeat(np.arange(graphs), counts)
        if (wrong := np.flatnonzero((block["edge_index"] >= sizes[graph]).any(0))).size:
            edge, of_graph = wrong[0], graph[wrong[0]]
            raise DatasetError(
                f"{self._name}: column {edge} of edge_index names node {block['edge_index'][:, edge].max()} of graph {of_graph}, whose nodes are numbered from "
                f"0 to {sizes[of_graph] - 1}; node numbers start at 0 in each graph"
            )

    def _check_targets(self, y: np.ndarray) -> None:
        name, task = self._name, self.spec.task
        if self.classes:
            if y.size and y.max() >= MOST_CLASSES:
                raise DatasetError(
                    f"{name}: a label is {y.max()}; classes are numbered 0, 1, ... and fewer than {MOST_CLASSES:,}"
                )
            if y.size and y.min() < -1:
                raise DatasetError(f"{name}: a label is {y.min()}; classes are numbered from 0, and -1 is none")
        elif task == "graph-multilabel":
            values = np.unique(y if y.dtype.kind != "f" else y[~np.isnan(y)])
            wrong = values[(values != 0) & (values != 1)]
            if wrong.size:
                hint = "; write 0 for no, and nan for what is not known" if wrong[0] == -1 else ""
                raise DatasetError(
                    f"{name}: a target is {wrong[0]:g}; labels of {task} are 0 and 1 (empty or NaN: not known){hint}"
                )

    def check(self) -> None:
        """Raises DatasetError for targets that teach nothing, and for categories that are none."""
        y = self._y
        if self.classes:
            known, minus = np.unique(y[y >= 0]).tolist(), 0 if self.as_floats else int((y == -1).sum())
            if len(known) < 2:
                only = f"all labels are {known[0]}" if known else "there is no label"
                hint = (
                    f" ({minus} are -1, which means no label here: where it is a class, number the classes from 0: 0 and 1)"
                    if minus
                    else ""
                )
                raise DatasetError(f"{self._name}: {only}; {self.spec.task} needs two classes or more{hint}")
            rows = int((y >= 0).sum())
            if self.out_dim > max(custom_remarks.MOST_VALUES, rows):
                raise DatasetError(
                    f"{self._name}: a label is {self.out_dim - 1} where {rows:,} {self.spec.level}s have {len(known)} classes; number the classes 0, 1, ..., "
                    f"or give --task {self.spec.level}-regression"
                )
            if self.spec.metric == "roc-auc" and self.out_dim > 2:
                hint = f" (numbered {known[0]} and {known[1]}: number them 0 and 1)" if len(known) == 2 else ""
                raise DatasetError(
                    f"{self._name}: the metric roc-auc needs two classes; the targets have {self.out_dim}{hint}"
                )
        elif not self._labelled.any():
            raise DatasetError(f"{self._name}: every target is empty or NaN")
        for key, columns in self.columns.items():
            if problem := columns.problem(key):
                raise DatasetError(f"{self._name}: {problem}")

    def dim(self, key: str) -> int | list[int] | None:
        """`in_dim` or `edge_dim`."""
        width = self.widths.get(key)
        return width.tolist() if isinstance(width, np.ndarray) else width

    def split(self) -> np.ndarray:
        """Codes [S, rows]: the data's own, or random ones, which leave out what has no target."""
        labelled, what = self._labelled, self.spec.level
        if self.splits:
            split = np.concatenate(self.splits, axis=1)
            if (wrong := np.argwhere((split > 0) & ~labelled)).size:
                number, row = wrong[0]
                part = custom_remarks.PARTS[split[number, row] - 1]
                raise DatasetError(
                    f"{self._name}: {what} {row} has no target, but is in the {part} part of split {number}: take it out of all parts (in CSV: the split none)"
                    + (
                        "; where its label -1 is a class, number the classes from 0"
                        if self.classes and not self.as_floats
                        else ""
                    )
                )
            return split
        train, val, test = self.reader.shares
        if min(train, val, test) < 0 or abs(train + val + test - 1) > 1e-6:
            raise DatasetError(f"{self._name}: the shares of a split must add up to 1; got {self.reader.shares}")
        count = int(labelled.sum())
        held = [round(count * val), round(count * test)]
        for part, share, size in zip(custom_remarks.PARTS, (train, val, test), (count - sum(held), *held), strict=True):
            if share > 0 and size < 1:
                raise DatasetError(
                    f"{self._name}: {count} {what}{'s' if count > 1 else ''} with a target cannot be split {train:g}/{val:g}/{test:g}: the {part} part is empty; "
                    "give more of them, or a split of your own"
                )
        codes = np.repeat([1, 2, 3], [count - sum(held), *held])
        split = np.zeros((self.reader.num_splits, len(labelled)), dtype=codes.dtype)
        for s, row in enumerate(split):
            row[labelled] = np.random.default_rng(self.reader.seed + s).permutation(codes)
        return split

    def remarks(self, split: np.ndarray) -> list[str]:
        """What the user should know, in the order: columns, edges, targets, parts."""
        csv = (
            isinstance(self.reader.source, str | Path) and Path(self.reader.source).is_dir()
        )  # which names its columns itself
        found = [line for key, columns in self.columns.items() if not csv for line in columns.remarks(key)]
        return [*found, *self.edges.remarks(), *custom_remarks.of_targets(self._y, self.spec, self.as_floats, split)]

    @property
    def _name(self) -> str:
        return f"dataset {self.spec.name!r}"

    @property
    def _seen(self) -> int:
        return sum(map(len, self.targets))

    @property
    def _y(self) -> np.ndarray:
        return np.concatenate(self.targets)

    @property
    def _labelled(self) -> np.ndarray:
        """Which rows have a target, bool [rows]."""
        y = self._y
        return np.asarray((y >= 0 if self.classes else ~np.isnan(y)).reshape(len(y), -1).any(axis=1))
