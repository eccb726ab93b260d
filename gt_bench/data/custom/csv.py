"""Read user-supplied tables: nodes.csv, edges.csv and, for targets of graphs, graphs.csv; or Parquet, or DataFrames."""

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from gt_bench.data.custom.arrays import MAX_ID, convert_arrays
from gt_bench.data.custom.frames import read_parquet
from gt_bench.data.custom.remarks import MAX_VALUES, has_unique_whole_numbers, identifier_remark, too_many_values
from gt_bench.data.custom.splits import named_column
from gt_bench.data.custom.table import MISSING, Table, read_columns, shown
from gt_bench.utils.errors import DatasetError

MOST_LISTED = 10  # classes that a remark lists
CODES = {"": 0, "none": 0, "train": 1, "val": 2, "test": 3}
# names of identifier columns, in lower case and without punctuation
GRAPH_NAMES = ("graph", "graphid", "graphidx", "graphindex", "graphname", "graphnumber")
ID_NAMES = (
    *("id", "ids", "identifier", "node", "nodeid", "nodeidx", "nodeindex", "nodename", "nodenumber"),
    *("vertex", "vertexid", "index", "idx", "name", "key", "uid", "uuid", "guid"),
)
EDGE_NAMES = ("edge", "edgeid", "edgeidx", "edgeindex", "edgename", "edgenumber", "eid")


class Identifiers:
    """Finds rows by identifier. Identifiers are unique within a graph.

    Args:
        table: the table.
        column: name of the column of identifiers.
        cells: the identifiers.
        graph: number of the graph of each row.

    Raises:
        DatasetError: an identifier is empty or duplicate.
    """

    def __init__(self, table: Table, column: str, cells: Sequence[str], graph: Sequence[int]):
        self.table, self.column, self.cells = table, column, cells
        self.exact: dict[tuple[int, str], int] = {}
        for row, key in enumerate(zip(graph, cells, strict=True)):
            if key[1].lower() in ("", "nan"):
                raise DatasetError(
                    f"{table.at(row, column)} is empty; give each row an identifier, or remove the column"
                )
            if key in self.exact:
                first = f"{table.unit} {table.lines[self.exact[key]]}"
                raise DatasetError(
                    f"{table.at(row, column)}: duplicate identifier {shown(key[1])}, first in {first}; "
                    f"identifiers must be unique{' within a graph' if len(set(graph)) > 1 else ''}: correct it, or "
                    "rename the column if it is a feature"
                )
            self.exact[key] = row
        # 7 and 7.0 are the same identifier, unless two rows would become equal (07 and 7)
        self.canonical = {(graph, _canonical(cell)): row for (graph, cell), row in self.exact.items()}
        if len(self.canonical) < len(self.exact):
            self.canonical = {}

    def rows(self, cells: Iterable[str], graph: Iterable[int]) -> np.ndarray:
        """Find rows.

        Args:
            cells: identifiers.
            graph: number of the graph of each identifier.

        Returns:
            Numbers of rows; -1 for unknown identifiers.
        """

        def find(graph: int, cell: str) -> int:
            row = self.exact.get((graph, cell))
            return self.canonical.get((graph, _canonical(cell)), -1) if row is None else row

        return np.array([find(*key) for key in zip(graph, cells, strict=True)], np.int64)

    def unknown_error(self, table: Table, row: int, column: str, cell: str, where: str = "") -> DatasetError:
        """Make the error for an unknown identifier. `where` restricts the search, for example " in its graph"."""
        known = ", ".join(map(shown, self.cells[:3])) + (", ..." if len(self.cells) > 3 else "")
        return DatasetError(
            f"{table.at(row, column)}: {shown(cell)} is not in column {self.column} of {self.table.path.name}{where} "
            f"(which has {known}); add it there, or remove the column {self.column} if rows are numbered from 0"
        )


def from_csv(
    folder: Path, level: str, remarks: list[str], labels: list[str] | None = None, split_by: str | None = None
) -> dict[str, np.ndarray]:
    """Read a folder of CSV files. Nodes and graphs have identifiers, or are numbered in the order of rows.

    - nodes.csv: [graph,] [id,] features..., at node level y and optionally split
    - edges.csv: [graph,] source, target, features..., at edge level y, at edge and link level optionally split
    - graphs.csv (graph level): [graph,] y... and optionally split, one row per graph

    Args:
        folder: the folder.
        level: "node", "graph", "edge" or "link".
        remarks: remarks for the user are added to this list.
        labels: if the targets are words, this list receives them: the word of class 0, of class 1, and so on.
        split_by: column of the table with the targets by which the data are split.

    Returns:
        Arguments of `PackedWriter.graphs`, and "by": the cells of the column `split_by`.

    Raises:
        DatasetError: a file is missing or invalid. The message names file, line and column.
    """
    tables = {
        name: read_table(folder, name, remarks) for name in ("nodes", "edges", "graphs")[: 3 if level == "graph" else 2]
    }
    return from_tables(tables, folder, level, remarks, labels, split_by)


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


def from_tables(
    tables: Mapping[str, Table],
    where: str | Path,
    level: str,
    remarks: list[str],
    labels: list[str] | None = None,
    split_by: str | None = None,
) -> dict[str, np.ndarray]:
    """Convert tables, whose columns are removed. See `from_csv`.

    Args:
        tables: nodes, edges and, at graph level, graphs.
        where: name of the data for error messages.
        level: as for `from_csv`.
        remarks: as for `from_csv`.
        labels: as for `from_csv`.
        split_by: as for `from_csv`.

    Returns:
        As `from_csv`.

    Raises:
        DatasetError: a table is invalid.
    """
    nodes, edges, graphs = tables["nodes"], tables["edges"], tables["graphs"] if level == "graph" else None
    of_edges = level in ("edge", "link")
    targets = edges if of_edges else graphs or nodes
    for table in (nodes, targets):
        if not len(table):
            raise DatasetError(f"{table.path}: has no rows")
    if not {"source", "target"} <= set(edges.columns):
        columns = ", ".join(map(shown, edges.columns))
        raise DatasetError(f"{edges.path}: needs the columns source and target; it has {columns}: rename them")
    by = None if split_by is None else _split_column(targets, split_by, remarks)
    if of_edges:
        _remove_other_targets(nodes, edges, level, remarks)
    _check_columns(nodes, edges, graphs, of_edges)
    names = [name for name in targets.columns if name == "y" or name.startswith("y_")]
    if not names and level != "link":
        columns = ", ".join(map(shown, targets.columns))
        raise DatasetError(f"{targets.path}: no column y (or y_1, y_2, ...) with the targets; it has {columns}")

    graph, edge_graph, count = _graphs(nodes, edges, graphs, remarks)
    ids = _node_ids(nodes, graph, remarks)
    if edge_graph is None and count > 1:
        edge_graph = _graphs_of_sources(nodes, edges, graph, ids)
    order = np.argsort(graph, kind="stable")
    num_nodes = np.bincount(graph, minlength=count)
    local = np.empty(len(nodes), np.int64)  # number of each node in its graph
    local[order] = np.arange(len(nodes)) - np.repeat(num_nodes.cumsum() - num_nodes, num_nodes)
    edge_graph = np.zeros(len(edges), np.int64) if edge_graph is None else edge_graph
    ends = [_local_ids(edges, name, edge_graph, ids, num_nodes, local) for name in ("source", "target")]
    edge_order = np.argsort(edge_graph, kind="stable")
    arrays = {"num_nodes": num_nodes, "num_edges": np.bincount(edge_graph, minlength=count)}
    arrays["edge_index"] = np.stack(ends)[:, edge_order].astype(np.int32)

    words = _words(targets, names[0]) if names == ["y"] else []
    if level == "link":
        arrays["y"] = np.ones(len(edges), np.int64)
    elif words:
        arrays["y"] = _classes(targets, words, remarks)
        if labels is not None:
            labels[:] = words
    else:
        arrays["y"] = _targets(targets, names)
    if splits := [name for name in targets.columns if _is_split(name)]:
        arrays["split"] = _splits(targets, splits)
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
    arrays["x"] = _features(nodes, remarks, allow_missing=True)[order] if nodes.columns else no_features
    if edges.columns:
        arrays["edge_attr"] = _features(edges, remarks)[edge_order]
    return convert_arrays(arrays, where) | ({} if by is None else {"by": by})


def _split_column(targets: Table, name: str, remarks: list[str]) -> np.ndarray:
    """Remove the column by which the data are split, unless it names the graphs. Returns its cells [rows]."""
    if name not in targets.columns:
        raise named_column(name, list(targets.columns), str(targets.path))
    cells = np.array(targets.columns[name])
    if _normalized(name) not in GRAPH_NAMES:
        del targets.columns[name]
        remarks.append(f"{targets.path.name}: column {name} splits the data and is not a feature")
    return cells


def _remove_other_targets(nodes: Table, edges: Table, level: str, remarks: list[str]) -> None:
    """Remove targets and splits of nodes, and for link prediction targets of edges; the task reads none of them."""
    for table in (nodes, edges) if level == "link" else (nodes,):
        for name in list(table.columns):
            if name == "y" or name.startswith("y_") or (table is nodes and _is_split(name)):
                del table.columns[name]
                targets = "edges" if level == "link" else "the column y of edges.csv"
                remarks.append(
                    f"{table.path.name}: column {name} is not read: targets are {targets}; rename it if it is a feature"
                )


def _check_columns(nodes: Table, edges: Table, graphs: Table | None, of_edges: bool) -> None:
    """Raise DatasetError for targets, splits and identifiers in the wrong table, where they would become features."""
    for table in () if of_edges else (edges, *([nodes] if graphs else [])):
        for name in table.columns:
            if name == "y" or name.startswith("y_") or _is_split(name):
                what, column = ("splits", name) if _is_split(name) else ("targets", "y")
                raise DatasetError(
                    f"{table.path}: column {name}: {what} are read from {(graphs or nodes).path.name} (column "
                    f"{column}); remove it here, or rename it if it is a feature"
                )
    for name in edges.columns:
        if _normalized(name) in (*ID_NAMES, *EDGE_NAMES):
            raise DatasetError(
                f"{edges.path}: column {name} seems to identify edges; remove it, or rename it if it is a feature"
            )


def _graphs(
    nodes: Table, edges: Table, graphs: Table | None, remarks: list[str]
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Find the graphs.

    Returns:
        The graph of each node, the graph of each edge (None if edges.csv has no such column), and the number of graphs.
    """
    key = _graph_key(graphs) if graphs else None
    names = [_graph_column(table, key) for table in (nodes, edges)]
    if names[0] is None and names[1] is not None:
        raise _graph_column_error(nodes, edges)
    if names[0] is None:
        if both := next((name for name in nodes.columns if _is_id(name) and name in edges.columns), None):
            raise DatasetError(
                f"{nodes.path}: column {both} is in {edges.path.name} too; name it graph in both if it is the graph of "
                "a row, or rename it if it is a feature"
            )
        if graphs and key:
            del graphs.columns[key]
        return np.zeros(len(nodes), np.int64), None, 1
    cells = nodes.columns.pop(names[0])
    if graphs and key:
        known = Identifiers(graphs, key, graphs.columns.pop(key), [0] * len(graphs))
        remarks.append(f"{nodes.path.name}: column {names[0]} is joined with column {key} of {graphs.path.name}")
    else:
        known = _graphs_of_nodes(nodes, names[0], cells, graphs)
    graph = _graph_numbers(nodes, names[0], cells, known)
    edge_graph = _graph_numbers(edges, names[1], edges.columns.pop(names[1]), known) if names[1] else None
    empty = np.flatnonzero(np.bincount(graph, minlength=len(known.cells)) == 0)
    if graphs and empty.size:
        raise DatasetError(
            f"{graphs.at(int(empty[0]), key)}: graph {shown(known.cells[empty[0]])} has no nodes in {nodes.path.name}; "
            "remove it"
        )
    return graph, edge_graph, len(known.cells)


def _graph_column_error(table: Table, other: Table) -> DatasetError:
    return DatasetError(
        f"{table.path}: needs a column graph, as {other.path.name} has one; remove it from both for a single graph"
    )


def _graph_numbers(table: Table, name: str, cells: list[str], known: Identifiers) -> np.ndarray:
    """Return the number of the graph of each row."""
    rows = known.rows(cells, [0] * len(cells))
    if not (wrong := np.flatnonzero(rows < 0)).size:
        return rows
    row = int(wrong[0])
    if known.table.path.stem == "graphs":
        raise known.unknown_error(table, row, name, cells[row])
    raise DatasetError(
        f"{table.at(row, name)}: no graph {shown(cells[row])} in nodes.csv; column graph must number the "
        f"{len(known.cells)} graphs from 0"
    )


def _graphs_of_nodes(nodes: Table, name: str, cells: list[str], graphs: Table | None) -> Identifiers:
    """Find graphs that only nodes.csv identifies: by numbers from 0, or at node level also by names."""
    distinct = dict.fromkeys(map(_canonical, cells))
    names = [cell for cell in distinct if not (cell.isascii() and cell.isdigit())]
    if names:
        row = next(row for row, cell in enumerate(cells) if _canonical(cell) == names[0])
        if graphs is not None or re.fullmatch(r"[+-]?[\d.,]+", cells[row]) or not cells[row]:
            raise DatasetError(
                f"{nodes.at(row, name)}: {shown(cells[row])}: column graph must number the graphs from 0; or add a "
                f"column {name} with the same names to graphs.csv"
            )
        return Identifiers(nodes, name, list(dict.fromkeys(cells)), [0] * len(set(cells)))
    numbers = sorted(map(int, distinct))
    if numbers != list(range(len(numbers))):
        gap = next(number for number, found in enumerate([*numbers, -1]) if number != found)
        raise DatasetError(
            f"{nodes.path}: graph {gap} has no nodes; number the graphs 0, 1, 2, ... without gaps, or add a column "
            f"{name} with their numbers to graphs.csv"
        )
    return Identifiers(nodes, name, [str(number) for number in numbers], [0] * len(numbers))


def _graph_key(graphs: Table) -> str | None:
    """Find the column of graphs.csv that identifies its rows."""
    names = [name for name in graphs.columns if _normalized(name) in (*GRAPH_NAMES, *ID_NAMES) or _is_id(name)]
    if len(names) > 1:
        raise DatasetError(f"{graphs.path}: columns {' and '.join(names)} both identify the graphs; remove one")
    return names[0] if names else None


def _graph_column(table: Table, key: str | None) -> str | None:
    """Find the column of nodes.csv or edges.csv with the graph of a row."""
    names = [name for name in table.columns if _normalized(name) in GRAPH_NAMES]
    if not names and key and _normalized(key) not in ID_NAMES:
        names = [name for name in table.columns if _normalized(name) == _normalized(key)]
    if len(names) > 1:
        raise DatasetError(f"{table.path}: columns {' and '.join(names)} both name the graph of a row; remove one")
    return names[0] if names else None


def _node_ids(nodes: Table, graph: np.ndarray, remarks: list[str]) -> Identifiers | None:
    """Remove the column of identifiers from nodes.csv. Without one, the rows of a graph must be adjacent."""
    graph_of_row = graph.tolist()
    names = [name for name in nodes.columns if _normalized(name) in ID_NAMES]
    if not names:
        names = [
            name
            for name, cells in nodes.columns.items()
            if _is_id(name) and len(nodes) > 1 and len(set(zip(graph_of_row, cells, strict=True))) == len(nodes)
        ]
    if len(names) > 1:
        raise DatasetError(
            f"{nodes.path}: columns {' and '.join(names)} both identify the nodes; remove one, or rename it if it is a "
            "feature"
        )
    if names:
        remarks.append(
            f"{nodes.path.name}: column {names[0]} identifies the nodes: edges are joined by it, and it is not a "
            "feature"
        )
        return Identifiers(nodes, names[0], nodes.columns.pop(names[0]), graph_of_row)
    begins = np.flatnonzero(np.diff(graph, prepend=-1))
    if len(begins) > len(set(graph_of_row)):
        row = next(row for index, row in enumerate(begins.tolist()) if graph_of_row[row] in graph[begins[:index]])
        raise DatasetError(f"{nodes.at(row)}: rows of a graph must be adjacent; sort them, or add a column id")
    return None


def _graphs_of_sources(nodes: Table, edges: Table, graph: np.ndarray, ids: Identifiers | None) -> np.ndarray:
    """Return the graph of the source of each edge, if identifiers of nodes are unique over all graphs."""
    if ids is None or len(set(ids.cells)) < len(ids.cells):
        raise _graph_column_error(edges, nodes)
    all_nodes = Identifiers(nodes, ids.column, ids.cells, [0] * len(nodes))
    cells = edges.columns["source"]
    rows = all_nodes.rows(cells, [0] * len(cells))
    if (wrong := np.flatnonzero(rows < 0)).size:
        raise all_nodes.unknown_error(edges, int(wrong[0]), "source", cells[wrong[0]])
    return graph[rows]


def _local_ids(
    edges: Table, name: str, graph: np.ndarray, ids: Identifiers | None, num_nodes: np.ndarray, local: np.ndarray
) -> np.ndarray:
    """Return one end of every edge, as number within its graph. Raises DatasetError if it does not exist."""
    several = len(num_nodes) > 1
    if ids is not None:
        cells = edges.columns.pop(name)
        rows = ids.rows(cells, graph.tolist())
        if (wrong := np.flatnonzero(rows < 0)).size:
            raise ids.unknown_error(edges, int(wrong[0]), name, cells[wrong[0]], " in its graph" if several else "")
        return local[rows]
    cells = edges.columns[name]
    for row, cell in enumerate(() if all(map(str.isdigit, cells)) else cells):
        if not re.fullmatch(r"[\d.,eE+-]+", cell):
            raise DatasetError(
                f"{edges.at(row, name)}: {shown(cell) if cell else 'an empty cell'} is not a number of a node; number "
                "nodes from 0 in the order of nodes.csv, or add a column id with such names to nodes.csv"
            )
    found = edges.whole_numbers(name, "edge ids", MAX_ID)
    if (wrong := np.flatnonzero(found >= num_nodes[graph])).size:
        row = int(wrong[0])
        last = num_nodes[graph[row]] - 1
        from_one = found[row] == last + 1 and found.min() > 0
        hint = " in each graph" if several else " (the edges seem to count from 1)" if from_one else ""
        raise DatasetError(
            f"{edges.at(row, name)} names node {found[row]}, which does not exist in its graph; nodes are numbered "
            f"from 0 to {last}{hint}; correct it, or add a column id with the names that edges use to nodes.csv"
        )
    return found


def _words(table: Table, name: str) -> list[str]:
    """Return the distinct words of a column in sorted order; none if a cell is a number."""
    words = sorted({cell for cell in table.columns[name] if cell.lower() not in MISSING})
    for word in words:
        with contextlib.suppress(ValueError):
            float(word.replace(",", "."))
            return []
    return words


def _listed(words: Sequence[str], of: str = "categories") -> str:
    """Return the numbers of words for a remark."""
    listed = ", ".join(f"{number} = {shown(word)}" for number, word in enumerate(words[:MOST_LISTED]))
    return listed + (f", ... ({len(words)} {of})" if len(words) > MOST_LISTED else "")


def _classes(table: Table, words: list[str], remarks: list[str]) -> np.ndarray:
    """Remove the column y and convert its words to numbers of classes, in sorted order; -1 for a missing cell."""
    cells = table.columns.pop("y")
    numbers = {word: number for number, word in enumerate(words)}
    y = np.array([numbers.get(cell, -1) for cell in cells], np.int64)
    listed = _listed(words, "classes")
    remarks.append(f"{table.path.name}: column y has words, numbered in sorted order: {listed}")
    if missing := int((y < 0).sum()):
        remarks.append(f"{table.path.name}: column y is missing in {missing} rows, which have no class")
    return y


def _targets(table: Table, names: Sequence[str]) -> np.ndarray:
    if len(names) > 1 and "y" in names:
        raise DatasetError(
            f"{table.path}: has the columns {', '.join(names)}; name one target y, or several y_1, y_2, ..."
        )
    y = [table.numbers(name) for name in names]
    for name, column in zip(names, y, strict=True):
        if (wrong := np.flatnonzero(np.isinf(column))).size:
            raise DatasetError(
                f"{table.at(int(wrong[0]), name)} is {column[wrong[0]]}; a target is a finite number, or nan if unknown"
            )
    return y[0] if names == ["y"] else np.stack(y, axis=1)


def _is_split(name: str) -> bool:
    return bool(re.fullmatch(r"split(_[0-9]+)?", name))


def _splits(table: Table, names: Sequence[str]) -> np.ndarray:
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
    missing = np.array([cell.lower() in MISSING for cell in cells], bool)
    words = _words(table, name)
    # as many words as rows are names or texts, which are rejected as numbers
    if words and len(words) < len(table) and len(words) <= MAX_VALUES and (allow_missing or not missing.any()):
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


def _features(table: Table, remarks: list[str], allow_missing: bool = False) -> np.ndarray:
    """Convert all columns to one array [rows, F]. If some are continuous, categories become one-hot columns."""
    of_numbers = {name for name in table.columns if not _words(table, name)}
    columns = {name: _feature(table, name, remarks, allow_missing) for name in list(table.columns)}
    for name, column in columns.items():
        if (wrong := np.flatnonzero(np.isinf(column))).size:
            raise DatasetError(f"{table.at(int(wrong[0]), name)} is {column[wrong[0]]}; a feature is a finite number")
        if has_unique_whole_numbers(column):
            remarks.append(identifier_remark(f"{table.path.name}: column {name}", len(table)))
        elif _is_id(name):
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


def _normalized(name: str) -> str:
    """Return a name in lower case without punctuation."""
    return re.sub(r"[\W_]+", "", name).lower()


def _is_id(name: str) -> bool:
    """Test whether a name ends like one of an identifier: mol_id, zinc-id, userId."""
    return bool(
        re.search(r"[\W_](id|ids|idx|uid|uuid|guid|key|index)$", name.lower()) or re.search(r"[a-z](Id|ID)$", name)
    )


def _canonical(cell: str) -> str:
    """Return whole numbers in their shortest form ("7.0" and "+07" as "7"), other cells unchanged."""
    if match := re.fullmatch(r"([+-]?)0*([0-9]+)(\.0*)?", cell):
        return ("-" if match[1] == "-" and match[2] != "0" else "") + match[2]
    return cell
