"""Typed columns of tables as arrays: which role each has, features, splits.

A role follows from a reserved name or the description, and the kind of a feature from its type: numbers are quantities,
words are categories. What looks like something else is an error that names the option that decides.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gt_bench.data.custom.arrays import MAX_VALUES
from gt_bench.data.custom.description import Description
from gt_bench.data.custom.splits import no_column
from gt_bench.data.custom.tables import Table
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.redact import shown

if TYPE_CHECKING:
    import pandas as pd

CODES = {"none": 0, "train": 1, "val": 2, "test": 3}
SHOWN = 8  # categories whose numbers of rows are listed
_ID_NAME = re.compile(r"(.*[\W_])?(id|ids|idx|uid|uuid|guid|key|index)|.*[a-z](Id|ID)")
_ID_NAMES = {"identifier", "node", "nodename", "nodenumber", "vertex", "name", "edge", "edgename", "nodeid", "graphid"}
NOT_A_WORD = re.compile(r"[+-]?[.,]?\d.*|[\[({].*")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class TableColumn:
    """A column as it is used, for `gt-bench describe`.

    Attributes:
        table: nodes, edges or graphs.
        name: its name.
        role: id, graph, label, split, time, group, source node, weight, feature, not used, ...
        kind: number, whole number, category, class, word, date.
        values: its range, or its categories with the number of rows of each.
        missing: number of rows without a value.
    """

    table: str
    name: str
    role: str
    kind: str
    values: str
    missing: int = 0


def roles_of(table: Table, description: Description, level: str) -> dict[str, str]:
    """Decide the role of each column.

    Args:
        table: the table.
        description: what is declared.
        level: "node", "graph", "edge" or "link".

    Returns:
        Roles by column: "id", "graph", "source", "target" (an end of an edge), "weight", "label", "split", "time",
        "group", "feature", "not used", "dropped".

    Raises:
        DatasetError: two columns have one role, a target is in the wrong table, or graphs have features.
    """
    of_targets = table.name == {"node": "nodes", "graph": "graphs"}.get(level, "edges")
    roles = {column: _role(table, column, description, level, of_targets) for column in table.columns}
    for role in ("id", "graph", "source", "target", "weight", "time", "group"):
        if len(same := [column for column, has in roles.items() if has == role]) > 1:
            option = "--ends" if role in ("source", "target") else f"--{role}"
            raise DatasetError(
                f"columns {' and '.join(same)} are both {role}",
                file=table.path,
                remedy=f"choose: {option} {same[0]}, and rename the other, or --drop {same[1]}",
            )
    labels = [column for column, has in roles.items() if has == "label"]
    if len(labels) > 1 and not description.target and {name.lower() for name in labels} & {"label", "y"}:
        raise DatasetError(
            f"columns {' and '.join(labels)} may both be the target",
            file=table.path,
            remedy=f"choose: --target {labels[0]}, and the others become features",
        )
    if table.name == "graphs" and (wrong := [column for column, has in roles.items() if has == "feature"]):
        raise DatasetError(
            "is a feature of a graph, which no model reads",
            **table.at(column=wrong[0]),
            remedy=f"choose: --target {wrong[0]}, or --drop graphs.{wrong[0]}",
        )
    return roles


def _role(table: Table, column: str, description: Description, level: str, of_targets: bool) -> str:
    lower, name = column.lower(), table.name
    if description.declares("drop", name, column):
        return "dropped"
    for key, fits in (
        ("id", name == "nodes"),
        ("graph", True),
        ("weight", name == "edges"),
        ("time", of_targets),
        ("group", of_targets),
        ("target", of_targets),
    ):
        if fits and description.declares(key, name, column):
            return "label" if key == "target" else key
    if name == "edges" and description.ends and column in description.ends:
        return ("source", "target")[description.ends.index(column)]
    if name == "edges" and lower in ("source", "target") and not description.ends:
        return lower
    if name == "edges" and lower == "weight" and not description.weight:
        return "weight"
    if name == "nodes" and lower == "id" and not description.id:
        return "id"
    if (lower == "graph" or (name == "graphs" and lower == "id")) and not description.graph:
        return "graph"
    is_split = bool(re.fullmatch(r"split(_\d+)?", lower))
    if of_targets and is_split:
        return "split"
    if of_targets and lower in ("time", "group") and level in ("node", "graph") and not getattr(description, lower):
        return lower
    is_label = lower in ("label", "y") or bool(re.fullmatch(r"(y|label)_\d+", lower))
    if of_targets and is_label and not description.target:
        return "not used" if level == "link" else "label"
    if not of_targets and (is_label or is_split):
        if name == "nodes" and level in ("edge", "link"):
            return "not used"
        raise DatasetError(
            f"targets and splits are those of {level}s",
            **table.at(column=column),
            remedy=f"choose: --drop {name}.{column}, or a task of {name} (--task)",
        )
    return "feature"


def check_used(description: Description, tables: dict[str, Table], roles: dict[str, dict[str, str]]) -> None:
    """Raise DatasetError if the description names a column that does not exist, or that has another role."""
    for key, role in {
        **{key: key for key in ("id", "graph", "time", "group", "weight")},
        "target": "label",
        "categories": "feature",
        "numbers": "feature",
        "drop": "dropped",
    }.items():
        names = getattr(description, key) or ()
        for name in (names,) if isinstance(names, str) else names:
            places = {
                table: column
                for table, columns in roles.items()
                for column in columns
                if name in (column, f"{table}.{column}")
            }
            if not places:
                raise no_column(name, [column for columns in roles.values() for column in columns], place=key)
            if not any(roles[table][column] == role for table, column in places.items()):
                has = next(f"{table}.{column} is {roles[table][column]}" for table, column in places.items())
                remedy = f"remove it from {key}, or declare the other role elsewhere"
                raise DatasetError(has, place=key, value=name, remedy=remedy)
    if description.ends and (lost := set(description.ends) - set(tables["edges"].columns)):
        raise no_column(sorted(lost)[0], tables["edges"].columns, tables["edges"].path, "ends")


def features_in(
    table: Table, names: Sequence[str], description: Description, columns: list[TableColumn], allow_missing: bool
) -> np.ndarray | None:
    """Convert features to one array.

    Args:
        table: the table.
        names: its columns that are features, or weights.
        description: which are declared to be categories or numbers.
        columns: receives how each is used.
        allow_missing: whether cells may be missing.

    Returns:
        Categories, int64 [rows, F], if all are categories; else numbers, float64 [rows, F], in which each category is a
        column of 0 and 1, and a missing quantity is NaN. None without features.

    Raises:
        DatasetError: a column may be something else than a feature, or something else than its type says.
    """
    quantities, features = {}, []
    for name in names:
        kind, series = table.typed(name)
        wanted = "weight" if name.lower() == "weight" or name == description.weight else "feature"
        as_category = kind in ("word", "category")
        if description.declares("categories", table.name, name):
            as_category = True
        elif description.declares("numbers", table.name, name):
            if kind not in ("integer", "number"):
                raise DatasetError(f"is declared as numbers, and has cells of type {kind}", **table.at(column=name))
        else:
            _check_decided(table, name, kind, wanted)
        gone = series.isna().to_numpy()
        if gone.any() and not allow_missing:
            remedy = "a feature of an edge needs a value"
            raise DatasetError("is missing", **table.at(int(gone.argmax()), name), remedy=remedy)
        if as_category:
            codes, words = categories_in(series)
            if len(words) > max(MAX_VALUES, len(table) // 10):
                raise DatasetError(
                    f"has {len(words):,} categories in {len(table):,} rows, each of which needs weights of its own",
                    **table.at(column=name),
                    remedy=f"--drop {name}, or --numbers {name} if it is a quantity",
                )
            size = len(words) + bool(gone.any())
            features.append(np.where(gone, len(words), codes))
            columns.append(TableColumn(table.name, name, wanted, "category", counted(words, codes), int(gone.sum())))
            quantities[name] = (size, None)
        else:
            values = series.to_numpy(dtype=np.float64, na_value=np.nan)
            check_finite(table, name, values)
            kind = "whole number" if kind == "integer" else "number"
            columns.append(TableColumn(table.name, name, wanted, kind, ranged(values), int(gone.sum())))
            quantities[name] = (0, values)
            features.append(values)
    if not features:
        return None
    if all(values is None for _, values in quantities.values()):
        return np.stack(features, axis=1)
    wide = [
        np.eye(size)[codes] if values is None else values[:, None]
        for codes, (size, values) in zip(features, quantities.values(), strict=True)
    ]
    return np.concatenate(wide, axis=1)


def _check_decided(table: Table, name: str, kind: str, role: str) -> None:
    """Raise DatasetError if a column that is a feature by its type may be something else."""
    _, series = table.typed(name)
    choice = f"--drop {name}, --categories {name}" + (f" or --numbers {name}" if kind in ("integer", "number") else "")
    if kind == "date":
        raise DatasetError(
            "has dates, which are no features",
            **table.at(column=name),
            remedy=f"choose: --drop {name}, --time {name} for a temporal split, or write days since the first one",
        )
    choice = "choose: " + (f"--id {name}, " if table.name == "nodes" else "") + choice
    if role == "feature" and (
        _ID_NAME.fullmatch(name) or re.sub(r"[\W_]+", "", name).lower() in _ID_NAMES or _ID_NAME.fullmatch(name.lower())
    ):
        problem = "has the name of an identifier and would be a feature"
        raise DatasetError(problem, **table.at(column=name), remedy=choice)
    if kind == "word" and (row := odd_cell(series)) is not None:
        problem, remedy = not_a_word(series.iloc[row])
        remedy += f"; or --categories {name}, --drop {name}"
        raise DatasetError(problem, **table.at(row, name), value=series.iloc[row], remedy=remedy)
    known = series[series.notna()]
    if kind in ("integer", "word") and len(table) > 2 and known.nunique() == len(table):
        what = "whole number" if kind == "integer" else "word"
        problem = f"has a different {what} in each of {len(table)} rows, as an identifier, and would be a feature"
        raise DatasetError(problem, **table.at(column=name), remedy=choice)


def check_finite(table: Table, name: str, values: np.ndarray) -> None:
    """Raise DatasetError if a number of a column is infinite."""
    if np.isinf(values).any():
        raise DatasetError("is infinite", **table.at(int(np.isinf(values).argmax()), name), remedy="write a number")


def odd_cell(series: "pd.Series") -> int | None:
    """Return the first row of a column of words that is no plain word, or among more numbers the first word."""
    cells = [(row, cell) for row, cell in enumerate(series) if cell is not None]
    odd = [(row, cell) for row, cell in cells if NOT_A_WORD.fullmatch(cell)]
    words = [row for row, cell in cells if not NOT_A_WORD.fullmatch(cell)]
    if odd and 0 < len(words) < len(odd) and all(_NUMBER.fullmatch(cell) for _, cell in odd):
        return words[0]
    return odd[0][0] if odd else None


def not_a_word(cell: str) -> tuple[str, str]:
    """Explain why a cell does not fit to the other cells of its column, and what to do."""
    text, remedy = shown(cell), "write numbers in all rows"
    if cell[0] in "[({":
        return f"{text} is several values in one cell", "write a vector as one column per entry"
    if cell.endswith("%"):
        return f"{text} is a number with a unit", "write it without %"
    if not NOT_A_WORD.fullmatch(cell):
        return f"{text} is a word, and most other rows have numbers", f"write a number, or --missing {cell}"
    if _NUMBER.fullmatch(cell):
        remedy += " (--missing WORD,... names words that mean a missing value)"
        return f"{text} is a number, and other rows have words", remedy
    if re.fullmatch(r"[+-]?[\d.,]+", cell):
        kinds = "a number with a decimal comma (--decimal ,), with thousands separators (--thousands ,), or a list"
        return f"{text} may be {kinds}", "write a list as one column per value"
    if re.match(r"\d{4}-\d\d", cell):
        return f"{text} may be a date, which is no feature", "write days since the first one"
    return f"{text} is neither a number nor a plain word", f"{remedy} (--missing WORD for a missing value)"


def categories_in(series: object) -> tuple[np.ndarray, list[object]]:
    """Number the distinct values of a column in sorted order.

    Returns:
        The number of each row, -1 where it is missing, and the values.
    """
    import pandas as pd

    cells = pd.Series(series)
    values = list(pd.unique(cells[cells.notna()]))
    try:
        values.sort()
    except TypeError:  # of several types
        values.sort(key=str)
    numbers = {value: number for number, value in enumerate(values)}
    return np.array([-1 if pd.isna(cell) else numbers[cell] for cell in cells], np.int64), values


def counted(values: Sequence[object], codes: np.ndarray) -> str:
    """Return values and the number of rows of each, the most frequent first."""
    counts = np.bincount(codes[codes >= 0], minlength=len(values))
    order = np.argsort(-counts, kind="stable")[:SHOWN]
    listed = ", ".join(f"{shown(values[i])} {counts[i]:,}" for i in order)
    return listed + (f", ... ({len(values):,})" if len(values) > SHOWN else "")


def ranged(values: np.ndarray) -> str:
    """Return the range of numbers."""
    known = values[~np.isnan(values)]
    if not known.size:
        return "none"
    return f"{known.min():.6g} to {known.max():.6g}" if known.min() < known.max() else f"{known.min():.6g}"


def splits_in(table: Table, names: Sequence[str], columns: list[TableColumn]) -> np.ndarray:
    """Return codes [S, rows] of the columns `split`, or `split_0`, `split_1`, ..."""
    lower = {name.lower(): name for name in names}
    expected = ["split"] if "split" in lower and len(lower) == 1 else [f"split_{i}" for i in range(len(lower))]
    if set(lower) != set(expected):
        remedy = "name one split `split`, several split_0, split_1, ... without gaps"
        raise DatasetError(f"has the columns {', '.join(names)}", file=table.path, remedy=remedy)
    codes = []
    for name in (lower[key] for key in expected):
        _, series = table.typed(name)
        cells = ["none" if cell is None or cell != cell else str(cell) for cell in series]
        for row, cell in enumerate(cells):
            if cell not in CODES:
                remedy = "expected train, val, test or none"
                raise DatasetError(f"unknown split {shown(cell)!r}", **table.at(row, name), value=cell, remedy=remedy)
        codes.append([CODES[cell] for cell in cells])
        columns.append(TableColumn(table.name, name, "split", "category", counted(list(CODES), np.array(codes[-1]))))
    return np.array(codes, np.uint8)
