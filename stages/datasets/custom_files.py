"""Reading a user's own data: a folder of CSV files, an npz file, or a torch_geometric dataset, as blocks of arrays with `PackedWriter`'s names."""

import csv
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stages.datasets.packed import compact
from stages.datasets.readers import read_npz
from stages.errors import DatasetError

MOST_VALUES = 1000  # of a category beside continuous columns
BLOCK = 1000  # graphs of a torch_geometric dataset held in memory at once
CODES = {"": 0, "none": 0, "train": 1, "val": 2, "test": 3}
MOST = 2**31  # ids and categories are stored as int32
ARRAYS = ("num_nodes", "num_edges", "x", "edge_index", "edge_attr", "y", "split")


@dataclass(frozen=True)
class Given:
    """Data that something gives: `load()` returns them, `text` decides their digest, `where` names them in messages."""

    load: Callable[[], Any]
    text: str
    where: str


@dataclass(frozen=True)
class Reader:
    """A source with its form and its split. Its text is part of the dataset's digest. `remarks`: what was done to the data that their user should
    know, filled while they are read."""

    source: str | Path | Callable[[], Iterable[Any]] | Given
    level: str
    shares: tuple[float, float, float]
    num_splits: int
    seed: int
    remarks: list[str] = field(default_factory=list, compare=False)

    def content(self) -> str:
        """A digest of what is read: the files' bytes, or the text of the function."""
        digest = hashlib.sha256(repr((self.shares, self.num_splits, self.seed)).encode())
        if isinstance(self.source, Given):
            digest.update(self.source.text.encode())
        elif callable(self.source):
            digest.update(inspect.getsource(self.source).encode())
        else:
            path = Path(self.source)
            for file in sorted(path.iterdir()) if path.is_dir() else [path] if path.exists() else []:
                if file.is_file():
                    digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()

    def __repr__(self) -> str:
        return f"{self.level} {self.shares} {self.num_splits} {self.seed}"

    def blocks(self) -> Iterator[dict[str, np.ndarray]]:
        """Arrays of one or more graphs at a time, named as `PackedWriter.graphs` takes them. Raises DatasetError, which names the file and
        what is wrong."""
        if isinstance(self.source, Given):
            yield from _from_pyg(self.source.load(), self.level, self.source.where)
        elif callable(self.source):
            yield from _from_pyg(self.source(), self.level, f"{self.source.__module__}.{self.source.__qualname__}()")
        elif Path(self.source).is_dir():
            yield _from_csv(Path(self.source), self.level, self.remarks)
        elif Path(self.source).suffix == ".npz":
            arrays = read_npz(Path(self.source))
            unknown = set(arrays) - set(ARRAYS)
            if unknown or not {"x", "edge_index", "y"} <= set(arrays):
                raise DatasetError(
                    f"{self.source}: holds {', '.join(sorted(arrays))}; it may hold {', '.join(ARRAYS)} and needs x, edge_index, y"
                )
            arrays["edge_index"] = _edges(arrays["edge_index"], self.source)
            arrays.setdefault("num_nodes", np.array([arrays["x"].shape[0] if arrays["x"].ndim else 0]))
            arrays.setdefault("num_edges", np.array([arrays["edge_index"].shape[1]]))
            yield _typed(arrays, self.source)
        else:
            raise DatasetError(f"{self.source}: neither a folder with nodes.csv and edges.csv nor an npz file")


def _from_csv(folder: Path, level: str, remarks: list[str]) -> dict[str, np.ndarray]:
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
    arrays["edge_index"] = _edges(np.stack([edges.pop("source"), edges.pop("target")]), paths[1])
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
    return _typed(arrays, folder)


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


def graphs_of(data: Any, where: str) -> Iterable[Any]:
    """The graphs of a torch_geometric dataset or a list; of a single Data itself. Raises DatasetError for anything else."""
    from torch_geometric.data import Batch
    from torch_geometric.data.data import BaseData

    if isinstance(data, BaseData):
        return data.to_data_list() if isinstance(data, Batch) else [data]
    if not isinstance(data, Iterable) and not hasattr(data, "__getitem__"):
        raise DatasetError(f"{where}: returned {type(data).__name__}; return a Data, a list of Data or a torch_geometric dataset")
    return data


def _from_pyg(dataset: Iterable[Any], level: str, where: str) -> Iterator[dict[str, np.ndarray]]:
    """Data objects in blocks of whole graphs. A node-level mask [N] or [N, S] is a split."""
    block: list[dict[str, np.ndarray]] = []
    first = None
    for number, data in enumerate(graphs_of(dataset, where)):
        arrays = _arrays(data, level, f"{where}: graph {number}")
        form = _form(arrays)
        first = first or form
        if form != first:
            key = next(key for key in first if form[key] != first[key])
            raise DatasetError(f"{where}: {key} of graph {number} is {form[key]} and of graph 0 {first[key]}; all graphs need the same")
        block.append(arrays)
        if len(block) == BLOCK:
            yield _block(block, where)
            block = []
    if block:
        yield _block(block, where)
    if first is None:
        raise DatasetError(f"{where}: returned no graphs; return a torch_geometric dataset or a list of Data")


def _form(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """What must be the same in all graphs of a dataset."""
    form = {}
    for key in ("x", "edge_attr"):
        array = arrays.get(key)
        form[key] = "absent" if array is None else f"{'continuous' if array.dtype.kind == 'f' else 'categorical'}, {array.shape[1]} wide"
    form["y"] = f"{int(np.prod(arrays['y'].shape[1:]))} wide"
    form["train_mask"] = f"of {len(arrays['split'])} splits" if "split" in arrays else "absent"
    return form


def _arrays(data: Any, level: str, where: str) -> dict[str, np.ndarray]:
    """The arrays of one Data object."""
    lacking = [key for key in ("edge_index", "y") if getattr(data, key, None) is None]
    if lacking:
        others = [key for key in ("hyperedge_index", "edge_label", "edge_label_index") if getattr(data, key, None) is not None]
        hint = (
            f"; it has {', '.join(others)}, and of one's own data the benchmark knows targets per node and per graph alone"
            if others
            else ""
        )
        raise DatasetError(
            f"{where}: a {type(data).__name__} without {' and '.join(lacking)}; a torch_geometric graph needs edge_index and y{hint}"
        )
    nodes, edge_index = data.num_nodes, _edges(_array(data, "edge_index", where), where)
    if not isinstance(nodes, int) or nodes < 1:
        raise DatasetError(f"{where}: has no nodes")
    arrays = {"num_nodes": np.array([nodes]), "num_edges": np.array([edge_index.shape[1]]), "edge_index": edge_index}
    rows = {"x": nodes, "edge_attr": edge_index.shape[1], "y": nodes}
    for key in rows:
        if getattr(data, key, None) is not None:
            array = _array(data, key, where)
            arrays[key] = array.reshape(1, -1) if key == "y" and level == "graph" else _table(array, key, where)
            if key != "y" and not np.isfinite(array).all():
                raise DatasetError(f"{where}: {key} holds a number that is not finite; put one in its place, or take the graph out")
            if len(arrays[key]) != rows[key] and not (key == "y" and level == "graph"):
                raise DatasetError(f"{where}: {key} has {len(arrays[key])} rows where {rows[key]} are needed")
    if level == "node" and getattr(data, "train_mask", None) is not None:
        arrays["split"] = _masks(data, nodes, where)
    return arrays


def _block(graphs: Sequence[Mapping[str, np.ndarray]], where: str) -> dict[str, np.ndarray]:
    arrays = {key: np.concatenate([graph[key] for graph in graphs], axis=int(key in ("edge_index", "split"))) for key in graphs[0]}
    arrays.setdefault("x", np.zeros((arrays["num_nodes"].sum(), 1), np.uint8))
    y = arrays["y"]
    arrays["y"] = y[:, 0] if y.shape[1] == 1 else y
    return _typed(arrays, where)


def _masks(data: Any, nodes: int, where: str) -> np.ndarray:
    for part in ("val", "test"):
        if getattr(data, f"{part}_mask", None) is None:
            raise DatasetError(f"{where}: has train_mask and no {part}_mask")
    masks = [_table(_array(data, f"{part}_mask", where), f"{part}_mask", where) for part in ("train", "val", "test")]
    # [N, S]; wikics has one test mask for all
    splits = max(mask.shape[1] for mask in masks)
    if any(len(mask) != nodes or mask.shape[1] not in (1, splits) or mask.dtype != bool for mask in masks):
        raise DatasetError(f"{where}: train_mask, val_mask and test_mask must be bool, with a row for each of the {nodes} nodes")
    masks = [np.broadcast_to(mask, (nodes, splits)) for mask in masks]
    if np.stack(masks).sum(0).max(initial=0) > 1:
        raise DatasetError(f"{where}: a node is in two parts of one split")
    codes = np.stack([code * mask.astype(np.uint8) for code, mask in enumerate(masks, 1)])  # [3, N, splits]
    return codes.sum(0, dtype=np.uint8).T


def _array(data: Any, key: str, where: str) -> np.ndarray:
    value = getattr(data, key)
    try:
        return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DatasetError(f"{where}: {key} cannot be read ({error})") from error


def _table(array: np.ndarray, key: str, where: str | Path) -> np.ndarray:
    """Rows and columns. Raises DatasetError where there are none, or the values are not numbers."""
    if array.ndim not in (1, 2) or 0 in array.shape[1:] or array.dtype.kind not in "biuf":
        remedy = "; number classes and categories 0, 1, ..." if array.dtype.kind in "SUO" else ""
        raise DatasetError(f"{where}: {key} must be rows of numbers; it is {array.dtype} of shape {list(array.shape)}{remedy}")
    return array[:, None] if array.ndim == 1 else array


def _edges(array: np.ndarray, where: str | Path) -> np.ndarray:
    """Edges int32 [2, E]. Raises DatasetError for another shape and for ids that int32 does not hold."""
    if array.ndim != 2 or array.shape[0] != 2:
        hint = "; transpose it" if array.ndim == 2 and array.shape[1] == 2 else ""
        raise DatasetError(f"{where}: edge_index must be of shape [2, E]; it is {list(array.shape)}{hint}")
    return _whole(array, "edge ids", where).astype(np.int32)


def _whole(array: np.ndarray, what: str, where: str | Path, limit: int = MOST) -> np.ndarray:
    if array.size and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= limit):
        raise DatasetError(f"{where}: {what} must be whole numbers from 0 to {limit - 1}")
    return array


def _typed(arrays: dict[str, np.ndarray], where: str | Path) -> dict[str, np.ndarray]:
    """Types that stay the same from block to block: categories int32, features float32, targets int64 or float32; edges as they are.
    Raises DatasetError where that would change a number."""
    out = {key: np.asarray(value) for key, value in arrays.items()}
    for key in ("x", "edge_attr"):
        if key in out:
            table = _table(out[key], key, where)
            out[key] = (
                table.astype(np.float32) if table.dtype.kind == "f" else _whole(table, f"categories in {key}", where).astype(np.int32)
            )
    for key in ("num_nodes", "num_edges"):
        if _whole(out[key], key, where).ndim != 1:
            raise DatasetError(f"{where}: {key} must be one number per graph; it is of shape {list(out[key].shape)}")
    if (out["num_nodes"] == 0).any():
        raise DatasetError(f"{where}: a graph has no nodes; take it out")
    _table(out["y"], "y", where)
    out["y"] = out["y"].astype(np.float32 if out["y"].dtype.kind == "f" else np.int64)
    if "split" in out:
        out["split"] = compact(_whole(out["split"], "split codes", where, 4))
    return out
