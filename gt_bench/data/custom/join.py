"""Join tables of nodes, edges and graphs: edges by identifiers of nodes, nodes and graphs by names of graphs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gt_bench.data.custom.arrays import MAX_ID, convert_arrays
from gt_bench.data.custom.columns import TableColumn, check_used, features_in, roles_of, splits_in
from gt_bench.data.custom.description import Description
from gt_bench.data.custom.splits import no_column
from gt_bench.data.custom.tables import Table, readable
from gt_bench.data.custom.targets import targets_in
from gt_bench.data.readers import located
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.redact import shown

SHOWN = {"dropped": "not used", "source": "source node", "target": "target node"}


def joined(
    tables: Mapping[str, Table],
    description: Description,
    task: str,
    level: str,
    by: str | None,
    columns: list[TableColumn],
    labels: list[str],
) -> dict[str, np.ndarray]:
    """Join tables to the arrays of graphs.

    Args:
        tables: nodes, edges and, for targets of graphs, graphs.
        description: what is declared.
        task: the task.
        level: "node", "graph", "edge" or "link".
        by: the column by which the data are split.
        columns: receives how each column is used.
        labels: receives the values of the classes, in order, unless they are 0, 1, ...

    Returns:
        Arguments of `PackedWriter.graphs`, and "by": values of the column by which the data are split.

    Raises:
        DatasetError: a table is invalid.
    """
    if level == "graph" and "graphs" not in tables:
        problem = f"{task} needs a table graphs with the targets"
        raise DatasetError(problem, file=tables["nodes"].path.parent, remedy="add it")
    used = {name: table for name, table in tables.items() if name != "graphs" or level == "graph"}
    roles = {name: roles_of(table, description, level) for name, table in used.items()}
    check_used(description, used, roles)
    nodes, edges, graphs = used["nodes"], used["edges"], used.get("graphs")
    targets = edges if level in ("edge", "link") else graphs or nodes
    for table in (nodes, targets):
        if not len(table):
            raise DatasetError("has no rows", file=table.path)
    ends = [_column(roles["edges"], role) for role in ("source", "target")]
    if None in ends:
        remedy = f"it has {', '.join(map(shown, edges.columns))}: --ends FROM,TO"
        raise DatasetError("needs the columns source and target", file=edges.path, remedy=remedy)
    names = [column for column, role in roles[targets.name].items() if role == "label"]
    if not names and level != "link":
        remedy = f"it has {', '.join(map(shown, targets.columns))}: --target COLUMN"
        raise DatasetError("no column label (or y) with the targets", file=targets.path, remedy=remedy)

    keys = [_column(roles[name], "graph") for name in used]
    graph, edge_graph, count = _graphs(nodes, edges, graphs, keys)
    identifier = _column(roles["nodes"], "id")
    order = np.argsort(graph, kind="stable")
    num_nodes = np.bincount(graph, minlength=count)
    local = np.empty(len(nodes), np.int64)  # number of each node in its graph
    local[order] = np.arange(len(nodes)) - np.repeat(num_nodes.cumsum() - num_nodes, num_nodes)
    if identifier is None:
        begins = np.flatnonzero(np.diff(graph, prepend=-1))
        if len(begins) > count:
            row = next(int(row) for n, row in enumerate(begins) if graph[row] in graph[begins[:n]])
            remedy = "sort them, or add a column id"
            raise DatasetError("rows of a graph must be adjacent", **nodes.at(row), remedy=remedy)
        if edge_graph is None and count > 1:
            raise DatasetError("needs a column graph, as nodes has one, or nodes a column id", file=edges.path)
        edge_graph = np.zeros(len(edges), np.int64) if edge_graph is None else edge_graph
        numbered = [_numbered(edges, str(name), num_nodes[edge_graph], description.first_id) for name in ends]
    else:
        rows = [_found(edges, str(name), edge_graph, nodes, identifier, graph) for name in ends]
        edge_graph = graph[rows[0]] if edge_graph is None else edge_graph
        if (wrong := np.flatnonzero(graph[rows[1]] != edge_graph)).size:
            raise DatasetError("joins nodes of two graphs", **edges.at(int(wrong[0])))
        numbered = [local[row] for row in rows]
    edge_order = np.argsort(edge_graph, kind="stable")
    arrays = {"num_nodes": num_nodes, "num_edges": np.bincount(edge_graph, minlength=count)}
    arrays["edge_index"] = np.stack(numbered)[:, edge_order].astype(np.int32)

    for name, table in used.items():
        columns += [
            TableColumn(name, column, SHOWN.get(role, role), *_plain(table, column, role))
            for column, role in roles[name].items()
            if role in ("id", "graph", "source", "target", "time", "group", "not used", "dropped")
        ]
    y, class_names = (
        (np.ones(len(edges), np.int64), []) if level == "link" else targets_in(targets, names, task, columns)
    )
    labels[:] = class_names
    arrays["y"] = y
    if splits := [column for column, role in roles[targets.name].items() if role == "split"]:
        arrays["split"] = splits_in(targets, splits, columns)
    if by is not None:
        arrays["by"] = _by(targets, by)
    if graphs is None:
        rows_of = edge_order if level in ("edge", "link") else order
        arrays |= {key: arrays[key][..., rows_of] for key in ("split", "by") if key in arrays}
        arrays["y"] = arrays["y"][rows_of]
    features = {
        name: [column for column, role in roles[name].items() if role in ("feature", "weight")]
        for name in ("nodes", "edges")
    }
    x = features_in(nodes, features["nodes"], description, columns, allow_missing=True)
    arrays["x"] = np.zeros((len(nodes), 1), np.int64) if x is None else x[order]
    edge_attr = features_in(edges, features["edges"], description, columns, allow_missing=False)
    if edge_attr is not None:
        arrays["edge_attr"] = edge_attr[edge_order]
    columns.sort(key=lambda column: (list(used).index(column.table), used[column.table].columns.index(column.name)))
    of_split = {key: arrays.pop(key) for key in ("by",) if key in arrays}
    with located(nodes.path.parent):
        return convert_arrays(arrays) | of_split


def _column(roles: Mapping[str, str], role: str) -> str | None:
    return next((column for column, has in roles.items() if has == role), None)


def _plain(table: Table, column: str, role: str) -> tuple[str, str, int]:
    """Return kind, values and missing rows of a column that is no feature."""
    if role == "dropped":
        return "", "", 0
    kind, series = table.typed(column)
    kind = {"integer": "whole number"}.get(kind, kind)
    return kind, f"{series.nunique():,} different", int(series.isna().sum())


def _by(targets: Table, name: str) -> np.ndarray:
    if name not in targets.columns:
        raise no_column(name, targets.columns, targets.path, "split")
    kind, series = targets.typed(name)
    if kind in ("integer", "number"):
        exact = kind == "integer" and not series.isna().any()
        return series.to_numpy(np.int64) if exact else series.to_numpy(np.float64, na_value=np.nan)
    return series.to_numpy("datetime64[us]") if kind == "date" else series.to_numpy(object)


def _keys(table: Table, column: str, as_text: bool) -> np.ndarray:
    """Return identifiers: whole numbers, or text."""
    kind, series = table.typed(column)
    missing = series.isna().to_numpy()
    if missing.any():
        raise DatasetError(
            "is missing (an empty cell, or a word such as NA: --missing WORD names others)",
            **table.at(int(missing.argmax()), column),
            remedy="each row needs an identifier",
        )
    if kind == "number":
        values = series.to_numpy()
        if (wrong := np.flatnonzero(values != np.floor(values))).size:
            value, remedy = float(values[wrong[0]]), "identifiers are whole or words"
            raise DatasetError(f"is {value}", **table.at(int(wrong[0]), column), value=value, remedy=remedy)
        series, kind = series.astype("Int64"), "integer"
    if kind == "integer":
        return np.array([str(key) for key in series], object) if as_text else series.to_numpy(np.int64)
    return np.array([readable(str(key)) for key in series], object)


def _positions(
    table: Table, column: str, of: Table, identifier: str, scopes: tuple[np.ndarray, np.ndarray] | None
) -> np.ndarray:
    """Return the row of `of` that each cell names, -1 for none. Scopes: graphs of the cells, and of the rows."""
    import pandas as pd

    kinds = {
        "word" if t.typed(c)[0] in ("word", "category", "date") else "number"
        for t, c in ((table, column), (of, identifier))
    }
    known, cells = (_keys(t, c, len(kinds) > 1) for t, c in ((of, identifier), (table, column)))
    index: Any = pd.Index(known) if scopes is None else pd.MultiIndex.from_arrays([scopes[1], known])
    if (again := index.duplicated()).any():
        row = int(again.argmax())
        raise DatasetError(
            f"duplicate identifier {shown(known[row])}",
            **of.at(row, identifier),
            value=known[row],
            remedy=f"identifiers must be unique{' within a graph' if scopes else ''}: correct it, or rename the column "
            "if it is no identifier",
        )
    return index.get_indexer(pd.Index(cells) if scopes is None else pd.MultiIndex.from_arrays([scopes[0], cells]))


def _found(
    edges: Table, column: str, edge_graph: np.ndarray | None, nodes: Table, identifier: str, graph: np.ndarray
) -> np.ndarray:
    """Return the row of nodes that each edge names."""
    scopes = None if edge_graph is None or not graph.any() else (edge_graph, graph)
    rows = _positions(edges, column, nodes, identifier, scopes)
    if (wrong := np.flatnonzero(rows < 0)).size:
        row, known = int(wrong[0]), nodes.frame[identifier]
        cell = edges.frame[column].iloc[row]
        raise DatasetError(
            f"{shown(cell)} is not in column {identifier} of nodes{' in its graph' if scopes else ''} (which has "
            f"{', '.join(map(shown, known[:3]))}, ...)"
            + (f", like {wrong.size - 1:,} others" if wrong.size > 1 else ""),
            **edges.at(row, column),
            value=cell,
            remedy=f"add it there, or --drop nodes.{identifier} if rows are numbered",
        )
    return rows


def _numbered(edges: Table, column: str, sizes: np.ndarray, first: int | None) -> np.ndarray:
    """Return one end of each edge, where nodes are numbered in the order of rows."""
    kind, series = edges.typed(column)
    if kind not in ("integer", "number"):
        raise DatasetError(
            f"{shown(series.iloc[0])} is not a number of a node",
            **edges.at(0, column),
            value=series.iloc[0],
            remedy="name the column of nodes with such names: --id COLUMN, or number nodes from 0 in their order",
        )
    values = series.to_numpy(dtype=np.float64, na_value=np.nan) - (first or 0)
    if (wrong := np.flatnonzero(~((values >= 0) & (values < MAX_ID) & (values == np.floor(values))))).size:
        row = int(wrong[0])
        remedy = f"edge ids must be whole numbers from {first or 0} to {MAX_ID - 1}"
        raise DatasetError(f"is {series.iloc[row]}", **edges.at(row, column), value=series.iloc[row], remedy=remedy)
    if (wrong := np.flatnonzero(values >= sizes)).size:
        row = int(wrong[0])
        hint = "if nodes are numbered from 1: --first-id 1; otherwise " if first is None and values.min() == 1 else ""
        raise DatasetError(
            f"names node {series.iloc[row]}, which does not exist in its graph of {sizes[row]} nodes",
            **edges.at(row, column),
            value=series.iloc[row],
            remedy=f"{hint}correct it, or add a column id with the names that edges use to nodes",
        )
    return values.astype(np.int64)


def _graphs(
    nodes: Table, edges: Table, graphs: Table | None, keys: Sequence[str | None]
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Return the graph of each node, of each edge (None if edges do not name it), and the number of graphs."""
    of_nodes, of_edges, key = keys[0], keys[1], keys[2] if graphs is not None else None
    if of_nodes is None:
        if of_edges is not None or (graphs is not None and len(graphs) != 1):
            problem = "needs a column graph: several tables name graphs"
            raise DatasetError(problem, file=nodes.path, remedy="--graph COLUMN")
        return np.zeros(len(nodes), np.int64), None, 1
    if graphs is not None and key is not None:
        graph = _positions(nodes, of_nodes, graphs, key, None)
        edge_graph = None if of_edges is None else _positions(edges, of_edges, graphs, key, None)
        count, known = len(graphs), f"column {key} of {graphs.path.name}"
    else:
        kind, _ = nodes.typed(of_nodes)
        names = _keys(nodes, of_nodes, False)
        distinct = np.unique(names)
        count, known = len(distinct), "nodes"
        if graphs is not None:
            count = len(graphs)
            if kind == "word" or not np.array_equal(distinct, np.arange(count)):
                raise DatasetError(
                    f"must number the {count} rows of graphs from 0 without gaps (it has {len(distinct)} different, "
                    f"{shown(distinct[0])} to {shown(distinct[-1])})",
                    **nodes.at(column=of_nodes),
                    remedy="number them so, or add a column id with the same names to graphs",
                )
        graph = np.searchsorted(distinct, names)
        edge_graph = None
        if of_edges is not None:
            cells = _keys(edges, of_edges, kind == "word")
            place = np.searchsorted(distinct, cells).clip(max=len(distinct) - 1)
            edge_graph = np.where(distinct[place] == cells, place, -1)
    for table, column, positions in ((nodes, of_nodes, graph), (edges, of_edges, edge_graph)):
        if positions is not None and (wrong := np.flatnonzero(positions < 0)).size:
            row = int(wrong[0])
            cell, remedy = table.frame[column].iloc[row], "add it there, or correct it"
            problem = f"graph {shown(cell)} is not in {known}"
            raise DatasetError(problem, **table.at(row, column), value=cell, remedy=remedy)
    if (empty := np.flatnonzero(np.bincount(graph, minlength=count) == 0)).size and graphs is not None:
        problem = f"the graph has no nodes in {nodes.path.name}"
        raise DatasetError(problem, **graphs.at(int(empty[0])), remedy="remove it")
    return graph, edge_graph, count
