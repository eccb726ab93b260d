"""Summarise user-supplied data block by block (widths, vocabularies, classes, splits), and refuse invalid data."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from gt_bench.data.custom import splits
from gt_bench.data.custom.arrays import check_precision
from gt_bench.data.custom.readers import Reader
from gt_bench.data.custom.remarks import MAX_VALUES, PARTS, ColumnStatistics, EdgeStatistics, target_remarks
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError

MAX_CLASSES = 100_000
TWO_CLASSES = ("roc-auc", "ap", "f1-binary")  # metrics of two classes, of which 1 is the positive one


class Summary:
    """Summary of user-supplied data. Call `add` for each block, then the other methods.

    Args:
        spec: the dataset.
        reader: reads the data.

    Attributes:
        out_dim: number of classes or targets.
    """

    def __init__(self, spec: DatasetSpec, reader: Reader):
        self.spec, self.reader = spec, reader
        self.name = f"dataset {spec.name!r}"
        self.classification = spec.task.endswith("-classification")
        self.widths: dict[str, int | np.ndarray] = {}
        self.columns: dict[str, ColumnStatistics] = {}
        self.edges = EdgeStatistics()
        self.splits: list[np.ndarray] = []
        self.by: list[np.ndarray] = []  # the column by which the data are split
        self.ends: list[np.ndarray] = []  # of edges, with numbers of nodes over all blocks; only if inductive
        self.nodes = 0
        self.out_dim = 0
        self.targets: list[np.ndarray] = []
        self.as_floats = False  # classes were written as 0.0, 1.0, ...

    def add(self, block: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Add a block.

        Args:
            block: arrays of whole graphs.

        Returns:
            The block, with classes as whole numbers.

        Raises:
            DatasetError: its arrays contradict each other or the task.
        """
        for key in ("x", "edge_attr"):
            if key in block:
                values = block[key]
                if values.dtype.kind == "f":
                    self.widths[key] = values.shape[1]
                else:
                    vocabulary = values.max(axis=0, initial=0).astype(np.int64) + 1
                    self.widths[key] = np.maximum(self.widths.get(key, 0), vocabulary)
                self.columns.setdefault(key, ColumnStatistics()).add(values)
        self.edges.add(block)
        y = self._classes(block["y"]) if self.classification else block["y"]
        if self.spec.task.endswith("-regression"):
            check_precision(y, "y", self.name)
            y = y.astype(np.float32)  # also whole numbers: they are standardised
        self._check_shapes(block)
        self._check_targets(y)
        self.targets.append(y)
        width = int(y.max(initial=0)) + 1 if self.classification else y.shape[1] if y.ndim > 1 else 1
        self.out_dim = max(self.out_dim, width)
        if "split" in block:
            self.splits.append(np.atleast_2d(block["split"]))
        if "by" in block:
            self.by.append(block["by"])
        if self.reader.inductive:
            sizes, counts = np.asarray(block["num_nodes"], np.int64), np.asarray(block["num_edges"], np.int64)
            self.ends.append(block["edge_index"] + np.repeat(self.nodes + sizes.cumsum() - sizes, counts))
            self.nodes += int(sizes.sum())
        return {**block, "y": y}

    def _classes(self, y: np.ndarray) -> np.ndarray:
        """Convert classes to whole numbers: 1.0 becomes 1, and NaN becomes -1."""
        task, level = self.spec.task, self.spec.level
        if y.ndim > 1 and y.shape[1] > 1:
            raise DatasetError(
                f"{self.name}: y has {y.shape[1]} columns; {task} needs one target per {level}, a class 0, 1, ...: "
                "give the number of the class (for one column per class, that of the largest)"
                + (", or --task graph-multilabel" if level == "graph" else "")
            )
        if y.dtype.kind != "f":
            return y
        self.as_floats = True
        known = ~np.isnan(y)
        if (wrong := np.flatnonzero(known & (y != np.floor(y)))).size:
            row = sum(map(len, self.targets)) + wrong[0]
            raise DatasetError(
                f"{self.name}: the target of {level} {row} is {y.flat[wrong[0]]:g}; {task} needs whole numbers 0, 1, "
                f"...: number the classes, or use --task {level}-regression"
            )
        return np.where(known, y, -1).astype(np.int64)

    def _check_shapes(self, block: Mapping[str, np.ndarray]) -> None:
        """Raise DatasetError if an array has a wrong number of rows, or an edge names a node that does not exist."""
        sizes, counts = np.asarray(block["num_nodes"], np.int64), np.asarray(block["num_edges"], np.int64)
        rows = {"node": int(sizes.sum()), "edge": int(counts.sum()), "graph": len(sizes)}
        level = self.spec.level
        checked = [
            ("x", len(block["x"]), "node"),
            ("y", len(block["y"]), level),
            ("num_edges", len(counts), "graph"),
            ("edge_index", block["edge_index"].shape[1], "edge"),
        ]
        if "edge_attr" in block:
            checked.append(("edge_attr", len(block["edge_attr"]), "edge"))
        if "split" in block:
            checked.append(("split", np.atleast_2d(block["split"]).shape[1], level))
        for key, found, kind in checked:
            expected = rows[kind]
            if key in ("y", "split") and "target" in block:  # added reverse edges have no target
                expected = len(block["target"])
            if found != expected:
                hint = "; several graphs need num_nodes and num_edges" if key == "y" and len(sizes) == 1 else ""
                raise DatasetError(
                    f"{self.name}: {key} has {found} entries for {expected} {kind}s; it needs one for each{hint}"
                )
        graph = np.repeat(np.arange(len(sizes)), counts)
        if (wrong := np.flatnonzero((block["edge_index"] >= sizes[graph]).any(0))).size:
            edge, number = wrong[0], graph[wrong[0]]
            raise DatasetError(
                f"{self.name}: column {edge} of edge_index names node {block['edge_index'][:, edge].max()} of graph "
                f"{number}; its nodes are numbered from 0 to {sizes[number] - 1} (numbers start at 0 in each graph)"
            )

    def _check_targets(self, y: np.ndarray) -> None:
        if self.classification and y.size:
            if y.max() >= MAX_CLASSES:
                raise DatasetError(
                    f"{self.name}: a label is {y.max()}; classes are numbered 0, 1, ..., less than {MAX_CLASSES:,}"
                )
            if y.min() < -1:
                raise DatasetError(
                    f"{self.name}: a label is {y.min()}; classes are numbered from 0, and -1 is no class"
                )
        elif self.spec.task == "graph-multilabel":
            values = np.unique(y if y.dtype.kind != "f" else y[~np.isnan(y)])
            wrong = values[(values != 0) & (values != 1)]
            if wrong.size:
                hint = "; write 0 for no, and nan for unknown" if wrong[0] == -1 else ""
                raise DatasetError(
                    f"{self.name}: a target is {wrong[0]:g}; labels of graph-multilabel are 0 and 1 "
                    f"(empty or NaN: unknown){hint}"
                )

    def check(self) -> None:
        """Check the targets of all blocks.

        Raises:
            DatasetError: there are no targets or fewer than two classes, the metric needs two classes, or a column of
                categories has too many values.
        """
        y, level, task = self._y, self.spec.level, self.spec.task
        if (words := self.reader.labels) and not self.classification:
            listed = ", ".join(words[:3]) + (", ..." if len(words) > 3 else "")
            raise DatasetError(
                f"{self.name}: the targets are words ({listed}); {task} needs numbers: "
                f"use --task {level}-classification"
            )
        if self.classification:
            known, unlabelled = np.unique(y[y >= 0]).tolist(), 0 if self.as_floats else int((y == -1).sum())
            if len(known) < 2:
                only = f"all labels are {known[0]}" if known else "there is no label"
                hint = (
                    f" ({unlabelled} are -1, which means no label: if it is a class, use 0 and 1)" if unlabelled else ""
                )
                raise DatasetError(f"{self.name}: {only}; {task} needs two classes or more{hint}")
            rows = int((y >= 0).sum())
            if self.out_dim > max(MAX_VALUES, rows):
                raise DatasetError(
                    f"{self.name}: a label is {self.out_dim - 1}, but {rows:,} {level}s have {len(known)} classes; "
                    f"number the classes 0, 1, ..., or use --task {level}-regression"
                )
            if self.spec.metric in TWO_CLASSES and self.out_dim > 2:
                hint = f" (numbered {known[0]} and {known[1]}: number them 0 and 1)" if len(known) == 2 else ""
                raise DatasetError(
                    f"{self.name}: the metric {self.spec.metric} needs two classes; the targets have "
                    f"{self.out_dim}{hint}"
                )
        elif not self._labelled.any():
            raise DatasetError(f"{self.name}: every target is empty or NaN")
        for key, columns in self.columns.items():
            if problem := columns.problem(key):
                raise DatasetError(f"{self.name}: {problem}")

    def dim(self, key: str) -> int | list[int] | None:
        """Return `in_dim` or `edge_dim` of the header.

        Args:
            key: "x" or "edge_attr".

        Returns:
            The width of continuous features, or a vocabulary size per column; None if there are none.
        """
        width = self.widths.get(key)
        return width.tolist() if isinstance(width, np.ndarray) else width

    def split(self) -> np.ndarray:
        """Make the splits.

        Returns:
            Codes [S, rows] of the data, else drawn ones, in which rows without a target have the code 0.

        Raises:
            DatasetError: a row without a target is in a part, the shares do not add up to 1, or a part is empty.
        """
        labelled, level = self._labelled, self.spec.level
        section = self.reader.section
        if section and section.kind not in ("random", "given"):
            return self.drawn.codes
        if self.keeps_split:
            split = np.concatenate(self.splits, axis=1)
            if (wrong := np.argwhere((split > 0) & ~labelled)).size:
                number, row = wrong[0]
                part = PARTS[split[number, row] - 1]
                hint = "; if its label -1 is a class, number the classes from 0"
                raise DatasetError(
                    f"{self.name}: {level} {row} has no target, but is in the {part} part of split {number}; remove it "
                    f"from all parts (in CSV: split none){hint if self.classification and not self.as_floats else ''}"
                )
            return split
        split = np.zeros((self.reader.num_splits, len(labelled)), np.uint8)
        split[:, labelled] = self._random_codes(int(labelled.sum()))
        return split

    def _random_codes(self, count: int) -> np.ndarray:
        """Draw splits of `count` rows by the shares of the reader, [S, count]. Raise DatasetError for an empty part."""
        shares, level = self.reader.shares, self.spec.level
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise DatasetError(f"{self.name}: the shares of a split must add up to 1; got {shares}")
        sizes = [round(count * share) for share in shares[1:]]
        sizes = [count - sum(sizes), *sizes]
        for part, share, size in zip(PARTS, shares, sizes, strict=True):
            if share > 0 and size < 1:
                raise DatasetError(
                    f"{self.name}: {count} {level}{'' if count == 1 else 's'} with a target cannot be split "
                    f"{'/'.join(f'{share:g}' for share in shares)}: the {part} part is empty; add {level}s, or a split"
                )
        codes = np.repeat(np.array([1, 2, 3], np.uint8), sizes)
        seeds = range(self.reader.seed, self.reader.seed + self.reader.num_splits)
        return np.stack([np.random.default_rng(seed).permutation(codes) for seed in seeds])

    @property
    def keeps_split(self) -> bool:
        """Whether the split of the data is used. Raises DatasetError if it must be, and there is none."""
        section = self.reader.section
        if section and section.kind == "given" and not self.splits:
            raise DatasetError(
                f"{self.name}: the data have no split, and split: given keeps that of the data; add one, or draw one"
            )
        return bool(self.splits) and not (section and section.kind == "random")

    @cached_property
    def drawn(self) -> splits.Drawn:
        """Splits by the section of the reader, and what inductive training sees of any split.

        Raises:
            DatasetError: a part would be empty, or a value of the column is missing or has no order.
        """
        section, reader, y = self.reader.section, self.reader, self._y
        if section is None or section.kind in ("random", "given"):
            codes = self.split()
            shares = "/".join(f"{share:g}" for share in reader.shares)
            stated = f"random, {shares}" if not self.splits or (section and section.kind == "random") else "of the data"
            found = splits.Drawn(codes, np.where(codes, codes, 1).astype(np.uint8), stated)
        else:
            classes = y.reshape(-1) if self.classification else None
            column = np.concatenate(self.by) if self.by else None
            rows = splits.Rows(self.name, self.spec.level, self._labelled, column, classes)
            found = splits.drawn(section, rows, reader.shares, reader.num_splits, reader.seed)
        if self.splits and section and section.kind != "given":
            found.remarks.append(f"the split of the data is not used: the split is {section.kind}")
        if reader.inductive:
            self._state_inductive(found)
        return found

    def _state_inductive(self, found: splits.Drawn) -> None:
        """Add to `stated` how much of the graph training sees in the first split."""
        ends, seen = np.concatenate(self.ends, axis=1), found.seen[0]
        edges = [int((seen[ends] <= code).all(0).sum()) for code in (1, 2, 3)]
        nodes = [int((seen <= code).sum()) for code in (1, 2, 3)]
        found.stated += (
            f"; inductive: training sees {nodes[0]:,} nodes and {edges[0]:,} edges, validation {nodes[1]:,} and "
            f"{edges[1]:,}, test all {nodes[2]:,} and {edges[2]:,} (the first split)"
        )
        if not edges[0] and edges[2]:
            found.remarks.append("inductive: no edge joins two nodes that training sees in the first split")

    def remarks(self, split: np.ndarray) -> list[str]:
        """Make remarks for the user on columns, edges, targets and parts of splits.

        Args:
            split: split codes [S, rows].

        Returns:
            The remarks.
        """
        found = [] if self._is_csv else [line for key, columns in self.columns.items() for line in columns.remarks(key)]
        if self.reader.section or self.reader.inductive:
            found += self.drawn.remarks
        return [*found, *self.edges.remarks(), *target_remarks(self._y, self.spec, self.as_floats, split)]

    @property
    def _is_csv(self) -> bool:
        """Whether the source is a folder of CSV files, whose reader names the columns."""
        source = self.reader.source
        return isinstance(source, str | Path) and Path(source).is_dir()

    @property
    def _y(self) -> np.ndarray:
        return np.concatenate(self.targets)

    @property
    def _labelled(self) -> np.ndarray:
        """Which rows have a target, bool [rows]."""
        y = self._y
        return np.asarray((y >= 0 if self.classification else ~np.isnan(y)).reshape(len(y), -1).any(axis=1))
