"""Targets of tables and arrays, and the task that follows from their type."""

import re
from collections.abc import Sequence

import numpy as np

from gt_bench.data.custom.arrays import FEW
from gt_bench.data.custom.columns import NOT_A_WORD, Column, categories_in, counted, not_a_word, ranged
from gt_bench.data.custom.tables import Table
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.redact import shown


def targets_in(table: Table, names: Sequence[str], task: str, columns: list[Column]) -> tuple[np.ndarray, list[str]]:
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
            raise DatasetError(
                f"{table.path}: {task} needs one target, and has {', '.join(names)}: --target {names[0]}"
            )
        kind, series = table.typed(names[0])
        if kind == "number":
            values = series.to_numpy()
            if (wrong := np.flatnonzero(~np.isnan(values) & (values != np.floor(values)))).size:
                raise DatasetError(
                    f"{table.at(int(wrong[0]), names[0])} is {values[wrong[0]]:g}; classes are whole numbers or words: "
                    f"use --task {task.removesuffix('classification')}regression"
                )
            series = series.astype("Int64")
        codes, found = categories_in(series)
        if kind in ("integer", "number") and found and int(str(found[0])) < 0:
            row = int((codes == 0).argmax())
            raise DatasetError(
                f"{table.at(row, names[0])} is {found[0]}, which may be a class or no label; for no label leave the "
                "cell empty, for a class write a word or a number from 0"
            )
        missing = int((codes < 0).sum())
        columns.append(Column(table.name, names[0], "label", "class", counted(found, codes), missing))
        plain = kind in ("integer", "number") and found == list(range(len(found)))
        return codes, [] if plain else [str(value) for value in found]
    y = []
    for name in sorted(names, key=lambda n: int(n.split("_")[1]) if re.fullmatch(r"\w+_\d+", n) else 0):
        kind, series = table.typed(name)
        if kind not in ("integer", "number"):
            cell = next((cell for cell in series if cell is not None), "")
            why = f": {not_a_word(cell)}" if isinstance(cell, str) and NOT_A_WORD.fullmatch(cell) else ""
            raise DatasetError(
                f"{table.path}: column {name} has targets of type {kind} ({shown(cell)}); {task} needs numbers{why}"
            )
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        if np.isinf(values).any():
            raise DatasetError(f"{table.at(int(np.isinf(values).argmax()), name)} is infinite; write a finite number")
        kind = "whole number" if kind == "integer" else "number"
        columns.append(Column(table.name, name, "label", kind, ranged(values), int(np.isnan(values).sum())))
        y.append(values)
    return y[0] if len(y) == 1 else np.stack(y, axis=1), []


def task_of_columns(table: Table, names: Sequence[str], level: str) -> str:
    """Decide the task by the types of targets: words and whole numbers are classes, other numbers are quantities.

    Raises:
        DatasetError: the types leave it open.
    """
    if len(names) > 1:
        y, _ = targets_in(table, names, f"{level}-regression", [])
        return task_of_array(y, level, str(table.path))
    kind, series = table.typed(names[0])
    if kind in ("word", "category"):
        for row, cell in enumerate(series):
            if isinstance(cell, str) and kind == "word" and NOT_A_WORD.fullmatch(cell):
                raise DatasetError(f"{table.at(row, names[0])}: {not_a_word(cell)}; or --task {level}-classification")
        return f"{level}-classification"
    if kind == "date":
        raise DatasetError(f"{table.path}: column {names[0]} has dates, which are no targets; choose: --target COLUMN")
    known = series[series.notna()].to_numpy()
    return task_of_array(known.astype(np.int64 if kind == "integer" else np.float64), level, str(table.path), FEW)


def task_of_array(y: np.ndarray, level: str, where: str, few: int = 2) -> str:
    """Decide the task by the type of targets.

    Args:
        y: targets [rows] or [rows, T].
        level: "node", "edge" or "graph".
        where: name of the data for error messages.
        few: whole numbers written as 1.0 may be classes if at most this many are different.

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
                f"{where}: targets have {y.shape[1]} labels of 0 and 1 per {level}; give one class per {level} (for "
                f"one-hot rows y.argmax(1)), or --task {level}-regression"
            )
        if known.size == y.size and (y.sum(1) == 1).all():
            raise DatasetError(
                f"{where}: each graph has exactly one label of {y.shape[1]}, as one-hot classes have; give the class "
                "(y.argmax(1)), or --task graph-multilabel"
            )
        return "graph-multilabel"
    values = np.unique(known)
    if y.dtype.kind != "f":
        if len(values) > max(FEW, len(known) // 10):
            raise DatasetError(
                f"{where}: targets are whole numbers, {len(values):,} different ones in {len(known):,} rows; {choice}"
            )
        return f"{level}-classification"
    if known.size and len(values) <= few and (values == np.floor(values)).all():
        listed = ", ".join(f"{value:.1f}" for value in values)
        raise DatasetError(f"{where}: targets are whole numbers written as {listed}; {choice}")
    return f"{level}-regression"
