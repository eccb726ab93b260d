"""Columns of user-supplied tables as arrays: targets, splits and features."""

import contextlib
import re
from collections.abc import Sequence

import numpy as np

from gt_bench.data.custom.identifiers import names_rows
from gt_bench.data.custom.remarks import MAX_VALUES, has_unique_whole_numbers, identifier_remark, too_many_values
from gt_bench.data.custom.table import MISSING, MISSING_WORDS, Table, shown
from gt_bench.utils.errors import DatasetError

MOST_LISTED = 10  # classes that a remark lists
CODES = {"": 0, "none": 0, "train": 1, "val": 2, "test": 3}


def words_in(table: Table, name: str) -> list[str]:
    """Return the distinct words of a column in sorted order; none if a cell is a number."""
    words = sorted(set(table.columns[name]) - set(MISSING_WORDS))
    for word in words:
        with contextlib.suppress(ValueError):
            float(word.replace(",", "."))
            return []
    return words


def _listed(words: Sequence[str], of: str = "categories") -> str:
    """Return the numbers of words for a remark."""
    listed = ", ".join(f"{number} = {shown(word)}" for number, word in enumerate(words[:MOST_LISTED]))
    return listed + (f", ... ({len(words)} {of})" if len(words) > MOST_LISTED else "")


def classes_in(table: Table, words: list[str], remarks: list[str]) -> np.ndarray:
    """Remove the column y and convert its words to numbers of classes, in sorted order; -1 for a missing cell."""
    cells = table.columns.pop("y")
    numbers = {word: number for number, word in enumerate(words)}
    y = np.array([numbers.get(cell, -1) for cell in cells], np.int64)
    listed = _listed(words, "classes")
    remarks.append(f"{table.path.name}: column y has words, numbered in sorted order: {listed}")
    if missing := int((y < 0).sum()):
        written = [cell for cell in sorted(set(cells) - set(words)) if cell.lower() not in ("", "nan")]
        texts = f" ({', '.join(written)}: for a class, write another word)" if written else ""
        remarks.append(f"{table.path.name}: column y is missing in {missing} rows{texts}, which have no class")
    return y


def targets_in(table: Table, names: Sequence[str], remarks: list[str]) -> np.ndarray:
    """Return the column `y`, [rows], or `y_1`, `y_2`, ..., [rows, T] in the order of their numbers, as numbers."""
    if all(re.fullmatch(r"y_[0-9]+", name) for name in names):
        names = sorted(names, key=lambda name: int(name[2:]))
    elif names != ["y"]:
        remarks.append(f"{table.path.name}: targets are, in this order, {', '.join(names)}: their names begin with y_")
    if len(names) > 1 and "y" in names:
        raise DatasetError(
            f"{table.path}: has the columns {', '.join(names)}; name one target y, or several y_1, y_2, ..., and "
            "rename a feature"
        )
    y = [table.numbers(name) for name in names]
    for name, column in zip(names, y, strict=True):
        if (wrong := np.flatnonzero(np.isinf(column))).size:
            raise DatasetError(
                f"{table.at(int(wrong[0]), name)} is {column[wrong[0]]}; a target is a finite number, or nan if unknown"
            )
    return y[0] if names == ["y"] else np.stack(y, axis=1)


def is_split(name: str) -> bool:
    """Test whether a column contains a split."""
    return bool(re.fullmatch(r"split(_[0-9]+)?", name))


def splits_in(table: Table, names: Sequence[str]) -> np.ndarray:
    """Codes [rows] of the column `split`, or [S, rows] of `split_0`, `split_1`, ..."""
    expected = ["split"] if len(names) == 1 and "split" in names else [f"split_{i}" for i in range(len(names))]
    if set(names) != set(expected):
        raise DatasetError(
            f"{table.path}: has the columns {', '.join(names)}; name one split `split`, several split_0, split_1, ... "
            "without gaps"
        )
    codes = []
    for name in expected:
        cells = table.columns.pop(name)
        for row, cell in enumerate(cells):
            if cell not in CODES:
                raise DatasetError(
                    f"{table.at(row, name)}: unknown split {cell[:100]!r}; expected train, val, test or none"
                )
        codes.append([CODES[cell] for cell in cells])
    return np.array(codes[0] if expected == ["split"] else codes, np.uint8)


def _feature(table: Table, name: str, remarks: list[str], allow_missing: bool) -> np.ndarray:
    """Remove a column and convert it to numbers. A missing quantity is NaN, a missing category one more category."""
    cells = table.columns[name]
    words = words_in(table, name)
    missing = np.array([cell in MISSING_WORDS if words else cell.lower() in MISSING for cell in cells], bool)
    if words and missing.any() and not allow_missing:
        row = int(missing.argmax())
        raise DatasetError(
            f"{table.at(row, name)} is {f'missing ({cells[row]})' if cells[row] else 'empty'}; a feature of an edge "
            "cannot be missing: write a word"
        )
    # as many words as rows are names or texts, which are rejected as numbers
    if words and len(words) < len(table) and len(words) <= MAX_VALUES:
        del table.columns[name]
        numbers = {word: number for number, word in enumerate(words)}
        gaps = (
            f"; it is missing in {int(missing.sum()):,} rows, which get the category {len(words)}"
            if missing.any()
            else ""
        )
        remarks.append(
            f"{table.path.name}: column {name} has words and is used as a category, numbered in sorted order: "
            f"{_listed(words)}{gaps}"
        )
        return np.array([numbers.get(cell, len(words)) for cell in cells], np.int64)
    if len(words) == len(table) > 2 or len(words) > MAX_VALUES:
        raise DatasetError(
            f"{table.at(0, name)}: {shown(cells[0])} is a word, and {len(table):,} rows have {len(words):,} different "
            "words; remove the column, or write numbers (for a date, days since the first one)"
        )
    if not (allow_missing and missing.any()):
        values = table.numbers(name)
        if np.isnan(values).any():
            row = int(np.flatnonzero(np.isnan(values))[0])
            raise DatasetError(f"{table.at(row, name)} is {values[row]}; a feature of an edge is a finite number")
        return values
    table.columns[name] = ["0" if gone else cell for gone, cell in zip(missing, cells, strict=True)]
    values = table.numbers(name)
    if values.dtype.kind == "f" or missing.all():
        remarks.append(
            f"{table.path.name}: column {name} is missing in {int(missing.sum()):,} of {len(table):,} rows, first in "
            f"{table.unit} {table.lines[int(missing.argmax())]}"
        )
        return np.where(missing, np.nan, values)
    values[missing] = values[~missing].max() + 1
    remarks.append(
        f"{table.path.name}: column {name} has only whole numbers and is missing in {int(missing.sum()):,} rows, which "
        f"get the category {int(values.max())}; if it is a quantity, write 12.0 for 12"
    )
    return values


def features_in(table: Table, remarks: list[str], allow_missing: bool = False) -> np.ndarray:
    """Convert all columns to one array [rows, F]. If some are continuous, categories become one-hot columns."""
    of_numbers = {name for name in table.columns if not words_in(table, name)}
    columns = {name: _feature(table, name, remarks, allow_missing) for name in list(table.columns)}
    for name, column in columns.items():
        if (wrong := np.flatnonzero(np.isinf(column))).size:
            raise DatasetError(f"{table.at(int(wrong[0]), name)} is {column[wrong[0]]}; a feature is a finite number")
        if has_unique_whole_numbers(column):
            remarks.append(identifier_remark(f"{table.path.name}: column {name}", len(table)))
        elif names_rows(name):
            remarks.append(
                f"{table.path.name}: column {name} has the name of an identifier and is used as a feature; "
                "remove it if it is not a feature"
            )
    categories = [name for name, column in columns.items() if column.dtype.kind != "f"]
    for name in categories:
        column = columns[name]
        if column.min(initial=0) < 0:
            row = int(np.argmin(column))
            raise DatasetError(
                f"{table.at(row, name)} is {column[row]}; whole numbers are categories from 0; write quantities with a "
                f"point: {column[row]}.0"
            )
        one_hot = len(categories) < len(columns)  # then each value becomes a column
        if problem := too_many_values(f"{table.path}: column {name}", int(column.max(initial=0)), len(table), one_hot):
            raise DatasetError(problem)
    if not 0 < len(categories) < len(columns):
        return np.stack(list(columns.values()), axis=1)
    found = []
    for name, column in columns.items():
        if name not in categories:
            found.append(column[:, None])
            continue
        values = int(column.max(initial=0)) + 1
        if name in of_numbers:
            remarks.append(
                f"{table.path.name}: column {name} has only whole numbers and is used as a category, {values} columns "
                "of 0 and 1; if it is a quantity, write 12.0 for 12"
            )
        found.append(np.eye(values)[column])
    return np.concatenate(found, axis=1)
