"""What a user should know of their own data beyond what is refused: columns that look like identifiers, classes with gaps, parts without a class, edges in
one direction."""

from collections.abc import Mapping, Sequence

import numpy as np

from gt_bench.data.spec import DatasetSpec

PARTS = ("train", "val", "test")
MOST_VALUES = 1000  # of a category that has more values than rows, or is beside continuous columns


def differs_everywhere(values: np.ndarray) -> bool:
    """Whether a column [N] has a different whole number in each row, as identifiers do."""
    if len(values) < 3 or values.max() - values.min() < len(values) - 1:  # the second test spares sorting
        return False
    return bool((values == np.floor(values)).all()) and len(np.unique(values)) == len(values)


def too_many_values(what: str, largest: int, rows: int, one_hot: bool = False) -> str | None:
    """Why a column of whole numbers from 0 to `largest` is no category: it needs a row of weights, or a column (`one_hot`), for each of them."""
    if largest < (MOST_VALUES if one_hot else max(MOST_VALUES, rows)):
        return None
    return (
        f"{what} holds whole numbers up to {largest}: {largest + 1:,} categories for {rows:,} rows; take an identifier out, number categories 0, 1, ..., "
        "and give a quantity a point: write 12.0 for 12"
    )


class Columns:
    """The columns of features without names, over all blocks."""

    def __init__(self) -> None:
        self.rows = 0
        self.largest: np.ndarray | None = None  # of whole numbers
        self.distinct: dict[int, list[np.ndarray]] = {}  # values of the columns that differ in every row so far

    def see(self, values: np.ndarray) -> None:
        """One more block [N, F]."""
        if not self.rows:
            self.distinct = {column: [] for column in range(values.shape[1])}
        for column in [column for column in self.distinct if len(values)]:
            part = values[:, column]
            if not (differs_everywhere(part) or len(part) < 3):
                del self.distinct[column]
            else:
                self.distinct[column].append(part)
        self.rows += len(values)
        if values.dtype.kind != "f":
            most = values.max(axis=0, initial=0)
            self.largest = most if self.largest is None else np.maximum(self.largest, most)

    def problem(self, key: str) -> str | None:
        """Why they cannot be used."""
        problems = (
            too_many_values(f"column {c} of {key}", int(m), self.rows)
            for c, m in enumerate([] if self.largest is None else self.largest)
        )
        return next((problem for problem in problems if problem), None)

    def remarks(self, key: str) -> list[str]:
        """Which look like identifiers."""
        found = [
            column for column, parts in self.distinct.items() if parts and differs_everywhere(np.concatenate(parts))
        ]
        return [
            f"column {column} of {key} has a different whole number in each of {self.rows} rows and is taken as a feature; where it identifies the rows, take it out"
            for column in found
        ]


class Edges:
    """Edges without an edge back, and those that occur more than once, over all blocks."""

    def __init__(self) -> None:
        self.total = self.one_way = self.repeated = 0

    def see(self, block: Mapping[str, np.ndarray]) -> None:
        """One more block of whole graphs; ids that no node has are refused later."""
        sizes, counts = np.asarray(block["num_nodes"], np.int64), np.asarray(block["num_edges"], np.int64)
        source, target = np.asarray(block["edge_index"], np.int64)
        if len(sizes) != len(counts) or counts.sum() != len(source) or not len(source):
            return
        width = int(sizes.max())
        graph = np.repeat(np.arange(len(sizes)), counts) * width
        forward, backward = (graph + source) * width + target, (graph + target) * width + source
        self.total += len(forward)
        forward = np.sort(forward)
        place = np.searchsorted(forward, backward)
        self.one_way += int((forward[np.minimum(place, len(forward) - 1)] != backward).sum())
        self.repeated += int((forward[1:] == forward[:-1]).sum())

    def remarks(self) -> list[str]:
        """What is unusual."""
        found = []
        if self.one_way:
            found.append(
                f"{self.one_way:,} of {self.total:,} edges have no edge back and are taken as directed, from source to target; write an undirected edge in both "
                "directions, or give --undirected"
            )
        if self.repeated:
            found.append(
                f"{self.repeated:,} of {self.total:,} edges repeat another one, and count as often as they occur"
            )
        return found


def of_targets(y: np.ndarray, spec: DatasetSpec, as_floats: bool, split: np.ndarray) -> list[str]:
    """What is unusual in targets [rows, ...] and in the parts of splits [S, rows]."""
    if spec.task.endswith("-regression"):
        known = y[~np.isnan(y)]
        if y.dtype.kind == "f" and known.size and (known == np.floor(known)).all():
            values = np.unique(known)
            shown = ", ".join(f"{value:g}" for value in values[:4]) + (", ..." if len(values) > 4 else "")
            return [
                f"all targets are whole numbers ({shown}) and are predicted as quantities ({spec.task}); for classes give --task {spec.level}-classification"
            ]
        return []
    if spec.task == "graph-multilabel":
        return _one_valued(y, split)
    y, found = y.reshape(-1), []
    known, counts = np.unique(y[y >= 0], return_counts=True)
    if missing := int((y < 0).sum()):
        how = "nan" if as_floats else "-1"
        found.append(
            f"{missing:,} of {len(y):,} {spec.level}s have the label {how} and are taken as not labelled; a class is numbered from 0"
        )
    if gaps := sorted(set(range(int(known.max()) + 1)) - set(known.tolist())):
        found.append(
            f"no {spec.level} has the class {_some(gaps)} of 0 to {known.max()}: the model has an output for each; number classes without gaps"
        )
    if len(known) > 2 and counts.max() == 1:
        found.append(f"each {spec.level} has a class of its own; for quantities give --task {spec.level}-regression")
    for code, part in enumerate(PARTS, 1):
        lacking = [np.setdiff1d(known, y[row == code]).tolist() if (row == code).any() else [] for row in split]
        if which := [s for s, classes in enumerate(lacking) if classes]:
            more = f"; a class is missing there in {len(which)} of {len(split)} splits" if len(which) > 1 else ""
            found.append(
                f"the {part} part of split {which[0]} has no {spec.level} of class {_some(lacking[which[0]])}{more}"
            )
    return found


def _one_valued(y: np.ndarray, split: np.ndarray) -> list[str]:
    """Labels [rows, T] that have one value in a part: the metric leaves them out there."""
    y = np.asarray(y, np.float64).reshape(len(y), -1)
    found = []
    for code, part in enumerate(PARTS, 1):
        lacking = []
        for row in split:
            rows = y[row == code]
            lacking.append(
                [c for c in range(y.shape[1]) if len(rows) and len(np.unique(rows[~np.isnan(rows[:, c]), c])) < 2]
            )
        if which := [s for s, labels in enumerate(lacking) if labels]:
            labels = _some([c + 1 for c in lacking[which[0]]])
            more = f"; the same in {len(which)} of {len(split)} splits" if len(which) > 1 else ""
            found.append(
                f"the {part} part of split {which[0]} has one value of label {labels}, which the metric leaves out there{more}"
            )
    return found


def _some(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:5])) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
