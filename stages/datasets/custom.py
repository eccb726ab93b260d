"""Your own data as a dataset: a folder of CSV files, an npz file, or any torch_geometric dataset. See docs/add_a_dataset.md.

DATASETS = [custom_dataset("mine", "path/to/folder", task="graph-regression", metric="mae")]
"""

import csv
import difflib
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stages.datasets.packed import PackedWriter, compact
from stages.datasets.readers import read_npz
from stages.datasets.spec import DatasetSpec
from stages.errors import DatasetError

BLOCK = 1000  # graphs of a torch_geometric dataset held in memory at once
CODES = {"": 0, "none": 0, "train": 1, "val": 2, "test": 3}
_CLASSES = ("accuracy", "balanced-accuracy", "f1-macro", "f1-micro", "roc-auc")
METRICS = {  # task -> the metrics that fit it
    "graph-classification": _CLASSES,
    "graph-multilabel": ("ap", "roc-auc"),
    "graph-regression": ("mae", "mse"),
    "node-classification": _CLASSES,
}
MOST_CLASSES = 100_000
MOST = 2**31  # ids and categories are stored as int32
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
        task: node-classification, graph-classification, graph-regression or graph-multilabel.
        metric: one that fits the task, see `METRICS`.
        split: shares of train, val and test where the data name no split of their own; `num_splits` of them, seeds `seed`, `seed` + 1, ...

    Raises DatasetError for a task, metric, split or source that cannot be.
    """
    if task not in METRICS:
        raise DatasetError(f"dataset {name!r}: no task {task!r}{_near(task, METRICS)}; known for your own data: {', '.join(METRICS)}")
    if metric not in METRICS[task]:
        known = METRICS[task]
        raise DatasetError(f"dataset {name!r}: {task} has no metric {metric!r}{_near(metric, known)}; it takes {', '.join(known)}")
    if not isinstance(num_splits, int) or num_splits < 1:
        raise DatasetError(f"dataset {name!r}: num_splits must be 1 or more; got {num_splits!r}")
    if len(tuple(split)) != 3:
        raise DatasetError(f"dataset {name!r}: split must be the shares of train, val and test; got {split!r}")
    if callable(source) and not inspect.isfunction(source):
        raise DatasetError(
            f"dataset {name!r}: the source must be a function written with def, whose text can be read; got a {type(source).__name__}: "
            "write def load(): return ... and give load"
        )
    level = "node" if task.startswith("node-") else "graph"
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
        facts.check_targets()
        if spec.metric == "roc-auc" and spec.task.endswith("-classification") and facts.out_dim != 2:
            raise DatasetError(f"dataset {spec.name!r}: the metric roc-auc needs two classes; the targets have {facts.out_dim}")
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
            yield from _from_pyg(self.source(), self.level, f"{self.source.__module__}.{self.source.__qualname__}()")
        elif Path(self.source).is_dir():
            yield _from_csv(Path(self.source), self.level)
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


class _Facts:
    """Widths, vocabularies, classes and splits, gathered while blocks go by."""

    def __init__(self, spec: DatasetSpec, reader: _Reader):
        self.spec, self.reader = spec, reader
        self.widths: dict[str, Any] = {}
        self.splits: list[np.ndarray] = []
        self.count = self.out_dim = 0
        self.known: set[int] = set()  # classes that occur
        self.labelled = False

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
        self._see_targets(y)
        self.out_dim = max(self.out_dim, int(y.max(initial=0)) + 1 if classes else y.shape[1] if y.ndim > 1 else 1)
        self.count += len(y)
        if "split" in block:
            self.splits.append(np.atleast_2d(block["split"]))

    def _see_targets(self, y: np.ndarray) -> None:
        name, task = self.spec.name, self.spec.task
        if task.endswith("-classification"):
            if y.size and y.max() >= MOST_CLASSES:
                raise DatasetError(
                    f"dataset {name!r}: a label is {y.max()}; classes are numbered 0, 1, ... and fewer than {MOST_CLASSES:,}"
                )
            if y.size and y.min() < -1:
                raise DatasetError(f"dataset {name!r}: a label is {y.min()}; classes are numbered from 0, and -1 is none")
            self.known.update(np.unique(y[y >= 0]).tolist())
            return
        self.labelled = self.labelled or y.dtype.kind != "f" or not np.isnan(y).all()
        if task == "graph-multilabel":
            values = np.unique(y if y.dtype.kind != "f" else y[~np.isnan(y)])
            wrong = values[(values != 0) & (values != 1)]
            if wrong.size:
                raise DatasetError(f"dataset {name!r}: a target is {wrong[0]:g}; labels of {task} are 0 and 1 (empty or NaN: not known)")

    def check_targets(self) -> None:
        """Raises DatasetError for targets that teach nothing."""
        if self.spec.task.endswith("-classification"):
            if len(self.known) < 2:
                only = f"all labels are {next(iter(self.known))}" if self.known else "there is no label"
                raise DatasetError(f"dataset {self.spec.name!r}: {only}; {self.spec.task} needs two classes or more")
        elif not self.labelled:
            raise DatasetError(f"dataset {self.spec.name!r}: every target is empty or NaN")

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
    paths = [folder / "nodes.csv", folder / "edges.csv", folder / "graphs.csv"]
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
    arrays["x"] = _features(paths[0], nodes) if nodes else np.zeros((int(num_nodes.sum()), 1), np.int64)
    if edges:
        arrays["edge_attr"] = _features(paths[1], edges)
    return _typed(arrays, folder)


def _features(path: Path, columns: dict[str, np.ndarray]) -> np.ndarray:
    whole = [name for name, column in columns.items() if column.dtype.kind != "f"]
    if 0 < len(whole) < len(columns):
        raise DatasetError(
            f"{path}: whole numbers (categories) in {', '.join(whole)} and numbers with a point (continuous) in the other features; all must "
            "be of one kind: write 12.0 for a 12 that is a quantity, and a category as one column of 0.0 and 1.0 for each of its values"
        )
    return np.stack(list(columns.values()), axis=1)


def _columns(path: Path) -> dict[str, np.ndarray]:
    """Columns by name; whole numbers stay whole, a split column becomes codes. Raises DatasetError with file and line."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            names, *rows = [row for row in csv.reader(file) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot be read ({error})") from error
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
            try:
                columns[name] = np.array([float(cell) for cell in cells])
            except ValueError as error:
                raise DatasetError(f"{path}: column {name}: {str(error)[:200]}") from error
    return columns


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


def _from_pyg(dataset: Iterable[Any], level: str, where: str) -> Iterator[dict[str, np.ndarray]]:
    """Data objects in blocks of whole graphs. A node-level mask [N] or [N, S] is a split."""
    if not isinstance(dataset, Iterable) and not hasattr(dataset, "__getitem__"):
        raise DatasetError(f"{where}: returned {type(dataset).__name__}; return a torch_geometric dataset or a list of Data")
    block: list[dict[str, np.ndarray]] = []
    first = None
    for number, data in enumerate(dataset):
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
    if getattr(data, "edge_index", None) is None or getattr(data, "y", None) is None:
        raise DatasetError(f"{where}: a {type(data).__name__}; a torch_geometric graph needs edge_index and y")
    nodes, edge_index = data.num_nodes, _edges(_array(data, "edge_index", where), where)
    if not isinstance(nodes, int) or nodes < 1:
        raise DatasetError(f"{where}: has no nodes")
    arrays = {"num_nodes": np.array([nodes]), "num_edges": np.array([edge_index.shape[1]]), "edge_index": edge_index}
    rows = {"x": nodes, "edge_attr": edge_index.shape[1], "y": nodes}
    for key in rows:
        if getattr(data, key, None) is not None:
            array = _array(data, key, where)
            arrays[key] = array.reshape(1, -1) if key == "y" and level == "graph" else _table(array, key, where)
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
    if sum(mask.astype(int) for mask in masks).max(initial=0) > 1:
        raise DatasetError(f"{where}: a node is in two parts of one split")
    return sum(code * mask.astype(np.uint8) for code, mask in enumerate(masks, 1)).T


def _array(data: Any, key: str, where: str) -> np.ndarray:
    value = getattr(data, key)
    try:
        return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DatasetError(f"{where}: {key} cannot be read ({error})") from error


def _table(array: np.ndarray, key: str, where: Any) -> np.ndarray:
    """Rows and columns. Raises DatasetError where there are none, or the values are not numbers."""
    if array.ndim not in (1, 2) or 0 in array.shape[1:] or array.dtype.kind not in "biuf":
        raise DatasetError(f"{where}: {key} must be rows of numbers; it is {array.dtype} of shape {list(array.shape)}")
    return array[:, None] if array.ndim == 1 else array


def _edges(array: np.ndarray, where: Any) -> np.ndarray:
    """Edges int32 [2, E]. Raises DatasetError for another shape and for ids that int32 does not hold."""
    if array.ndim != 2 or array.shape[0] != 2:
        hint = "; transpose it" if array.ndim == 2 and array.shape[1] == 2 else ""
        raise DatasetError(f"{where}: edge_index must be of shape [2, E]; it is {list(array.shape)}{hint}")
    return _whole(array, "edge ids", where).astype(np.int32)


def _whole(array: np.ndarray, what: str, where: Any, limit: int = MOST) -> np.ndarray:
    if array.size and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= limit):
        raise DatasetError(f"{where}: {what} must be whole numbers from 0 to {limit - 1}")
    return array


def _typed(arrays: dict[str, np.ndarray], where: Any) -> dict[str, np.ndarray]:
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


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, 2)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""
