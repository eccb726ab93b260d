"""Targets of tables and arrays, and the task that follows from their type."""

import re
from collections.abc import Sequence

import numpy as np

from gt_bench.data.custom.arrays import FEW
from gt_bench.data.custom.columns import (
    TableColumn,
    categories_in,
    check_finite,
    counted,
    not_a_word,
    odd_cell,
    ranged,
)
from gt_bench.data.custom.tables import Table
from gt_bench.data.readers import located
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.redact import shown


def targets_in(
    table: Table, names: Sequence[str], task: str, columns: list[TableColumn]
) -> tuple[np.ndarray, list[str]]:
    """Convert targets.

    Args:
        table: the table.
        names: its columns with targets.
        task: the task, which decides whether they are classes or numbers.
        columns: receives how each is used.

    Returns:
        Classes [rows] in sorted order of their values, -1 without one, and the values as text; or numbers [rows] or
        [rows, T], NaN without one, and no text.

    Raises:
        DatasetError: targets are words and the task needs numbers, or a class cannot be read.
    """
    if task.endswith("-classification"):
        if len(names) > 1:
            problem = f"{task} needs one target, and has {', '.join(names)}"
            raise DatasetError(problem, file=table.path, remedy=f"--target {names[0]}")
        kind, series = table.typed(names[0])
        if kind == "number":
            values = series.to_numpy()
            if (wrong := np.flatnonzero(~np.isnan(values) & (values != np.floor(values)))).size:
                value, regression = float(values[wrong[0]]), f"{task.removesuffix('classification')}regression"
                raise DatasetError(
                    f"is {value:g}",
                    **table.at(int(wrong[0]), names[0]),
                    value=value,
                    remedy=f"classes are whole numbers or words: use --task {regression}",
                )
            series = series.astype("Int64")
        codes, classes = categories_in(series)
        if kind in ("integer", "number") and classes and int(str(classes[0])) < 0:
            raise DatasetError(
                f"is {classes[0]}, which may be a class or no label",
                **table.at(int((codes == 0).argmax()), names[0]),
                value=classes[0],
                remedy="for no label leave the cell empty, for a class write a word or a number from 0",
            )
        missing = int((codes < 0).sum())
        columns.append(TableColumn(table.name, names[0], "label", "class", counted(classes, codes), missing))
        plain = kind in ("integer", "number") and classes == list(range(len(classes)))
        return codes, [] if plain else [str(value) for value in classes]
    y = []
    for name in sorted(names, key=lambda n: int(n.split("_")[1]) if re.fullmatch(r"\w+_\d+", n) else 0):
        kind, series = table.typed(name)
        if kind not in ("integer", "number"):
            row = odd_cell(series) if kind == "word" else None
            cell = series.iloc[row] if row is not None else next((cell for cell in series if cell is not None), "")
            why = "" if row is None else ": {}; {}".format(*not_a_word(cell))
            problem = f"has targets of type {kind} ({shown(cell)})"
            at = table.at(column=name) if row is None else table.at(row, name)
            raise DatasetError(problem, **at, value=kind, remedy=f"{task} needs numbers{why}")
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        check_finite(table, name, values)
        kind = "whole number" if kind == "integer" else "number"
        columns.append(TableColumn(table.name, name, "label", kind, ranged(values), int(np.isnan(values).sum())))
        y.append(values)
    return y[0] if len(y) == 1 else np.stack(y, axis=1), []


def task_of_columns(table: Table, names: Sequence[str], level: str) -> str:
    """Decide the task by the types of targets: words and whole numbers are classes, other numbers are quantities.

    Raises:
        DatasetError: the types leave it open.
    """
    if len(names) > 1:
        y, _ = targets_in(table, names, f"{level}-regression", [])
        with located(table.path):
            return task_of_array(y, level)
    kind, series = table.typed(names[0])
    if kind in ("word", "category"):
        if kind == "word" and (row := odd_cell(series)) is not None:
            problem, remedy = not_a_word(series.iloc[row])
            remedy += f"; or --task {level}-classification"
            raise DatasetError(problem, **table.at(row, names[0]), value=series.iloc[row], remedy=remedy)
        return f"{level}-classification"
    at = table.at(column=names[0])
    if kind == "date":
        raise DatasetError("has dates, which are no targets", **at, remedy="choose: --target COLUMN")
    known = series[series.notna()].to_numpy()
    with located(**at):
        return task_of_array(known.astype(np.int64 if kind == "integer" else np.float64), level)


def task_of_array(y: np.ndarray, level: str) -> str:
    """Decide the task by the type of targets.

    Args:
        y: targets [rows] or [rows, T].
        level: "node", "edge" or "graph".

    Returns:
        The task.

    Raises:
        DatasetError: the type leaves it open.
    """
    y = y[:, 0] if y.ndim > 1 and y.shape[1] == 1 else y
    known = y[~np.isnan(y.astype(np.float64))]
    choice = f"choose: --task {level}-classification or --task {level}-regression"
    if y.ndim > 1:
        if not np.isin(known, (0, 1)).all():
            return f"{level}-regression"
        if level != "graph":
            raise DatasetError(
                f"targets have {y.shape[1]} labels of 0 and 1 per {level}",
                remedy=f"give one class per {level} (for one-hot rows y.argmax(1)), or --task {level}-regression",
            )
        if known.size == y.size and (y.sum(1) == 1).all():
            raise DatasetError(
                f"each graph has exactly one label of {y.shape[1]}, as one-hot classes have",
                remedy="give the class (y.argmax(1)), or --task graph-multilabel",
            )
        return "graph-multilabel"
    values = np.unique(known)
    if y.dtype.kind != "f":
        if len(values) > max(FEW, len(known) // 10):
            problem = f"targets are whole numbers, {len(values):,} different ones in {len(known):,} rows"
            raise DatasetError(problem, remedy=choice)
        return f"{level}-classification"
    if known.size and len(values) <= FEW and (values == np.floor(values)).all():
        listed = ", ".join(f"{value:.1f}" for value in values)
        raise DatasetError(f"targets are whole numbers written as {listed}", remedy=choice)
    return f"{level}-regression"
