"""User-supplied tables in memory or as Parquet: DataFrames of pandas or polars, tables of pyarrow, networkx graphs.

Every cell becomes the text that it has in a CSV file, so that all formats follow the same rules. Nothing is imported
that the user's data have not imported already.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gt_bench.data.custom.identifiers import GRAPH_NAMES, ID_NAMES, names_rows, normalized_name
from gt_bench.data.custom.table import Table, detect_decimal_comma, is_target, normalized, shown
from gt_bench.data.readers import dataset_errors
from gt_bench.utils.errors import DatasetError

if TYPE_CHECKING:
    import networkx as nx

TABLES = ("nodes", "edges", "graphs")
FORM = 'a DataFrame per table: {"nodes": ..., "edges": ...}, for targets of graphs also "graphs"'


def tables_of(data: Any, where: str) -> dict[str, Table] | None:
    """Convert user-supplied data that are tables.

    Args:
        data: a mapping of DataFrames, a networkx graph, a list of networkx graphs, or anything else.
        where: name of the data for error messages.

    Returns:
        Tables by name: nodes, edges and, for targets of graphs, graphs. None if `data` are something else.

    Raises:
        DatasetError: a table is missing or unknown, or a cell is not a single value.
    """
    if _is_frame(data):
        raise DatasetError(
            f"{where}: one {type(data).__name__} is not a graph, which has nodes and edges; expected {FORM}"
        )
    if isinstance(data, Mapping) and not hasattr(data, "edge_index") and not hasattr(data, "stores"):
        unknown = [key for key in data if key not in TABLES]
        if unknown or not {"nodes", "edges"} <= set(data):
            keys = ", ".join(map(repr, data)) or "none"
            raise DatasetError(
                f"{where}: a {type(data).__name__} with the keys {keys}; expected a Data of torch_geometric, or {FORM}"
            )
        for name, frame in data.items():
            if not _is_frame(frame):
                raise DatasetError(f"{where}: {name} is a {type(frame).__name__}; expected {FORM}")
        return {name: _table(_columns(frame, Path(where, name)), Path(where, name)) for name, frame in data.items()}
    several = isinstance(data, list | tuple) and bool(data)
    if not all(map(_is_networkx, data if several else [data])):
        return None
    columns = _NetworkxColumns(where)
    for number, graph in enumerate(data if several else [data]):
        columns.add(graph, number if several else None)
    return columns.tables(several)


def read_parquet(path: Path) -> Table:
    """Read a Parquet file.

    Args:
        path: the file.

    Returns:
        Its table; lines are rows, counted from 0.

    Raises:
        DatasetError: pyarrow is not installed, or the file is invalid.
    """
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise DatasetError(
            f"{path}: reading Parquet needs the package pyarrow, which is not installed; run: pip install pyarrow, or "
            "save the table as CSV"
        ) from error
    with dataset_errors(path, "not a readable Parquet file"):
        return _table(_arrow_columns(parquet.read_table(path), path), path)


def to_csv(table: Table) -> str:
    """Return a table as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(zip(*table.columns.values(), strict=True))
    return text.getvalue()


def _is_frame(data: Any) -> bool:
    module = type(data).__module__.partition(".")[0]
    # the attribute of the class: that of a LazyFrame resolves its columns
    return module in ("pandas", "polars", "pyarrow") and any(
        hasattr(type(data), name) for name in ("columns", "column_names")
    )


def _columns(frame: Any, path: Path) -> dict[str, list[Any]]:
    """Return the columns of a DataFrame as Python values. Raise DatasetError for an index that would be lost."""
    if hasattr(frame, "column_names"):
        return _arrow_columns(frame, path)
    if hasattr(frame, "collect"):  # a LazyFrame of polars
        frame = frame.collect()
    names = list(frame.columns)
    if getattr(frame.columns, "nlevels", 1) > 1:
        raise DatasetError(
            f"{path}: columns are a MultiIndex ({names[0]!r}, ...); give each column one name: "
            "frame.columns = ['_'.join(column) for column in frame.columns]"
        )
    if len(set(names)) < len(names):
        raise DatasetError(f"{path}: duplicate column {max(names, key=names.count)!r}; rename one")
    if hasattr(frame, "index"):
        _check_index(frame.index, list(map(str, names)), path)
    return {str(name): frame[name].to_list() for name in names}


def _arrow_columns(table: Any, path: Path) -> dict[str, list[Any]]:
    """Return the columns of a table of pyarrow. Raise DatasetError for an index of pandas that it contains."""
    names = table.column_names
    if len(set(names)) < len(names):
        raise DatasetError(f"{path}: duplicate column {max(names, key=names.count)!r}; rename one")
    if index := next((name for name in names if name.startswith("__index_level_")), None):
        raise DatasetError(
            f"{path}: column {index} is the index of a DataFrame; write to_parquet(..., index=False), or reset_index() "
            "and name it"
        )
    pandas = json.loads((table.schema.metadata or {}).get(b"pandas", b"{}"))
    for index in pandas.get("index_columns", []):
        if isinstance(index, dict):  # a range of numbers, which is no column
            _check_labels(range(index["start"], index["stop"], index["step"]), names, path.with_suffix(""))
    return {name: table.column(number).to_pylist() for number, name in enumerate(names)}


def _check_index(index: Any, names: Sequence[str], path: Path) -> None:
    """Raise DatasetError if the index of a pandas frame has content. Rows are counted from 0, whatever their labels."""
    if named := [str(name) for name in index.names if name is not None] or ["MultiIndex"] * (index.nlevels > 1):
        raise DatasetError(
            f"{path}: the index ({', '.join(named)}) is not read; make it columns with reset_index(), or remove it "
            "with reset_index(drop=True)"
        )
    _check_labels(index, names, path)


def _check_labels(labels: Iterable[Any], names: Sequence[str], path: Path) -> None:
    """Raise DatasetError if rows of nodes or graphs have other labels than 0, 1, ... and no column names the rows."""
    known = (*ID_NAMES, *GRAPH_NAMES) if path.name == "graphs" else ID_NAMES
    if path.name == "edges" or any(normalized_name(name) in known or names_rows(name) for name in names):
        return
    wrong = next(((row, label) for row, label in enumerate(labels) if not isinstance(label, int) or label != row), None)
    if wrong is not None:
        raise DatasetError(
            f"{path}: row {wrong[0]} has the label {shown(str(wrong[1]))} in the index, and without a column id edges "
            "name nodes by number of row: write reset_index(names='id') if edges name the labels, or "
            "reset_index(drop=True)"
        )


def _table(columns: Mapping[str, Sequence[Any]], path: Path) -> Table:
    """Return a table of text. Names are as in CSV files: reserved ones in any case."""
    names = [normalized(str(name).strip()) for name in columns]
    if not names:
        raise DatasetError(f"{path}: has no columns")
    for name in names:
        if not name or names.count(name) > 1:
            raise DatasetError(
                f"{path}: {'a column has no name' if not name else f'duplicate column {name!r}'}; rename it"
            )
    cells = {
        name: [_text(value, path, name, row) for row, value in enumerate(values)]
        for name, values in zip(names, columns.values(), strict=True)
    }
    count = len(next(iter(cells.values())))
    return Table(path, cells, list(range(count)), detect_decimal_comma(cells.values()), "row")


def _text(value: Any, path: Path, name: str, row: int) -> str:
    """Return the text of a value in a CSV file. Missing values are empty, of targets `nan`."""
    kind = type(value).__name__
    if value is None or kind in ("NAType", "NaTType") or (isinstance(value, float) and math.isnan(value)):
        return "nan" if is_target(name) else ""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a number of numpy or torch
        return _text(value.item(), path, name, row)
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return repr(float(value)) if isinstance(value, float) else str(int(value))
    if isinstance(value, date):  # also a datetime, and a Timestamp of pandas
        return value.isoformat()
    if isinstance(value, str):
        return value.strip()
    if kind == "Decimal":
        return repr(float(value))
    raise DatasetError(
        f"{path}: row {row}: column {name} is a {kind} ({shown(repr(value))}); write one number or word per cell, and "
        "a vector as one column per entry"
    )


# networkx


def _is_networkx(data: Any) -> bool:
    return hasattr(data, "adj") and hasattr(data, "nodes") and hasattr(data, "is_directed") and hasattr(data, "edges")


class _NetworkxColumns:
    """Columns of one or more networkx graphs: attributes of nodes and edges, and of several graphs `Graph.graph`."""

    def __init__(self, where: str):
        self.where = where
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}

    def add(self, graph: nx.Graph, number: int | None) -> None:
        """Add a graph. An undirected edge is two rows."""
        numbered = {} if number is None else {"graph": number}
        place = self.where if number is None else f"{self.where}: graph {number}"
        if not len(graph):
            raise DatasetError(f"{place}: has no nodes; remove it")
        for node, attributes in graph.nodes(data=True):
            self._check(attributes, ("id", "graph"), f"{place}: node {node!r}")
            self.rows["nodes"].append({**numbered, "id": str(node), **_flat(attributes)})
        for source, target, attributes in graph.edges(data=True):
            self._check(attributes, ("source", "target", "graph"), f"{place}: edge {source!r} - {target!r}")
            ends = (
                [(source, target)] if graph.is_directed() or source == target else [(source, target), (target, source)]
            )
            for one, other in ends:
                self.rows["edges"].append({**numbered, "source": str(one), "target": str(other), **_flat(attributes)})
        if number is not None:
            self.rows["graphs"].append({"graph": number, **_flat(graph.graph)})

    def _check(self, attributes: Mapping[Any, Any], reserved: Iterable[str], place: str) -> None:
        if taken := [name for name in reserved if name in attributes]:
            raise DatasetError(f"{place}: the attribute {taken[0]!r} has a reserved name; rename it")

    def tables(self, several: bool) -> dict[str, Table]:
        """Return the tables. An attribute that a node or edge does not have is missing."""
        with_targets = {name for name in TABLES if any(key == "y" for row in self.rows[name] for key in row)}
        if several and with_targets == {"nodes"}:  # targets of nodes
            self.rows["graphs"] = []
        found = {}
        for name, rows in self.rows.items():
            first = {"edges": {"source": None, "target": None} | ({"graph": None} if several else {})}.get(name, {})
            names = list(dict.fromkeys([*first, *(key for row in rows for key in row)]))
            if rows or name == "edges":
                found[name] = _table({key: [row.get(key) for row in rows] for key in names}, Path(self.where, name))
        return found


def _flat(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    """Return attributes with a column per entry of a vector: x = [1, 2] is x_0, x_1."""
    found: dict[str, Any] = {}
    for name, value in attributes.items():
        if hasattr(value, "tolist") and getattr(value, "ndim", 0) == 1:
            value = value.tolist()
        if isinstance(value, list | tuple):
            found |= {f"{name}_{index}": entry for index, entry in enumerate(value)}
        else:
            found[str(name)] = value
    return found
