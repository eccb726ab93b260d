"""Identifiers of graphs and nodes in user-supplied tables: they join nodes, edges and graphs, and are no features."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from gt_bench.data.custom.arrays import MAX_ID
from gt_bench.data.custom.table import Table, shown
from gt_bench.utils.errors import DatasetError

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
        what = shown(cell) if cell else "an empty cell"
        return DatasetError(
            f"{table.at(row, column)}: {what} is not in column {self.column} of {self.table.path.name}{where} (which "
            f"has {known}); add it there, or remove the column {self.column} if rows are numbered from 0"
        )


def find_graphs(
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
        if both := next((name for name in nodes.columns if names_rows(name) and name in edges.columns), None):
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
    names = [name for name in graphs.columns if normalized_name(name) in (*GRAPH_NAMES, *ID_NAMES) or names_rows(name)]
    if len(names) > 1:
        raise DatasetError(f"{graphs.path}: columns {' and '.join(names)} both identify the graphs; remove one")
    return names[0] if names else None


def _graph_column(table: Table, key: str | None) -> str | None:
    """Find the column of nodes.csv or edges.csv with the graph of a row."""
    names = [name for name in table.columns if normalized_name(name) in GRAPH_NAMES]
    if not names and key and normalized_name(key) not in ID_NAMES:
        names = [name for name in table.columns if normalized_name(name) == normalized_name(key)]
    if len(names) > 1:
        raise DatasetError(f"{table.path}: columns {' and '.join(names)} both name the graph of a row; remove one")
    return names[0] if names else None


def node_ids(nodes: Table, graph: np.ndarray, remarks: list[str]) -> Identifiers | None:
    """Remove the column of identifiers from nodes.csv. Without one, the rows of a graph must be adjacent."""
    graph_of_row = graph.tolist()
    names = [name for name in nodes.columns if normalized_name(name) in ID_NAMES]
    if not names:
        names = [
            name
            for name, cells in nodes.columns.items()
            if names_rows(name) and len(nodes) > 1 and len(set(zip(graph_of_row, cells, strict=True))) == len(nodes)
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


def graphs_of_sources(nodes: Table, edges: Table, graph: np.ndarray, ids: Identifiers | None) -> np.ndarray:
    """Return the graph of the source of each edge, if identifiers of nodes are unique over all graphs."""
    if ids is None or len(set(ids.cells)) < len(ids.cells):
        raise _graph_column_error(edges, nodes)
    all_nodes = Identifiers(nodes, ids.column, ids.cells, [0] * len(nodes))
    cells = edges.columns["source"]
    rows = all_nodes.rows(cells, [0] * len(cells))
    if (wrong := np.flatnonzero(rows < 0)).size:
        raise all_nodes.unknown_error(edges, int(wrong[0]), "source", cells[wrong[0]])
    return graph[rows]


def local_ids(
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


def identifies(name: str, cells: Sequence[str]) -> bool:
    """Test whether a column of the only graph identifies its rows."""
    return normalized_name(name) in ID_NAMES or (names_rows(name) and len(set(cells)) == len(cells) > 1)


def normalized_name(name: str) -> str:
    """Return a name in lower case without punctuation."""
    return re.sub(r"[\W_]+", "", name).lower()


def names_rows(name: str) -> bool:
    """Test whether a name ends like one of an identifier: mol_id, zinc-id, userId."""
    return bool(
        re.search(r"[\W_](id|ids|idx|uid|uuid|guid|key|index)$", name.lower()) or re.search(r"[a-z](Id|ID)$", name)
    )


def _canonical(cell: str) -> str:
    """Return whole numbers in their shortest form ("7.0" and "+07" as "7"), other cells unchanged."""
    if match := re.fullmatch(r"([+-]?)0*([0-9]+)(\.0*)?", cell):
        return ("-" if match[1] == "-" and match[2] != "0" else "") + match[2]
    return cell
