"""Reading a user's own folder of CSV files."""

import csv
from pathlib import Path

import numpy as np

from stages.datasets.custom_arrays import edges_of, typed
from stages.errors import DatasetError

MOST_VALUES = 1000  # of a category beside continuous columns
CODES = {"": 0, "none": 0, "train": 1, "val": 2, "test": 3}


def from_csv(folder: Path, level: str, remarks: list[str]) -> dict[str, np.ndarray]:
    """nodes.csv: [graph,] features..., at node level y and perhaps split. edges.csv: [graph,] source, target, features...
    graphs.csv: y... and perhaps split, one row per graph. Rows of a graph are consecutive, in the order of the graphs."""
    paths = [folder / "nodes.csv", folder / "edges.csv", folder / "graphs.csv"]
    for path in paths[: 2 if level == "node" else 3]:
        if not path.exists():
            raise DatasetError(
                f"{path}: cannot be read: there is no such file; a folder of CSV has nodes.csv and edges.csv, and with targets of graphs graphs.csv"
            )
    nodes, edges = _columns(paths[0]), _columns(paths[1])
    targets = nodes if level == "node" else _columns(paths[2])
    for path, columns in ((paths[0], nodes), (paths[2], targets)):
        if not len(next(iter(columns.values()))):
            raise DatasetError(f"{path}: has no rows")
    if not {"source", "target"} <= set(edges):
        raise DatasetError(f"{paths[1]}: needs the columns source and target")
    if ("graph" in nodes) != ("graph" in edges):
        has, lacks = paths[:2] if "graph" in nodes else paths[1::-1]
        raise DatasetError(f"{lacks}: needs a column graph, as {has.name} has one; leave it out of both for a single graph")
    num_nodes = _per_graph(paths[0], nodes)
    arrays = {"num_nodes": num_nodes, "num_edges": _per_graph(paths[1], edges, len(num_nodes))}
    arrays["edge_index"] = edges_of(np.stack([edges.pop("source"), edges.pop("target")]), paths[1])
    _check_ends(arrays["edge_index"], num_nodes, arrays["num_edges"], paths[1])
    names = [name for name in targets if name == "y" or name.startswith("y_")]
    if not names:
        raise DatasetError(f"{folder}: no column y (or y_1, y_2, ...) with the targets")
    y = [targets.pop(name) for name in names]
    if level == "graph" and len(y[0]) != len(num_nodes):
        raise DatasetError(f"{paths[2]}: has {len(y[0])} rows; nodes.csv names {len(num_nodes)} graphs, and each needs one row")
    arrays["y"] = y[0] if names == ["y"] else np.stack(y, axis=1)
    if "split" in targets:
        arrays["split"] = targets.pop("split")
    if level == "graph" and targets:
        raise DatasetError(f"{paths[2]}: column {next(iter(targets))} is neither y, y_1, y_2, ... nor split; take it out")
    arrays["x"] = _features(paths[0], nodes, remarks) if nodes else np.zeros((int(num_nodes.sum()), 1), np.int64)
    if edges:
        arrays["edge_attr"] = _features(paths[1], edges, remarks)
    return typed(arrays, folder)


def _check_ends(edge_index: np.ndarray, num_nodes: np.ndarray, num_edges: np.ndarray, path: Path) -> None:
    """Raises DatasetError for an edge to a node that its graph does not have."""
    graph = np.repeat(np.arange(len(num_nodes)), num_edges)
    wrong = np.flatnonzero((edge_index >= num_nodes[graph]).any(0))
    if wrong.size:
        row, last = wrong[0], num_nodes[graph[wrong[0]]] - 1
        raise DatasetError(
            f"{path}: line {row + 2} names a node that its graph does not have: {edge_index[:, row].max()}, where they are numbered from 0 to {last}"
        )


def _features(path: Path, columns: dict[str, np.ndarray], remarks: list[str]) -> np.ndarray:
    """All columns in one dtype: beside continuous columns, categories (whole numbers) become one-hot columns."""
    for name, column in columns.items():
        if (wrong := np.flatnonzero(~np.isfinite(column))).size:
            raise DatasetError(f"{path}: line {wrong[0] + 2}: column {name} is {column[wrong[0]]}; a feature is a finite number")
    whole = [name for name, column in columns.items() if column.dtype.kind != "f"]
    if not 0 < len(whole) < len(columns):
        return np.stack(list(columns.values()), axis=1)
    found = []
    for name, column in columns.items():
        if name not in whole:
            found.append(column[:, None])
            continue
        values = int(column.max(initial=0)) + 1
        if column.min(initial=0) < 0 or values > MOST_VALUES:
            raise DatasetError(
                f"{path}: column {name} holds whole numbers up to {values - 1} (smallest {column.min(initial=0)}) beside columns with a point; as a category it "
                f"needs 0 to {MOST_VALUES - 1}, as a quantity a point: write 12.0 for 12"
            )
        remarks.append(
            f"{path.name}: column {name} has whole numbers only and is taken as a category, {values} columns of 0 and 1; where it is a quantity, write 12.0 for 12"
        )
        found.append(np.eye(values)[column])
    return np.concatenate(found, axis=1)


def _columns(path: Path) -> dict[str, np.ndarray]:
    """Columns by name; whole numbers stay whole, a split column becomes codes. Raises DatasetError with file and line."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            names, *rows = [row for row in csv.reader(file) if row] or [[]]
    except (OSError, ValueError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot be read ({error})") from error
    if not names:
        raise DatasetError(f"{path}: is empty; its first line names the columns")
    names, columns = [name.strip() for name in names], {}
    if len(set(names)) < len(names):
        raise DatasetError(f"{path}: two columns are named {max(names, key=names.count)!r}")
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise DatasetError(f"{path}: line {number} has {len(row)} columns where {len(names)} are named")
    for index, name in enumerate(names):
        cells = [row[index].strip() for row in rows]
        if name == "split":
            unknown = sorted(set(cells) - set(CODES))
            if unknown:
                raise DatasetError(f"{path}: unknown split {unknown[0][:100]!r}; known: train, val, test, none")
            columns[name] = np.array([CODES[cell] for cell in cells], np.uint8)
            continue
        try:
            columns[name] = np.array([int(cell) for cell in cells], np.int64)
        except (ValueError, OverflowError):
            columns[name] = np.array([_number(cell, path, name, line) for line, cell in enumerate(cells, 2)])
    return columns


def _number(cell: str, path: Path, name: str, line: int) -> float:
    try:
        return float(cell)
    except ValueError:
        if not cell:
            remedy = "-1 for a label that is not known, nan for a number that is not" if name.startswith("y") else "a number"
            raise DatasetError(f"{path}: line {line}: column {name} is empty; write {remedy}") from None
        raise DatasetError(
            f"{path}: line {line}: column {name}: expected a number, found {cell[:100]!r}; number categories 0, 1, ..."
        ) from None


def _per_graph(path: Path, columns: dict[str, np.ndarray], graphs: int | None = None) -> np.ndarray:
    """Rows per graph; `graphs` None: the graphs are those that the rows name."""
    rows = len(next(iter(columns.values())))
    graph = columns.pop("graph", np.zeros(rows, np.int64))
    if graph.dtype.kind != "i" or (graph.size and (graph.min() < 0 or (graphs is not None and graph.max() >= graphs))):
        raise DatasetError(f"{path}: column graph must number the {'' if graphs is None else f'{graphs} '}graphs from 0")
    if (np.diff(graph) < 0).any():
        raise DatasetError(f"{path}: rows of a graph must stand together, in the order of the graphs")
    if graphs is None:
        named = np.unique(graph)
        gaps = np.flatnonzero(named != np.arange(len(named)))
        if gaps.size:
            raise DatasetError(f"{path}: graph {gaps[0]} has no nodes; number the graphs 0, 1, 2, ... without gaps")
        graphs = len(named)
    return np.bincount(graph, minlength=graphs)
