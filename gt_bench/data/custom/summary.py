"""Summarise user-supplied data block by block (widths, vocabularies, classes, splits), and refuse invalid data."""

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from gt_bench.config.tasks import TWO_CLASSES
from gt_bench.data.custom import splits
from gt_bench.data.custom.arrays import FEW, MAX_VALUES, check_precision
from gt_bench.data.custom.source import Reader
from gt_bench.data.custom.splits import PARTS, Shares
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.redact import shown

MAX_CLASSES = 100_000
MUTUAL = 0.95  # share of edges with their reverse above which edges are probably meant to have no direction


class DataSummary:
    """Summary of user-supplied data. Call `add` for each block, then the other methods.

    Args:
        spec: the dataset.
        reader: reads the data.
        shares: shares of train, val and test of drawn splits.
        num_splits: number of splits to draw.

    Attributes:
        out_dim: number of classes or targets.
    """

    def __init__(self, spec: DatasetSpec, reader: Reader, shares: Shares, num_splits: int):
        self.spec, self.reader, self.shares, self.num_splits = spec, reader, shares, num_splits
        self.seed, self.inductive = reader.description.seed or 0, bool(reader.description.inductive)
        self.classification = spec.task.endswith("-classification")
        self.widths: dict[str, int | np.ndarray] = {}
        self.rows = dict.fromkeys(("x", "edge_attr"), 0)
        self.categories: dict[tuple[str, int], np.ndarray] = {}  # distinct values of columns of arrays
        self.total = self.one_way = 0  # edges between two nodes, and how many of them have no reverse
        self.repeated = 0  # edges equal to an earlier one
        self.first_id: int | None = None  # smallest number of a node in edges
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
                    self._count_categories(key, values)
                self.rows[key] += len(values)
        self._count_edges(block)
        y = self._classes(block["y"]) if self.classification else block["y"]
        if self.spec.task.endswith("-regression"):
            check_precision(y, "y")
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
        if self.inductive:
            sizes, counts = np.asarray(block["num_nodes"], np.int64), np.asarray(block["num_edges"], np.int64)
            self.ends.append(block["edge_index"] + np.repeat(self.nodes + sizes.cumsum() - sizes, counts))
            self.nodes += int(sizes.sum())
        return {**block, "y": y}

    def _count_categories(self, key: str, values: np.ndarray) -> None:
        """Collect the distinct values of each column with more than a few."""
        for column in np.flatnonzero(values.max(axis=0, initial=0) >= FEW).tolist():
            known = self.categories.get((key, column), values[:0, column])
            self.categories[key, column] = np.unique(np.concatenate([known, values[:, column]]))

    def _count_edges(self, block: Mapping[str, np.ndarray]) -> None:
        """Count edges without a reverse, and repeated ones. Invalid blocks are ignored; other checks refuse them."""
        sizes, counts = np.asarray(block["num_nodes"], np.int64), np.asarray(block["num_edges"], np.int64)
        source, target = np.asarray(block["edge_index"], np.int64)
        if len(sizes) != len(counts) or counts.sum() != len(source) or not len(source):
            return
        self.first_id = min(int(block["edge_index"].min()), self.first_id if self.first_id is not None else MAX_CLASSES)
        width = int(sizes.max())
        graph = np.repeat(np.arange(len(sizes)), counts) * width
        forward, backward = (graph + source) * width + target, (graph + target) * width + source
        self.repeated += len(forward) - len(np.unique(forward))
        proper = source != target
        self.total += int(proper.sum())
        self.one_way += int((~np.isin(backward[proper], forward)).sum())

    def _check_edges(self) -> None:
        """Raise DatasetError for edges that seem to count from 1, or to have no direction with a few exceptions."""
        stated = self.reader.description
        if self.first_id == 1 and stated.first_id is None and self.reader.numbered:
            raise DatasetError(
                "no edge names node 0: edges may count from 1, and the last node would have no edge",
                remedy="choose: --first-id 1, or --first-id 0 if nodes are numbered from 0",
            )
        mutual = self.total - self.one_way
        if stated.undirected is None and self.one_way and mutual >= MUTUAL * self.total:
            raise DatasetError(
                f"{mutual:,} of {self.total:,} edges have their reverse and {self.one_way:,} have not",
                remedy="choose: --undirected adds it where it is missing, --directed uses the edges as they are",
            )

    def _check_categories(self) -> None:
        """Raise DatasetError for columns of whole numbers with too many values for categories."""
        for (key, column), values in self.categories.items():
            if key in (self.reader.description.categories or ()) or not self.reader.of_arrays:
                continue
            rows, largest = self.rows[key], int(values.max())
            if len(values) > max(FEW, rows // 10) or largest >= max(MAX_VALUES, rows):
                raise DatasetError(
                    f"has whole numbers, which are categories: {len(values):,} different ones up to {largest:,} in "
                    f"{rows:,} rows",
                    place=f"{key}: column {column}",
                    remedy=f"remove an identifier, or choose: --numbers {key} for quantities, --categories {key}",
                )

    def _classes(self, y: np.ndarray) -> np.ndarray:
        """Convert classes to whole numbers: 1.0 becomes 1, and NaN becomes -1."""
        task, level = self.spec.task, self.spec.level
        if y.ndim > 1 and y.shape[1] > 1:
            raise DatasetError(
                f"has {y.shape[1]} columns",
                place="y",
                remedy=f"{task} needs one target per {level}, a class 0, 1, ...: give the number of the class (for one "
                "column per class, that of the largest)" + (", or --task graph-multilabel" if level == "graph" else ""),
            )
        if y.dtype.kind != "f":
            return y
        self.as_floats = True
        known = ~np.isnan(y)
        if (wrong := np.flatnonzero(known & (y != np.floor(y)))).size:
            value = float(y.flat[wrong[0]])
            raise DatasetError(
                f"the target is {value:g}",
                place=f"{level} {sum(map(len, self.targets)) + wrong[0]}",
                value=value,
                remedy=f"{task} needs whole numbers 0, 1, ...: number the classes, or use --task {level}-regression",
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
        for key, count, kind in checked:
            expected = rows[kind]
            if key in ("y", "split") and "target" in block:  # added reverse edges have no target
                expected = len(block["target"])
            if count != expected:
                hint = "; several graphs need num_nodes and num_edges" if key == "y" and len(sizes) == 1 else ""
                problem, remedy = f"has {count} entries for {expected} {kind}s", f"it needs one for each{hint}"
                raise DatasetError(problem, place=key, value=count, remedy=remedy)
        graph = np.repeat(np.arange(len(sizes)), counts)
        if (wrong := np.flatnonzero((block["edge_index"] >= sizes[graph]).any(0))).size:
            edge, number = wrong[0], graph[wrong[0]]
            node = int(block["edge_index"][:, edge].max())
            raise DatasetError(
                f"names node {node} of graph {number}",
                place=f"edge_index: column {edge}",
                value=node,
                remedy=f"its nodes are numbered from 0 to {sizes[number] - 1} (numbers start at 0 in each graph)",
            )

    def _check_targets(self, y: np.ndarray) -> None:
        if self.classification and y.size:
            if y.max() >= MAX_CLASSES:
                remedy = f"classes are numbered 0, 1, ..., less than {MAX_CLASSES:,}"
                raise DatasetError(f"a label is {y.max()}", value=int(y.max()), remedy=remedy)
            if y.min() < -1:
                remedy = "classes are numbered from 0, and -1 is no class"
                raise DatasetError(f"a label is {y.min()}", value=int(y.min()), remedy=remedy)
        elif self.spec.task == "graph-multilabel":
            values = np.unique(y if y.dtype.kind != "f" else y[~np.isnan(y)])
            wrong = values[(values != 0) & (values != 1)]
            if wrong.size:
                hint = "; write 0 for no, and nan for unknown" if wrong[0] == -1 else ""
                remedy = f"labels of graph-multilabel are 0 and 1 (empty or NaN: unknown){hint}"
                raise DatasetError(f"a target is {wrong[0]:g}", value=float(wrong[0]), remedy=remedy)

    def check(self) -> None:
        """Check the targets of all blocks.

        Raises:
            DatasetError: there are no targets or fewer than two classes, the metric needs two classes, or a column of
                categories has too many values.
        """
        y, level, task = self._y, self.spec.level, self.spec.task
        if self.classification:
            known, unlabelled = np.unique(y[y >= 0]).tolist(), 0 if self.as_floats else int((y == -1).sum())
            if len(known) < 2:
                names = self.reader.labels or {label: label for label in known}
                only = f"all labels are {names[known[0]]}" if known else "there is no label"
                why = (
                    "are -1, which means no label: if it is a class, use 0 and 1"
                    if self.reader.of_arrays
                    else "are missing: an empty cell, or a word such as NA; --missing WORD names others"
                )
                hint = f" ({unlabelled} {why})" if unlabelled else ""
                raise DatasetError(only, remedy=f"{task} needs two classes or more{hint}")
            rows = int((y >= 0).sum())
            if self.out_dim > max(MAX_VALUES, rows):
                raise DatasetError(
                    f"a label is {self.out_dim - 1}, but {rows:,} {level}s have {len(known)} classes",
                    value=self.out_dim - 1,
                    remedy=f"number the classes 0, 1, ..., or use --task {level}-regression",
                )
            if self.spec.metric in TWO_CLASSES and self.out_dim > 2:
                hint = f" (numbered {known[0]} and {known[1]}: number them 0 and 1)" if len(known) == 2 else ""
                problem = f"the metric {self.spec.metric} needs two classes"
                remedy = f"the targets have {self.out_dim}{hint}"
                raise DatasetError(problem, value=self.spec.metric, remedy=remedy)
        elif not self._labelled.any():
            raise DatasetError("every target is empty or NaN")
        self._check_edges()
        self._check_categories()

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
                    f"has no target, but is in the {part} part of split {number}",
                    place=f"{level} {row}",
                    remedy="remove it from all parts (in CSV: split none)"
                    + (hint if self.classification and not self.as_floats else ""),
                )
            return split
        split = np.zeros((self.num_splits, len(labelled)), np.uint8)
        split[:, labelled] = self._random_codes(int(labelled.sum()))
        return split

    def _random_codes(self, count: int) -> np.ndarray:
        """Draw splits of `count` rows by the shares of the reader, [S, count]. Raise DatasetError for an empty part."""
        shares, level = self.shares, self.spec.level
        if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
            raise DatasetError("the shares of a split must add up to 1", value=shares, remedy=f"got {shares}")
        sizes = [round(count * share) for share in shares[1:]]
        sizes = [count - sum(sizes), *sizes]
        for part, share, size in zip(PARTS, shares, sizes, strict=True):
            if share > 0 and size < 1:
                raise DatasetError(
                    f"{count} {level}{'' if count == 1 else 's'} with a target cannot be split "
                    f"{'/'.join(f'{share:g}' for share in shares)}: the {part} part is empty",
                    remedy=f"add {level}s, or a split",
                )
        codes = np.repeat(np.array([1, 2, 3], np.uint8), sizes)
        seeds = range(self.seed, self.seed + self.num_splits)
        return np.stack([np.random.default_rng(seed).permutation(codes) for seed in seeds])

    @property
    def keeps_split(self) -> bool:
        """Whether the split of the data is used. Raises DatasetError if it must be, and there is none."""
        section = self.reader.section
        if section and section.kind == "given" and not self.splits:
            problem = "the data have no split, and split: given keeps that of the data"
            raise DatasetError(problem, place="split", value="given", remedy="add one, or draw one")
        return bool(self.splits) and not (section and section.kind == "random")

    @cached_property
    def drawn(self) -> splits.Drawn:
        """Splits by the section of the reader, and what inductive training sees of any split.

        Raises:
            DatasetError: a part would be empty, or a value of the column is missing or has no order.
        """
        section, y = self.reader.section, self._y
        if section is None or section.kind in ("random", "given"):
            codes = self.split()
            shares = "/".join(f"{share:g}" for share in self.shares)
            stated = f"random, {shares}" if not self.splits or (section and section.kind == "random") else "of the data"
            made = splits.Drawn(codes, np.where(codes, codes, 1).astype(np.uint8), stated)
        else:
            classes = y.reshape(-1) if self.classification else None
            column = np.concatenate(self.by) if self.by else None
            rows = splits.SplitRows(self.spec.level, self._labelled, column, classes)
            made = splits.drawn(section, rows, self.shares, self.num_splits, self.seed)
        if self.inductive:
            self._state_inductive(made)
        return made

    def _state_inductive(self, made: splits.Drawn) -> None:
        """Add to `stated` how much of the graph training sees in the first split."""
        ends, seen = np.concatenate(self.ends, axis=1), made.seen[0]
        edges = [int((seen[ends] <= code).all(0).sum()) for code in (1, 2, 3)]
        nodes = [int((seen <= code).sum()) for code in (1, 2, 3)]
        made.stated += (
            f"; inductive: training sees {nodes[0]:,} nodes and {edges[0]:,} edges, validation {nodes[1]:,} and "
            f"{edges[1]:,}, test all {nodes[2]:,} and {edges[2]:,} (the first split)"
        )

    def notes(self, split: np.ndarray) -> list[str]:
        """Mention repeated edges, and parts of splits [S, rows] without a class or with one value of a label."""
        y, level = self._y, self.spec.level
        notes = [f"{self.repeated:,} edges repeat an earlier one, and are kept"] if self.repeated else []
        if not (self.classification or self.spec.task == "graph-multilabel"):
            return notes
        classes, y = np.unique(y[y >= 0]), y.reshape(len(y), -1)
        for code, part in enumerate(PARTS, 1):
            lost: list[tuple[int, list[int]]] = []
            for number, rows in enumerate(y[row == code] for row in split):
                if self.classification:
                    wrong = np.setdiff1d(classes, rows).tolist()
                else:
                    wrong = [c for c in range(y.shape[1]) if len(np.unique(rows[~np.isnan(rows[:, c]), c])) < 2]
                lost += [(number, wrong)] if len(rows) and wrong else []
            if lost:
                names = [self.reader.labels[c] if self.reader.labels else str(c) for c in lost[0][1]]
                listed = ", ".join(map(shown, names[:5])) + (", ..." if len(names) > 5 else "")
                what = f"no {level} of class {listed}" if self.classification else f"one value of label {listed}"
                more = f"; so in {len(lost)} of {len(split)} splits" if len(lost) > 1 else ""
                notes.append(f"the {part} part of split {lost[0][0]} has {what}{more}")
        return notes

    @property
    def _y(self) -> np.ndarray:
        return np.concatenate(self.targets)

    @property
    def _labelled(self) -> np.ndarray:
        """Which rows have a target, bool [rows]."""
        y = self._y
        return np.asarray((y >= 0 if self.classification else ~np.isnan(y)).reshape(len(y), -1).any(axis=1))
