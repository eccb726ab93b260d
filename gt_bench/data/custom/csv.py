"""Reading a user's own folder of CSV files: nodes.csv, edges.csv and, for targets of graphs, graphs.csv, joined by their identifiers."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from gt_bench.data.custom.arrays import MOST, typed
from gt_bench.data.custom.remarks import differs_everywhere, too_many_values
from gt_bench.data.custom.table import Table, read_columns, shown
from gt_bench.utils.errors import DatasetError

CODES = {"": 0, "none": 0, "train": 1, "val": 2, "test": 3}
# names of columns that identify rows, in lower case and without punctuation
GRAPH_NAMES = ("graph", "graphid", "graphidx", "graphindex", "graphname", "graphnumber")
ID_NAMES = (
    "id", "ids", "identifier", "node", "nodeid", "nodeidx", "nodeindex", "nodename", "nodenumber", "vertex", "vertexid", "index", "idx", "name", "key", "uid",
    "uuid", "guid",
)  # fmt: skip
EDGE_NAMES = ("edge", "edgeid", "edgeidx", "edgeindex", "edgename", "edgenumber", "eid")


class Identifiers:
    """Numbers of rows by what identifies them: (number of the graph, cell). Raises DatasetError for an empty or a duplicate identifier."""

    def __init__(self, table: Table, column: str, cells: Sequence[str], graph: Sequence[int]):
        self.table, self.column, self.cells = table, column, cells
        self.exact: dict[tuple[int, str], int] = {}
        for row, key in enumerate(zip(graph, cells, strict=True)):
            if key[1].lower() in ("", "nan"):
                raise DatasetError(
                    f"{table.at(row, column)} is empty; give each row its own identifier, or take the column out"
                )
            if key in self.exact:
                first = self.exact[key]
                raise DatasetError(
                    f"{table.at(row, column)}: duplicate identifier {shown(key[1])}, first in line {table.lines[first]}; an identifier belongs to "
                    f"one row{' of a graph' if len(set(graph)) > 1 else ''}: correct it, or rename the column where it is a feature"
                )
            self.exact[key] = row
        # 7 and 7.0 are one identifier, unless that makes two rows one (07 and 7)
        self.numbers = {(one, _number(cell)): row for (one, cell), row in self.exact.items()}
        if len(self.numbers) < len(self.exact):
            self.numbers = {}

    def rows(self, cells: Iterable[str], graph: Iterable[int]) -> np.ndarray:
        """Rows of these identifiers, -1 for those that are unknown."""
        found = ((one, cell, self.exact.get((one, cell))) for one, cell in zip(graph, cells, strict=True))
        return np.array(
            [self.numbers.get((one, _number(cell)), -1) if row is None else row for one, cell, row in found], np.int64
        )

    def unknown(self, table: Table, row: int, column: str, cell: str, where: str = "") -> DatasetError:
        """The error for an identifier that nothing has."""
        return DatasetError(
            f"{table.at(row, column)}: {shown(cell)} is not in column {self.column} of {self.table.path.name}{where} (which has "
            f"{', '.join(map(shown, self.cells[:3]))}{', ...' if len(self.cells) > 3 else ''}); add it there, or take the column {self.column} "
            "out where rows are numbered from 0 instead"
        )


def from_csv(folder: Path, level: str, remarks: list[str]) -> dict[str, np.ndarray]:
    """nodes.csv: [graph,] [id,] features..., at node level y and perhaps split (several: split_0, split_1, ...). edges.csv: [graph,] source, target, features...
    graphs.csv: [graph,] y... and perhaps split, one row per graph.

    Nodes and graphs are known by their identifiers, or by their numbers in the order of rows. Raises DatasetError.
    """
    paths = [folder / "nodes.csv", folder / "edges.csv", folder / "graphs.csv"]
    for path in paths[: 2 if level == "node" else 3]:
        if not path.exists():
            raise DatasetError(
                f"{path}: cannot be read: there is no such file; a folder of CSV has nodes.csv and edges.csv, and with targets of graphs graphs.csv"
            )
    nodes, edges = read_columns(paths[0], remarks), read_columns(paths[1], remarks)
    graphs = None if level == "node" else read_columns(paths[2], remarks)
    targets = graphs or nodes
    for table in (nodes, targets):
        if not len(table):
            raise DatasetError(f"{table.path}: has no rows")
    if not {"source", "target"} <= set(edges.columns):
        raise DatasetError(
            f"{edges.path}: needs the columns source and target; it has {', '.join(map(shown, edges.columns))}: rename them"
        )
    _check_places(nodes, edges, graphs)
    if not (names := [name for name in targets.columns if name == "y" or name.startswith("y_")]):
        there = ", ".join(map(shown, targets.columns))
        raise DatasetError(
            f"{folder}: no column y (or y_1, y_2, ...) with the targets in {targets.path.name}; it has {there}"
        )

    graph, edge_graph, count = _graphs(nodes, edges, graphs, remarks)
    ids = _node_ids(nodes, graph, remarks)
    if edge_graph is None and count > 1:
        edge_graph = _graphs_of_edges(nodes, edges, graph, ids)
    order = np.argsort(graph, kind="stable")
    num_nodes = np.bincount(graph, minlength=count)
    within = np.empty(len(nodes), np.int64)  # number of each row in its graph
    within[order] = np.arange(len(nodes)) - np.repeat(num_nodes.cumsum() - num_nodes, num_nodes)
    edge_graph = np.zeros(len(edges), np.int64) if edge_graph is None else edge_graph
    ends = [_ends(edges, name, edge_graph, ids, num_nodes, within) for name in ("source", "target")]
    edge_order = np.argsort(edge_graph, kind="stable")
    arrays = {"num_nodes": num_nodes, "num_edges": np.bincount(edge_graph, minlength=count)}
    arrays["edge_index"] = np.stack(ends)[:, edge_order].astype(np.int32)

    arrays["y"] = _targets(targets, names)
    if splits := [name for name in targets.columns if _is_split(name)]:
        arrays["split"] = _splits(targets, splits)
    if graphs is None:
        arrays |= {"y": arrays["y"][order]} | ({"split": arrays["split"][..., order]} if splits else {})
    elif graphs.columns:
        raise DatasetError(
            f"{graphs.path}: column {next(iter(graphs.columns))} is neither y, y_1, y_2, ... nor split; take it out"
        )
    elif len(arrays["y"]) != count:
        said = f"names {count} graphs" if count > 1 else "is one graph without a column graph"
        raise DatasetError(f"{graphs.path}: has {len(arrays['y'])} rows; nodes.csv {said}, and each needs one row")
    arrays["x"] = _features(nodes, remarks)[order] if nodes.columns else np.zeros((len(nodes), 1), np.int64)
    if edges.columns:
        arrays["edge_attr"] = _features(edges, remarks)[edge_order]
    return typed(arrays, folder)


def _check_places(nodes: Table, edges: Table, graphs: Table | None) -> None:
    """Raises DatasetError for targets, splits and identifiers where they mean nothing: they would become features."""
    for table in (edges, *([nodes] if graphs else [])):
        for name in table.columns:
            if name == "y" or name.startswith("y_") or _is_split(name):
                what, has = ("splits", name) if _is_split(name) else ("targets", "y")
                place = graphs.path.name if graphs else nodes.path.name
                raise DatasetError(
                    f"{table.path}: column {name}: {what} are read from {place} (column {has}); take it out here, or rename it where it is a feature"
                )
    for name in edges.columns:
        if _plain(name) in (*ID_NAMES, *EDGE_NAMES):
            raise DatasetError(
                f"{edges.path}: column {name} identifies edges and is no feature of them; take it out, or rename it where it is a feature"
            )


def _graphs(
    nodes: Table, edges: Table, graphs: Table | None, remarks: list[str]
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """(number of each node's graph, of each edge's graph or None where edges.csv does not say, how many graphs)."""
    key = _graph_key(graphs) if graphs else None
    names = [_graph_column(table, key) for table in (nodes, edges)]
    if names[0] is None and names[1] is not None:
        raise DatasetError(
            f"{nodes.path}: needs a column graph, as {edges.path.name} has one; leave it out of both for a single graph"
        )
    if names[0] is None:
        if both := next((name for name in nodes.columns if _is_id(name) and name in edges.columns), None):
            raise DatasetError(
                f"{nodes.path}: column {both}: {edges.path.name} has it too; name it graph in both where it says to which graph a row belongs, or rename it "
                "where it is a feature"
            )
        if graphs and key:
            del graphs.columns[key]
        return np.zeros(len(nodes), np.int64), None, 1
    cells = nodes.columns.pop(names[0])
    if graphs and key:
        known = Identifiers(graphs, key, graphs.columns.pop(key), [0] * len(graphs))
        remarks.append(f"{nodes.path.name}: column {names[0]} is joined with column {key} of {graphs.path.name}")
    else:
        known = _numbered(nodes, names[0], cells, graphs)
    graph = _of_graphs(nodes, names[0], cells, known)
    edge_graph = _of_graphs(edges, names[1], edges.columns.pop(names[1]), known) if names[1] else None
    empty = np.flatnonzero(np.bincount(graph, minlength=len(known.cells)) == 0)
    if graphs and empty.size:
        raise DatasetError(
            f"{graphs.at(int(empty[0]), key)}: graph {shown(known.cells[empty[0]])} has no nodes in {nodes.path.name}; take it out"
        )
    return graph, edge_graph, len(known.cells)


def _of_graphs(table: Table, name: str, cells: list[str], known: Identifiers) -> np.ndarray:
    """The number of each row's graph."""
    rows = known.rows(cells, [0] * len(cells))
    if not (wrong := np.flatnonzero(rows < 0)).size:
        return rows
    row = int(wrong[0])
    if known.table.path.name == "graphs.csv":
        raise known.unknown(table, row, name, cells[row])
    raise DatasetError(
        f"{table.at(row, name)}: no graph {shown(cells[row])} in nodes.csv: column graph must number the {len(known.cells)} graphs from 0"
    )


def _numbered(nodes: Table, name: str, cells: list[str], graphs: Table | None) -> Identifiers:
    """Graphs that nodes.csv alone names: numbers from 0, or at node level any names in the order in which they come."""
    distinct = list(dict.fromkeys(_number(cell) for cell in cells))
    whole = [cell.isascii() and cell.isdigit() for cell in distinct]
    if not all(whole):
        row = next(row for row, cell in enumerate(cells) if not (_number(cell).isascii() and _number(cell).isdigit()))
        if graphs is not None or re.fullmatch(r"[+-]?[\d.,]+", cells[row]) or not cells[row]:
            raise DatasetError(
                f"{nodes.at(row, name)}: {shown(cells[row])}: column graph must number the graphs from 0; or give graphs.csv a column {name} too, with the "
                "same names"
            )
        return Identifiers(nodes, name, list(dict.fromkeys(cells)), [0] * len(set(cells)))
    numbers = sorted({int(cell) for cell in distinct})
    if numbers != list(range(len(numbers))):
        gap = next(number for number, found in enumerate([*numbers, -1]) if number != found)
        raise DatasetError(
            f"{nodes.path}: graph {gap} has no nodes; number the graphs 0, 1, 2, ... without gaps, or give graphs.csv a column {name} with their numbers"
        )
    return Identifiers(nodes, name, [str(number) for number in numbers], [0] * len(numbers))


def _graph_key(graphs: Table) -> str | None:
    """The column of graphs.csv that identifies its rows."""
    names = [name for name in graphs.columns if _plain(name) in (*GRAPH_NAMES, *ID_NAMES) or _is_id(name)]
    if len(names) > 1:
        raise DatasetError(f"{graphs.path}: columns {' and '.join(names)} both identify the graphs; take one out")
    return names[0] if names else None


def _graph_column(table: Table, key: str | None) -> str | None:
    """The column of nodes.csv or edges.csv that says to which graph a row belongs."""
    names = [name for name in table.columns if _plain(name) in GRAPH_NAMES]
    if not names and key and _plain(key) not in ID_NAMES:
        names = [name for name in table.columns if _plain(name) == _plain(key)]
    if len(names) > 1:
        raise DatasetError(f"{table.path}: columns {' and '.join(names)} both name the graph of a row; take one out")
    return names[0] if names else None


def _node_ids(nodes: Table, graph: np.ndarray, remarks: list[str]) -> Identifiers | None:
    """The identifiers of nodes.csv, its column taken out. Without one, rows are numbered, and those of a graph stand together."""
    of = graph.tolist()
    names = [name for name in nodes.columns if _plain(name) in ID_NAMES]
    if not names:
        names = [
            name
            for name, cells in nodes.columns.items()
            if _is_id(name) and len(nodes) > 1 and len(set(zip(of, cells, strict=True))) == len(nodes)
        ]
    if len(names) > 1:
        raise DatasetError(
            f"{nodes.path}: columns {' and '.join(names)} both identify the nodes; take one out, or rename it where it is a feature"
        )
    if names:
        remarks.append(
            f"{nodes.path.name}: column {names[0]} identifies the nodes: edges are joined by it, and it is no feature"
        )
        return Identifiers(nodes, names[0], nodes.columns.pop(names[0]), of)
    begins = np.flatnonzero(np.diff(graph, prepend=-1))
    if len(begins) > len(set(of)):
        row = next(row for index, row in enumerate(begins.tolist()) if of[row] in graph[begins[:index]])
        raise DatasetError(f"{nodes.at(row)}: rows of a graph must stand together; or give the nodes a column id")
    return None


def _graphs_of_edges(nodes: Table, edges: Table, graph: np.ndarray, ids: Identifiers | None) -> np.ndarray:
    """Of edges that do not name their graph, that of their source, where identifiers of nodes are unique over all graphs."""
    if ids is None or len(set(ids.cells)) < len(ids.cells):
        raise DatasetError(
            f"{edges.path}: needs a column graph, as {nodes.path.name} has one; leave it out of both for a single graph"
        )
    everywhere = Identifiers(nodes, ids.column, ids.cells, [0] * len(nodes))
    cells = edges.columns["source"]
    rows = everywhere.rows(cells, [0] * len(cells))
    if (wrong := np.flatnonzero(rows < 0)).size:
        raise everywhere.unknown(edges, int(wrong[0]), "source", cells[wrong[0]])
    return graph[rows]


def _ends(
    edges: Table, name: str, graph: np.ndarray, ids: Identifiers | None, num_nodes: np.ndarray, within: np.ndarray
) -> np.ndarray:
    """One end of every edge, by number in its graph. Raises DatasetError for an edge to a node that its graph does not have."""
    several = len(num_nodes) > 1
    if ids is not None:
        cells = edges.columns.pop(name)
        rows = ids.rows(cells, graph.tolist())
        if (wrong := np.flatnonzero(rows < 0)).size:
            raise ids.unknown(edges, int(wrong[0]), name, cells[wrong[0]], " in its graph" if several else "")
        return within[rows]
    cells = edges.columns[name]
    for row, cell in enumerate(() if all(map(str.isdigit, cells)) else cells):
        if not re.fullmatch(r"[\d.,eE+-]+", cell):
            raise DatasetError(
                f"{edges.at(row, name)}: {shown(cell) if cell else 'an empty cell'} is no number of a node; number nodes from 0 in the order of nodes.csv, or give "
                "nodes.csv a column id with such names"
            )
    found = edges.whole(name, "edge ids", MOST)
    if (wrong := np.flatnonzero(found >= num_nodes[graph])).size:
        row = int(wrong[0])
        last = num_nodes[graph[row]] - 1
        hint = (
            " in each graph"
            if several
            else " (the edges seem to count from 1)"
            if found[row] == last + 1 and found.min() == 1
            else ""
        )
        raise DatasetError(
            f"{edges.at(row, name)} names a node that its graph does not have: {found[row]}, where they are numbered from 0 to {last}{hint}; correct it, or give "
            "nodes.csv a column id with the names that edges use"
        )
    return found


def _targets(table: Table, names: Sequence[str]) -> np.ndarray:
    if len(names) > 1 and "y" in names:
        raise DatasetError(
            f"{table.path}: has the columns {', '.join(names)}; name one target y, several y_1, y_2, ..."
        )
    y = [table.numbers(name) for name in names]
    for name, column in zip(names, y, strict=True):
        if (wrong := np.flatnonzero(np.isinf(column))).size:
            raise DatasetError(
                f"{table.at(int(wrong[0]), name)} is {column[wrong[0]]}; a target is a finite number, or nan where it is not known"
            )
    return y[0] if names == ["y"] else np.stack(y, axis=1)


def _is_split(name: str) -> bool:
    return bool(re.fullmatch(r"split(_[0-9]+)?", name))


def _splits(table: Table, names: Sequence[str]) -> np.ndarray:
    """Codes [rows] of the column `split`, or [S, rows] of `split_0`, `split_1`, ..."""
    expected = ["split"] if len(names) == 1 and "split" in names else [f"split_{i}" for i in range(len(names))]
    if set(names) != set(expected):
        raise DatasetError(
            f"{table.path}: has the columns {', '.join(names)}; name one split `split`, several split_0, split_1, ... without gaps"
        )
    codes = []
    for name in expected:
        cells = table.columns.pop(name)
        for row, cell in enumerate(cells):
            if cell not in CODES:
                raise DatasetError(
                    f"{table.at(row, name)}: unknown split {cell[:100]!r}; known: train, val, test, none"
                )
        codes.append([CODES[cell] for cell in cells])
    return np.array(codes[0] if expected == ["split"] else codes, np.uint8)


def _features(table: Table, remarks: list[str]) -> np.ndarray:
    """All columns in one dtype: beside continuous columns, categories (whole numbers) become one-hot columns."""
    columns = {name: table.numbers(name) for name in list(table.columns)}
    for name, column in columns.items():
        if (wrong := np.flatnonzero(~np.isfinite(column))).size:
            raise DatasetError(f"{table.at(int(wrong[0]), name)} is {column[wrong[0]]}; a feature is a finite number")
        if _is_id(name) and not differs_everywhere(column):
            remarks.append(
                f"{table.path.name}: column {name} is named as an identifier and is taken as a feature; where it is none, take it out"
            )
        if differs_everywhere(column):
            remarks.append(
                f"{table.path.name}: column {name} has a different whole number in each of {len(table)} rows and is taken as a feature; where it identifies the "
                "rows, take it out"
            )
    whole = [name for name, column in columns.items() if column.dtype.kind != "f"]
    for name in whole:
        column = columns[name]
        if column.min(initial=0) < 0:
            row = int(np.argmin(column))
            raise DatasetError(
                f"{table.at(row, name)} is {column[row]}; whole numbers are categories from 0, and a quantity needs a point: write {column[row]}.0"
            )
        one_hot = len(whole) < len(columns)  # then each value becomes a column
        if problem := too_many_values(f"{table.path}: column {name}", int(column.max(initial=0)), len(table), one_hot):
            raise DatasetError(problem)
    if not 0 < len(whole) < len(columns):
        return np.stack(list(columns.values()), axis=1)
    found = []
    for name, column in columns.items():
        if name not in whole:
            found.append(column[:, None])
            continue
        values = int(column.max(initial=0)) + 1
        remarks.append(
            f"{table.path.name}: column {name} has whole numbers only and is taken as a category, {values} columns of 0 and 1; where it is a quantity, write 12.0 for 12"
        )
        found.append(np.eye(values)[column])
    return np.concatenate(found, axis=1)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def _is_id(name: str) -> bool:
    """Whether a name ends as those of identifiers do: mol_id, zinc-id, userId."""
    return bool(
        re.search(r"[\W_](id|ids|idx|uid|uuid|guid|key|index)$", name.lower()) or re.search(r"[a-z](Id|ID)$", name)
    )


def _number(cell: str) -> str:
    """A whole number in its shortest form ("7.0" and "+07" as "7"), any other cell as it is."""
    if match := re.fullmatch(r"([+-]?)0*([0-9]+)(\.0*)?", cell):
        return ("-" if match[1] == "-" and match[2] != "0" else "") + match[2]
    return cell
