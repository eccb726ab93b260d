"""Read user-supplied tables: nodes.csv, edges.csv and, for targets of graphs, graphs.csv; or Parquet, or DataFrames."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.custom.arrays import convert_arrays
from gt_bench.data.custom.columns import classes_in, features_in, is_split, splits_in, targets_in, words_in
from gt_bench.data.custom.frames import read_parquet
from gt_bench.data.custom.identifiers import (
    EDGE_NAMES,
    GRAPH_NAMES,
    ID_NAMES,
    find_graphs,
    graphs_of_sources,
    identifies,
    local_ids,
    node_ids,
    normalized_name,
)
from gt_bench.data.custom.reading import Reading
from gt_bench.data.custom.splits import named_column
from gt_bench.data.custom.table import Table, is_target, read_columns, shown
from gt_bench.utils.errors import DatasetError


def from_csv(folder: Path, reading: Reading) -> dict[str, np.ndarray]:
    """Read a folder of CSV files. Nodes and graphs have identifiers, or are numbered in the order of rows.

    - nodes.csv: [graph,] [id,] features..., at node level y and optionally split
    - edges.csv: [graph,] source, target, features..., at edge level y, at edge and link level optionally split
    - graphs.csv (graph level): [graph,] y... and optionally split, one row per graph

    Args:
        folder: the folder.
        reading: how to read it.

    Returns:
        Arguments of `PackedWriter.graphs`, and "by": the cells of the column by which the data are split.

    Raises:
        DatasetError: a file is missing or invalid. The message names file, line and column.
    """
    names = ("nodes", "edges", "graphs")[: 3 if reading.level == "graph" else 2]
    return from_tables({name: read_table(folder, name, reading.remarks) for name in names}, folder, reading)


def read_table(folder: Path, name: str, remarks: list[str]) -> Table:
    """Read one table of a folder: NAME.csv or NAME.parquet.

    Args:
        folder: the folder.
        name: name of the table.
        remarks: remarks for the user are added to this list.

    Returns:
        The table.

    Raises:
        DatasetError: there is no such file, there are both, or the file is invalid.
    """
    text, binary = folder / f"{name}.csv", folder / f"{name}.parquet"
    if text.exists() and binary.exists():
        raise DatasetError(f"{folder}: has {text.name} and {binary.name}; remove one")
    if not (text.exists() or binary.exists()):
        raise DatasetError(
            f"{text}: no such file; a folder of CSV files needs nodes.csv, edges.csv and, for targets of graphs, "
            "graphs.csv (or these as .parquet)"
        )
    return read_columns(text, remarks) if text.exists() else read_parquet(binary)


def check_level(tables: Mapping[str, Table], level: str, where: str) -> None:
    """Raise DatasetError if targets of graphs are needed and there is no table of graphs."""
    if level == "graph" and "graphs" not in tables:
        raise DatasetError(
            f"{where}: has no table graphs; targets of graphs are its column y: add it, or use a task of nodes"
        )


def from_tables(tables: Mapping[str, Table], where: str | Path, reading: Reading) -> dict[str, np.ndarray]:
    """Convert tables, whose columns are removed. See `from_csv`.

    Args:
        tables: nodes, edges and, at graph level, graphs.
        where: name of the data for error messages.
        reading: how to read them.

    Returns:
        As `from_csv`.

    Raises:
        DatasetError: a table is invalid.
    """
    level, remarks, of_edges = reading.level, reading.remarks, reading.of_edges
    nodes, edges, graphs = tables["nodes"], tables["edges"], tables["graphs"] if level == "graph" else None
    targets = edges if of_edges else graphs or nodes
    for table in (nodes, targets):
        if not len(table):
            raise DatasetError(f"{table.path}: has no rows")
    if not {"source", "target"} <= set(edges.columns):
        columns = ", ".join(map(shown, edges.columns))
        raise DatasetError(f"{edges.path}: needs the columns source and target; it has {columns}: rename them")
    by = None if reading.column is None else _split_column(targets, reading.column, remarks)
    if of_edges:
        _remove_other_targets(nodes, edges, level, remarks)
    _check_columns(nodes, edges, graphs, of_edges)
    names = [name for name in targets.columns if is_target(name)]
    if not names and level != "link":
        columns = ", ".join(map(shown, targets.columns))
        raise DatasetError(
            f"{targets.path}: no column y (or y_1, y_2, ...) with the targets; it has {columns}: rename one"
        )

    graph, edge_graph, count = find_graphs(nodes, edges, graphs, remarks)
    ids = node_ids(nodes, graph, remarks)
    if edge_graph is None and count > 1:
        edge_graph = graphs_of_sources(nodes, edges, graph, ids)
    order = np.argsort(graph, kind="stable")
    num_nodes = np.bincount(graph, minlength=count)
    local = np.empty(len(nodes), np.int64)  # number of each node in its graph
    local[order] = np.arange(len(nodes)) - np.repeat(num_nodes.cumsum() - num_nodes, num_nodes)
    edge_graph = np.zeros(len(edges), np.int64) if edge_graph is None else edge_graph
    ends = [local_ids(edges, name, edge_graph, ids, num_nodes, local) for name in ("source", "target")]
    edge_order = np.argsort(edge_graph, kind="stable")
    arrays = {"num_nodes": num_nodes, "num_edges": np.bincount(edge_graph, minlength=count)}
    arrays["edge_index"] = np.stack(ends)[:, edge_order].astype(np.int32)

    words = words_in(targets, names[0]) if names == ["y"] else []
    if level == "link":
        arrays["y"] = np.ones(len(edges), np.int64)
    elif words:
        arrays["y"] = classes_in(targets, words, remarks)
        reading.labels[:] = words
    else:
        arrays["y"] = targets_in(targets, names, remarks)
    if splits := [name for name in targets.columns if is_split(name)]:
        arrays["split"] = splits_in(targets, splits)
    if graphs is None:
        rows = edge_order if of_edges else order
        arrays |= {"y": arrays["y"][rows]} | ({"split": arrays["split"][..., rows]} if splits else {})
        by = None if by is None else by[rows]
    elif graphs.columns:
        raise DatasetError(
            f"{graphs.path}: column {next(iter(graphs.columns))} is neither y, y_1, y_2, ... nor split; remove it"
        )
    elif len(arrays["y"]) != count:
        found = f"has {count} graphs" if count > 1 else "is one graph without a column graph"
        raise DatasetError(f"{graphs.path}: has {len(arrays['y'])} rows; nodes.csv {found}, and each needs one row")
    no_features = np.zeros((len(nodes), 1), np.int64)
    arrays["x"] = features_in(nodes, remarks, allow_missing=True)[order] if nodes.columns else no_features
    if edges.columns:
        arrays["edge_attr"] = features_in(edges, remarks)[edge_order]
    return convert_arrays(arrays, where) | ({} if by is None else {"by": by})


def _split_column(targets: Table, name: str, remarks: list[str]) -> np.ndarray:
    """Remove the column by which the data are split, unless it identifies graphs or rows. Returns its cells [rows]."""
    if name not in targets.columns or is_target(name) or is_split(name) or name in ("source", "target"):
        known = [one for one in targets.columns if not (is_target(one) or is_split(one) or one in ("source", "target"))]
        raise named_column(name, known, str(targets.path))
    cells = np.array(targets.columns[name])
    if normalized_name(name) not in GRAPH_NAMES and not identifies(name, targets.columns[name]):
        del targets.columns[name]
        remarks.append(f"{targets.path.name}: column {name} splits the data and is not a feature")
    return cells


def _remove_other_targets(nodes: Table, edges: Table, level: str, remarks: list[str]) -> None:
    """Remove targets and splits of nodes, and for link prediction targets of edges; the task reads none of them."""
    for table in (nodes, edges) if level == "link" else (nodes,):
        for name in list(table.columns):
            if is_target(name) or (table is nodes and is_split(name)):
                del table.columns[name]
                targets = "edges" if level == "link" else "the column y of edges.csv"
                remarks.append(
                    f"{table.path.name}: column {name} is not read: targets are {targets}; rename it if it is a feature"
                )


def _check_columns(nodes: Table, edges: Table, graphs: Table | None, of_edges: bool) -> None:
    """Raise DatasetError for targets, splits and identifiers in the wrong table, where they would become features."""
    for table in () if of_edges else (edges, *([nodes] if graphs else [])):
        for name in table.columns:
            if is_target(name) or is_split(name):
                what, column = ("splits", name) if is_split(name) else ("targets", "y")
                raise DatasetError(
                    f"{table.path}: column {name}: {what} are read from {(graphs or nodes).path.name} (column "
                    f"{column}); remove it here, or rename it if it is a feature"
                )
    for name in edges.columns:
        if normalized_name(name) in (*ID_NAMES, *EDGE_NAMES):
            raise DatasetError(
                f"{edges.path}: column {name} seems to identify edges; remove it, or rename it if it is a feature"
            )
