"""Your own data as a dataset: a folder of CSV files, an npz file, or any torch_geometric dataset. See docs/add_a_dataset.md.

DATASETS = [custom_dataset("mine", "path/to/folder", task="graph-regression", metric="mae")]
"""

import csv
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stages.datasets.inspection import DatasetError
from stages.datasets.packed import PackedWriter, compact
from stages.datasets.readers import read_npz
from stages.datasets.spec import DatasetSpec

BLOCK = 1000  # graphs of a torch_geometric dataset held in memory at once
CODES = {"": 0, "none": 0, "train": 1, "val": 2, "test": 3}
LEVELS = {"node-classification": "node", "node-regression": "node"}
ARRAYS = ("num_nodes", "num_edges", "x", "edge_index", "edge_attr", "y", "split")


def custom_dataset(
    name: str,
    source: str | Path | Callable[[], Iterable[Any]],
    *,
    task: str,
    metric: str,
    split: tuple[float, float, float] = (0.8, 0.1, 0.1),
    num_splits: int = 1,
    seed: int = 0,
    citation: str = "your own",
    licence: str = "your own",
    notes: tuple[str, ...] = (),
) -> DatasetSpec:
    """An entry for a family file's `DATASETS`.

    Args:
        source: a folder with nodes.csv, edges.csv and, at graph level, graphs.csv; an npz file with the arrays of `pack`; or a function
            without arguments that returns a torch_geometric dataset or a list of Data (it is called when the dataset is prepared).
        task: node-classification, node-regression, graph-classification, graph-regression or graph-multilabel.
        split: shares of train, val and test where the data name no split of their own; `num_splits` of them, seeds `seed`, `seed` + 1, ...
    """
    level = LEVELS.get(task, "graph")
    reader = _Reader(source, level, tuple(split), num_splits, seed)
    return DatasetSpec(
        name=name,
        family="custom",
        task=task,
        metric=metric,
        level=level,
        split_kind="node" if level == "node" else "graph",
        prepare=prepare,
        arguments={"reader": reader, "content": reader.content()},
        citation=citation,
        licence=licence,
        notes=notes,
    )


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    reader: _Reader = spec.arguments["reader"]
    with PackedWriter(folder) as writer:
        facts = _Facts(spec, reader)
        for block in reader.blocks():
            facts.see(block)
            writer.graphs(**{key: value for key, value in block.items() if key != "split"})
        split = facts.split()
        writer.append("split", split.astype(np.uint8))
        header = spec.header(in_dim=facts.dim("x"), edge_dim=facts.dim("edge_attr"), out_dim=facts.out_dim, num_splits=len(split))
        provenance = header.provenance | {"arguments": {"content": spec.arguments["content"]}}
        writer.finish(header.model_copy(update={"provenance": provenance}))


@dataclass(frozen=True)
class _Reader:
    source: str | Path | Callable[[], Iterable[Any]]
    level: str
    shares: tuple[float, float, float]
    num_splits: int
    seed: int

    def content(self) -> str:
        """A digest of what is read: the files' bytes, or the text of the function."""
        digest = hashlib.sha256(repr((self.shares, self.num_splits, self.seed)).encode())
        if callable(self.source):
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
        if callable(self.source):
            yield from _from_pyg(self.source(), self.level)
        elif Path(self.source).is_dir():
            yield _from_csv(Path(self.source), self.level)
        elif Path(self.source).suffix == ".npz":
            arrays = read_npz(Path(self.source))
            unknown = set(arrays) - set(ARRAYS)
            if unknown or not {"x", "edge_index", "y"} <= set(arrays):
                raise DatasetError(
                    f"{self.source}: holds {', '.join(sorted(arrays))}; it may hold {', '.join(ARRAYS)} and needs x, edge_index, y"
                )
            arrays.setdefault("num_nodes", np.array([len(arrays["x"])]))
            arrays.setdefault("num_edges", np.array([arrays["edge_index"].shape[1]]))
            yield _typed(arrays)
        else:
            raise DatasetError(f"{self.source}: neither a folder with nodes.csv and edges.csv nor an npz file")


class _Facts:
    """Widths, vocabularies, classes and splits, gathered while blocks go by."""

    def __init__(self, spec: DatasetSpec, reader: _Reader):
        self.spec, self.reader = spec, reader
        self.widths: dict[str, Any] = {}
        self.splits: list[np.ndarray] = []
        self.count = self.out_dim = 0

    def see(self, block: Mapping[str, np.ndarray]) -> None:
        for key in ("x", "edge_attr"):
            if key in block:
                values = block[key]
                if values.dtype.kind == "f":
                    self.widths[key] = values.shape[1]
                else:
                    most = values.max(axis=0, initial=0).astype(np.int64) + 1
                    self.widths[key] = np.maximum(self.widths.get(key, 0), most)
        y = block["y"]
        classes = self.spec.task.endswith("-classification")
        if classes and y.dtype.kind == "f":
            raise DatasetError(f"dataset {self.spec.name!r}: {self.spec.task} needs whole numbers 0, 1, ... as targets")
        self.out_dim = max(self.out_dim, int(y.max(initial=0)) + 1 if classes else y.shape[1] if y.ndim > 1 else 1)
        self.count += len(y)
        if "split" in block:
            self.splits.append(np.atleast_2d(block["split"]))

    def dim(self, key: str) -> int | list[int] | None:
        width = self.widths.get(key)
        return width.tolist() if isinstance(width, np.ndarray) else width

    def split(self) -> np.ndarray:
        """Codes [S, rows]: the data's own, or random ones."""
        if self.splits:
            return np.concatenate(self.splits, axis=1)
        train, val, test = self.reader.shares
        if min(train, val, test) < 0 or abs(train + val + test - 1) > 1e-6:
            raise DatasetError(f"dataset {self.spec.name!r}: the shares of a split must add up to 1; got {self.reader.shares}")
        held = [round(self.count * val), round(self.count * test)]
        codes = np.repeat([1, 2, 3], [self.count - sum(held), *held])
        return np.stack([np.random.default_rng(self.reader.seed + s).permutation(codes) for s in range(self.reader.num_splits)])


def _from_csv(folder: Path, level: str) -> dict[str, np.ndarray]:
    """nodes.csv: [graph,] features..., at node level y and perhaps split. edges.csv: [graph,] source, target, features...
    graphs.csv: y... and perhaps split, one row per graph. Rows of a graph stand together, in the order of the graphs."""
    nodes, edges = _columns(folder / "nodes.csv"), _columns(folder / "edges.csv")
    targets = nodes if level == "node" else _columns(folder / "graphs.csv")
    graphs = 1 if "graph" not in nodes else int(nodes["graph"][-1]) + 1 if level == "node" else len(next(iter(targets.values())))
    arrays = {"num_nodes": _per_graph(folder / "nodes.csv", nodes, graphs), "num_edges": _per_graph(folder / "edges.csv", edges, graphs)}
    if not {"source", "target"} <= set(edges):
        raise DatasetError(f"{folder / 'edges.csv'}: needs the columns source and target")
    arrays["edge_index"] = np.stack([edges.pop("source"), edges.pop("target")])
    names = [name for name in targets if name == "y" or name.startswith("y_")]
    if not names:
        raise DatasetError(f"{folder}: no column y (or y_1, y_2, ...) with the targets")
    y = [targets.pop(name) for name in names]
    arrays["y"] = y[0] if names == ["y"] else np.stack(y, axis=1)
    if "split" in targets:
        arrays["split"] = targets.pop("split")
    arrays["x"] = np.stack(list(nodes.values()), axis=1) if nodes else np.zeros((int(arrays["num_nodes"].sum()), 1), np.int64)
    if edges:
        arrays["edge_attr"] = np.stack(list(edges.values()), axis=1)
    return _typed(arrays)


def _columns(path: Path) -> dict[str, np.ndarray]:
    """Columns by name; whole numbers stay whole, a split column becomes codes. Raises DatasetError with file and line."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            names, *rows = [row for row in csv.reader(file) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot be read ({error})") from error
    columns = {}
    for number, row in enumerate(rows, 2):
        if len(row) != len(names):
            raise DatasetError(f"{path}: line {number} has {len(row)} columns where {len(names)} are named")
    for index, name in enumerate(name.strip() for name in names):
        cells = [row[index].strip() for row in rows]
        if name == "split":
            unknown = sorted(set(cells) - set(CODES))
            if unknown:
                raise DatasetError(f"{path}: unknown split {unknown[0]!r}; known: train, val, test, none")
            columns[name] = np.array([CODES[cell] for cell in cells], np.uint8)
            continue
        try:
            columns[name] = np.array([int(cell) for cell in cells])
        except (ValueError, OverflowError):
            try:
                columns[name] = np.array([float(cell) for cell in cells])
            except ValueError as error:
                raise DatasetError(f"{path}: column {name}: {error}") from error
    return columns


def _per_graph(path: Path, columns: dict[str, np.ndarray], graphs: int) -> np.ndarray:
    rows = len(next(iter(columns.values())))
    graph = columns.pop("graph", np.zeros(rows, np.int64))
    if graph.dtype.kind != "i" or (graph.size and (graph.min() < 0 or graph.max() >= graphs)):
        raise DatasetError(f"{path}: column graph must number the {graphs} graphs from 0")
    if (np.diff(graph) < 0).any():
        raise DatasetError(f"{path}: rows of a graph must stand together, in the order of the graphs")
    return np.bincount(graph, minlength=graphs)


def _from_pyg(dataset: Iterable[Any], level: str) -> Iterator[dict[str, np.ndarray]]:
    """Data objects in blocks of whole graphs. A node-level mask [N] or [N, S] is a split."""
    block: list[Any] = []
    for data in dataset:
        block.append(data)
        if len(block) == BLOCK:
            yield _block(block, level)
            block = []
    if block:
        yield _block(block, level)


def _block(graphs: Sequence[Any], level: str) -> dict[str, np.ndarray]:
    for data in graphs:
        if getattr(data, "edge_index", None) is None or getattr(data, "y", None) is None:
            raise DatasetError("a torch_geometric graph needs edge_index and y")
    featureless = getattr(graphs[0], "x", None) is None
    arrays = {
        "num_nodes": np.array([data.num_nodes for data in graphs]),
        "num_edges": np.array([data.edge_index.size(1) for data in graphs]),
        "edge_index": np.concatenate([data.edge_index.numpy() for data in graphs], axis=1),
    }
    arrays["x"] = np.zeros((arrays["num_nodes"].sum(), 1), np.uint8) if featureless else np.concatenate([_table(data.x) for data in graphs])
    if getattr(graphs[0], "edge_attr", None) is not None:
        arrays["edge_attr"] = np.concatenate([_table(data.edge_attr) for data in graphs])
    y = np.concatenate([data.y.numpy() if level == "node" else data.y.reshape(1, -1).numpy() for data in graphs])
    arrays["y"] = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if level == "node" and getattr(graphs[0], "train_mask", None) is not None:
        arrays["split"] = np.concatenate([_masks(data) for data in graphs], axis=1)
    return _typed(arrays)


def _masks(data: Any) -> np.ndarray:
    masks = [getattr(data, f"{part}_mask").numpy() for part in ("train", "val", "test")]
    masks = [mask[:, None] if mask.ndim == 1 else mask for mask in masks]  # [N, S]; wikics has one test mask for all
    splits = max(mask.shape[1] for mask in masks)
    codes = sum(code * np.broadcast_to(mask, (len(mask), splits)).astype(np.uint8) for code, mask in enumerate(masks, 1))
    if codes.max(initial=0) > 3 or sum(np.broadcast_to(m, (len(m), splits)).astype(int) for m in masks).max(initial=0) > 1:
        raise DatasetError("a node is in two parts of one split")
    return codes.T


def _table(values: Any) -> np.ndarray:
    array = values.numpy()
    return array[:, None] if array.ndim == 1 else array


def _typed(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Types that stay the same from block to block: ids and categories int32, features float32, targets int64 or float32."""
    out = {key: np.asarray(value) for key, value in arrays.items()}
    out["edge_index"] = out["edge_index"].astype(np.int32)
    for key in ("x", "edge_attr"):
        if key in out:
            table = out[key][:, None] if out[key].ndim == 1 else out[key]
            out[key] = table.astype(np.float32 if table.dtype.kind == "f" else np.int32)
    out["y"] = out["y"].astype(np.float32 if out["y"].dtype.kind == "f" else np.int64)
    if "split" in out:
        out["split"] = compact(out["split"])
    return out
