"""Remarks on user-supplied data that are valid but perhaps not intended.

Columns that look like identifiers, edges in one direction, classes with gaps, parts of a split without a class.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from gt_bench.data.spec import DatasetSpec

PARTS = ("train", "val", "test")
MAX_VALUES = 1000  # of a category with more values than rows, or next to continuous columns


def has_unique_whole_numbers(values: np.ndarray) -> bool:
    """Test whether a column looks like identifiers.

    Args:
        values: [N].

    Returns:
        Whether it has a different whole number in each of at least three rows.
    """
    if len(values) < 3 or values.max() - values.min() < len(values) - 1:  # the second test is faster than sorting
        return False
    return bool((values == np.floor(values)).all()) and len(np.unique(values)) == len(values)


def too_many_values(what: str, largest: int, rows: int, one_hot: bool = False) -> str | None:
    """Test whether a column has too many values for a category: each value needs a row of weights, or a column.

    Args:
        what: name of the column for the message.
        largest: largest value.
        rows: number of rows.
        one_hot: each value becomes a column.

    Returns:
        The problem, if there is one.
    """
    if largest < (MAX_VALUES if one_hot else max(MAX_VALUES, rows)):
        return None
    return (
        f"{what} has whole numbers up to {largest}: {largest + 1:,} categories for {rows:,} rows; remove an "
        "identifier, number categories 0, 1, ..., and write quantities with a point: 12.0 for 12"
    )


def identifier_remark(column: str, rows: int) -> str:
    """Make the remark on a column that looks like identifiers."""
    return (
        f"{column} has a different whole number in each of {rows} rows and is used as a feature; "
        "remove it if it identifies the rows"
    )


class ColumnStatistics:
    """Statistics of the columns of an array, over all blocks."""

    def __init__(self) -> None:
        self.rows = 0
        self.largest: np.ndarray | None = None  # of whole numbers, per column
        self.unique: dict[int, list[np.ndarray]] = {}  # values of the columns that differ in all rows so far

    def add(self, values: np.ndarray) -> None:
        """Add a block of values [N, F]."""
        if not self.rows:
            self.unique = {column: [] for column in range(values.shape[1])}
        for column in list(self.unique) if len(values) else []:
            part = values[:, column]
            if has_unique_whole_numbers(part) or len(part) < 3:
                self.unique[column].append(part)
            else:
                del self.unique[column]
        self.rows += len(values)
        if values.dtype.kind != "f":
            largest = values.max(axis=0, initial=0)
            self.largest = largest if self.largest is None else np.maximum(self.largest, largest)

    def problem(self, key: str) -> str | None:
        """Return the problem if a column of the array `key` has too many categories."""
        largest = self.largest.tolist() if self.largest is not None else []
        problems = (too_many_values(f"column {c} of {key}", value, self.rows) for c, value in enumerate(largest))
        return next((problem for problem in problems if problem), None)

    def remarks(self, key: str) -> list[str]:
        """Make a remark for each column of the array `key` that looks like identifiers."""
        return [
            identifier_remark(f"column {column} of {key}", self.rows)
            for column, parts in self.unique.items()
            if parts and has_unique_whole_numbers(np.concatenate(parts))
        ]


class EdgeStatistics:
    """Numbers of edges without a reverse edge and of repeated edges, over all blocks."""

    def __init__(self) -> None:
        self.total = self.one_way = self.repeated = 0

    def add(self, block: Mapping[str, np.ndarray]) -> None:
        """Add a block of whole graphs. Invalid edges are ignored; other checks refuse them."""
        sizes, counts = np.asarray(block["num_nodes"], np.int64), np.asarray(block["num_edges"], np.int64)
        source, target = np.asarray(block["edge_index"], np.int64)
        if len(sizes) != len(counts) or counts.sum() != len(source) or not len(source):
            return
        width = int(sizes.max())
        graph = np.repeat(np.arange(len(sizes)), counts) * width
        forward, backward = (graph + source) * width + target, (graph + target) * width + source
        self.total += len(forward)
        forward = np.sort(forward)
        position = np.searchsorted(forward, backward)
        self.one_way += int((forward[np.minimum(position, len(forward) - 1)] != backward).sum())
        self.repeated += int((forward[1:] == forward[:-1]).sum())

    def remarks(self) -> list[str]:
        """Make remarks on directed and repeated edges."""
        found = []
        if self.one_way:
            found.append(
                f"{self.one_way:,} of {self.total:,} edges have no reverse edge and are used as directed, from source "
                "to target; write undirected edges in both directions, or pass --undirected"
            )
        if self.repeated:
            found.append(f"{self.repeated:,} of {self.total:,} edges are repeated, and count as often as they occur")
        return found


def target_remarks(y: np.ndarray, spec: DatasetSpec, as_floats: bool, split: np.ndarray) -> list[str]:
    """Make remarks on targets and on the parts of splits.

    Args:
        y: targets [rows, ...].
        spec: the dataset.
        as_floats: classes were written as 0.0, 1.0, ...
        split: split codes [S, rows].

    Returns:
        The remarks.
    """
    level = spec.level
    if spec.task.endswith("-regression"):
        known = y[~np.isnan(y)]
        if y.dtype.kind == "f" and known.size and (known == np.floor(known)).all():
            values = np.unique(known)
            shown = ", ".join(f"{value:g}" for value in values[:4]) + (", ..." if len(values) > 4 else "")
            return [
                f"all targets are whole numbers ({shown}) and are predicted as quantities ({spec.task}); "
                f"for classes use --task {level}-classification"
            ]
        return []
    if spec.task == "graph-multilabel":
        return _constant_label_remarks(y, split)
    y, found = y.reshape(-1), []
    known, counts = np.unique(y[y >= 0], return_counts=True)
    if missing := int((y < 0).sum()):
        label = "nan" if as_floats else "-1"
        found.append(
            f"{missing:,} of {len(y):,} {level}s have the label {label} and are used as unlabelled; "
            "classes are numbered from 0"
        )
    if gaps := sorted(set(range(int(known.max()) + 1)) - set(known.tolist())):
        found.append(
            f"no {level} has the class {_some(gaps)} of 0 to {known.max()}: the model has an output for each; "
            "number classes without gaps"
        )
    if len(known) > 2 and counts.max() == 1:
        found.append(f"each {level} has a different class; for quantities use --task {level}-regression")
    for code, part in enumerate(PARTS, 1):
        missing_classes = [np.setdiff1d(known, y[row == code]).tolist() if (row == code).any() else [] for row in split]
        if which := [number for number, classes in enumerate(missing_classes) if classes]:
            more = f"; a class is missing there in {len(which)} of {len(split)} splits" if len(which) > 1 else ""
            found.append(
                f"the {part} part of split {which[0]} has no {level} of class {_some(missing_classes[which[0]])}{more}"
            )
    return found


def _constant_label_remarks(y: np.ndarray, split: np.ndarray) -> list[str]:
    """Make remarks on labels [rows, T] with only one value in a part, which the metric ignores there."""
    y = np.asarray(y, np.float64).reshape(len(y), -1)
    found = []
    for code, part in enumerate(PARTS, 1):
        constant = []
        for rows in (y[row == code] for row in split):
            columns = range(y.shape[1]) if len(rows) else ()
            constant.append([c for c in columns if len(np.unique(rows[~np.isnan(rows[:, c]), c])) < 2])
        if which := [number for number, labels in enumerate(constant) if labels]:
            labels = _some([c + 1 for c in constant[which[0]]])
            more = f"; the same in {len(which)} of {len(split)} splits" if len(which) > 1 else ""
            found.append(
                f"the {part} part of split {which[0]} has only one value of label {labels}, which the metric ignores "
                f"there{more}"
            )
    return found


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
