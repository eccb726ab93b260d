"""Read user-supplied torch_geometric datasets and Data objects."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from gt_bench.data.custom.arrays import as_table, check_edge_index, convert_arrays
from gt_bench.data.custom.frames import FORM
from gt_bench.data.custom.reading import Reading
from gt_bench.data.custom.splits import named_column
from gt_bench.data.readers import concatenate_graphs
from gt_bench.utils.errors import DatasetError

if TYPE_CHECKING:
    from torch_geometric.data.data import BaseData

# a Data object, a list of them, or a torch_geometric dataset: what a user's function must return
Graphs: TypeAlias = "BaseData | Iterable[BaseData]"
MASKS = ("train_mask", "val_mask", "test_mask")
BY_EDGES = (
    ": nodes are counted by the edges, so that last nodes without edges are missing; give the Data num_nodes or x"
)
EXPECTED = f"a Data of torch_geometric, a list of them, a dataset of torch_geometric, or {FORM}"
BLOCK = 1000  # graphs in memory at a time


def graphs_of(data: Graphs, where: str) -> "Iterable[BaseData]":
    """Iterate over the graphs of user-supplied data.

    Args:
        data: a Data object, a list of them, or a torch_geometric dataset.
        where: name of the data for error messages.

    Returns:
        The graphs.

    Raises:
        DatasetError: it is something else.
    """
    from torch_geometric.data import Batch
    from torch_geometric.data.data import BaseData

    if isinstance(data, BaseData):
        return data.to_data_list() if isinstance(data, Batch) else [data]
    if not isinstance(data, Iterable) and not hasattr(data, "__getitem__"):
        raise DatasetError(f"{where}: found a {type(data).__name__}; expected {EXPECTED}")
    return cast("Iterable[BaseData]", data)  # Python iterates over an indexed object too


def from_graphs(dataset: Graphs, where: str, reading: Reading) -> Iterator[dict[str, np.ndarray]]:
    """Read Data objects in blocks. Node-level masks [N] or [N, S] become a split.

    Args:
        dataset: as in `graphs_of`.
        where: name of the data for error messages.
        reading: how to read them. Targets of edges are `edge_label`, or y with a row per edge.

    Yields:
        Arguments of `PackedWriter.graphs`, and "by" if the data are split by an attribute.

    Raises:
        DatasetError: a graph is invalid, differs from the others, or there are none.
    """
    level, column, remarks = reading.level, reading.column, reading.remarks
    unread: set[str] = set()
    counted_by_edges, is_split = 0, not reading.own_split

    def read() -> Iterator[dict[str, np.ndarray]]:
        nonlocal counted_by_edges, is_split
        first: dict[str, str] | None = None
        for number, data in enumerate(graphs_of(dataset, where)):
            arrays = _arrays(data, level, f"{where}: graph {number}")
            unread.update(_unread_attributes(data, arrays, level) - {column})
            if column is not None:
                arrays["by"] = _column(data, column, len(arrays["y"]), f"{where}: graph {number}")
            counted_by_edges += nodes_of(data)[1]
            is_split |= "split" in arrays
            form = _form(arrays)
            first = first or form
            for key, expected in first.items():
                if form[key] != expected:
                    raise DatasetError(
                        f"{where}: {key} of graph {number} is {form[key]} and of graph 0 {expected}; "
                        "all graphs need the same"
                    )
            yield arrays
        if first is None:
            raise DatasetError(f"{where}: found no graphs; expected {EXPECTED}")

    graphs = read()
    while block := list(islice(graphs, BLOCK)):
        yield _block(block, where)
    if unread:
        remarks.append(
            f"{where}: {', '.join(sorted(unread))} of the Data {'is' if len(unread) == 1 else 'are'} not read; put "
            "model inputs into x (nodes) or edge_attr (edges)"
        )
    official, of_graphs = hasattr(dataset, "get_idx_split"), level == "graph"
    if not is_split and not reading.of_edges and (official or (of_graphs and unread & {*MASKS})):
        remarks.append(
            f"{where}: {'get_idx_split() of the dataset is' if official else 'masks are'} not read, so that splits are "
            "drawn; to use that split, "
            + (
                "give each Data part = 0, 1 or 2, and --split temporal:part:1,2"
                if of_graphs
                else "set train_mask, val_mask and test_mask of the Data"
            )
        )
    if counted_by_edges:
        remarks.append(
            f"{where}: {counted_by_edges:,} graphs have neither num_nodes nor x: nodes are counted by the edges, so "
            "that last nodes without edges are missing"
        )


def check_single(data: object, where: str) -> None:
    """Raise DatasetError for several graphs in one object, whose targets would be those of one graph."""
    from torch_geometric.data import Batch

    if isinstance(data, Batch):
        raise DatasetError(
            f"{where}: is a Batch of {data.num_graphs} graphs; give the dataset instead of a DataLoader, or "
            "batch.to_data_list()"
        )


def nodes_of(data: "BaseData") -> tuple[int | None, bool]:
    """Count the nodes of a Data object.

    Args:
        data: the Data object.

    Returns:
        The number of nodes, and whether it is only derived from the edges (then last nodes without edges are missing).
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nodes = getattr(data, "num_nodes", None)
    return nodes, any("num_nodes" in str(warning.message) for warning in caught)


def _column(data: "BaseData", column: str, rows: int, where: str) -> np.ndarray:
    """Return the values of an attribute [rows] by which the data are split."""
    if getattr(data, column, None) is None:
        raise named_column(column, [key for key in data.to_dict() if key not in ("x", "edge_index", "y")], where)
    values = np.atleast_1d(_array(data, column, where))
    if values.dtype.kind == "O":  # None, or dates
        values = np.array([str(value) for value in values.tolist()])
    if values.size != rows:
        raise DatasetError(
            f"{where}: {column} has {values.size} values for {rows} targets; a split needs one value for each"
        )
    return values.reshape(-1)


def _unread_attributes(data: "BaseData", arrays: Mapping[str, np.ndarray], level: str) -> set[str]:
    known = {"num_nodes", "x", "edge_index", "edge_attr", *(MASKS if "split" in arrays else ())}
    known |= {_target_key(data, level)} - {None}
    attributes = data.to_dict().items() if hasattr(data, "to_dict") else ()
    return {key for key, value in attributes if value is not None and key not in known}


def _form(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Describe what must be the same in all graphs."""

    def described(key: str) -> str:
        if key not in arrays:
            return "missing"
        kind = "continuous" if arrays[key].dtype.kind == "f" else "categorical"
        return f"{kind}, {arrays[key].shape[1]} wide"

    form = {key: described(key) for key in ("x", "edge_attr")}
    form["y"] = f"{int(np.prod(arrays['y'].shape[1:]))} wide"
    form["train_mask"] = f"of {len(arrays['split'])} splits" if "split" in arrays else "missing"
    return form


def _arrays(data: "BaseData", level: str, where: str) -> dict[str, np.ndarray]:
    """Convert one Data object."""
    from torch_geometric.data.data import BaseData

    def has(key: str) -> bool:
        return getattr(data, key, None) is not None

    check_single(data, where)
    target = _target_key(data, level)
    missing = [key for key in ("edge_index", *([target] if target else [])) if not has(key)]
    if missing and not isinstance(data, BaseData) and not has("edge_index"):
        raise DatasetError(f"{where}: found a {type(data).__name__}; expected {EXPECTED}")
    if missing:
        hint = ""
        if others := [key for key in ("hyperedge_index", "edge_label", "edge_label_index") if has(key)]:
            hint = f"; it has {', '.join(others)}, but user-supplied data need targets per node, per graph or per "
            hint += "column of edge_index (--task edge-classification reads edge_label [E])"
        elif others := [key for key in ("adj", "adj_t") if has(key)]:
            hint = f"; it has {others[0]}: remove the transform that makes it (ToSparseTensor, ToDense)"
        elif type(data).__name__ == "HeteroData":
            hint = "; convert several node types to one graph with to_homogeneous()"
        raise DatasetError(
            f"{where}: a {type(data).__name__} without {' and '.join(missing)}; a graph needs edge_index and y{hint}"
        )
    edge_index = check_edge_index(_array(data, "edge_index", where), where)
    if target == "edge_label" and has("edge_label_index"):
        pairs = _array(data, "edge_label_index", where)
        if not np.array_equal(pairs, edge_index):
            raise DatasetError(
                f"{where}: edge_label belongs to edge_label_index, whose pairs are not the edges; user-supplied data "
                "need a label per column of edge_index. For link prediction, give the Data before RandomLinkSplit and "
                "use --task link-prediction, which draws splits and negatives"
            )
    nodes, by_edges = nodes_of(data)
    if not isinstance(nodes, int) or nodes < 1:
        raise DatasetError(f"{where}: has no nodes")
    edges = edge_index.shape[1]
    arrays = {"num_nodes": np.array([nodes]), "edge_index": edge_index}
    if level == "link":
        arrays["y"] = np.ones((edges, 1), np.int64)
    labelled = nodes if level == "node" else edges
    for key, rows in (("x", nodes), ("edge_attr", edges), (target or "y", labelled)):
        if not has(key) or (key == "y" and target is None):
            continue
        array = _array(data, key, where)
        if key == "y" and level == "graph":
            arrays["y"] = array.reshape(1, -1)
            continue
        arrays["y" if key == target else key] = as_table(array, key, where)
        if key == "edge_attr" and not np.isfinite(array).all():
            raise DatasetError(f"{where}: {key} contains a number that is not finite; replace it, or remove the graph")
        if key == "x" and np.isinf(array).any():  # NaN is a missing value
            raise DatasetError(f"{where}: x contains an infinite number; replace it (NaN is a missing value)")
        if len(array) != rows:
            raise DatasetError(f"{where}: {key} has {len(array)} rows, expected {rows}{BY_EDGES if by_edges else ''}")
    if edge_index.size and edge_index.max() >= nodes:
        edge = int(np.flatnonzero((edge_index >= nodes).any(0))[0])
        raise DatasetError(
            f"{where}: edge {edge} names node {edge_index[:, edge].max()} of {nodes} nodes, which are numbered from 0 "
            f"to {nodes - 1}; correct edge_index or num_nodes"
        )
    if level == "node" and any(map(has, MASKS)):
        arrays["split"] = _masks(data, nodes, where)
    if level in ("edge", "link") and any(
        has(mask) and edges != nodes and len(getattr(data, mask)) == edges for mask in MASKS
    ):
        arrays["split"] = _masks(data, edges, where, "edge")
    return arrays


def _target_key(data: "BaseData", level: str) -> str | None:
    """Return the attribute with the targets. None for link prediction."""
    if level == "edge" and getattr(data, "edge_label", None) is not None:
        return "edge_label"
    return None if level == "link" else "y"


def _block(graphs: Sequence[Mapping[str, np.ndarray]], where: str) -> dict[str, np.ndarray]:
    arrays = concatenate_graphs(graphs)
    arrays.setdefault("x", np.zeros((arrays["num_nodes"].sum(), 1), np.uint8))
    y = arrays["y"]
    arrays["y"] = y[:, 0] if y.shape[1] == 1 else y
    return convert_arrays(arrays, where)


def _masks(data: "BaseData", nodes: int, where: str, level: str = "node") -> np.ndarray:
    """Convert masks [N] or [N, S] of N nodes or edges to split codes [S, N]."""
    missing = [mask for mask in MASKS if getattr(data, mask, None) is None]
    if missing:
        found = " and ".join(mask for mask in MASKS if mask not in missing)
        raise DatasetError(
            f"{where}: has {found} but not {' and '.join(missing)}; add all three (bool, a row per {level}), or remove "
            f"{found}: then splits are drawn"
        )
    masks = [as_table(_array(data, mask, where), mask, where) for mask in MASKS]  # [N, S] or [N, 1]
    splits = max(mask.shape[1] for mask in masks)  # wikics has one test mask for all splits
    if any(len(mask) != nodes or mask.shape[1] not in (1, splits) or mask.dtype != bool for mask in masks):
        raise DatasetError(
            f"{where}: train_mask, val_mask and test_mask must be bool, with a row for each of the {nodes} {level}s"
        )
    masks = [np.broadcast_to(mask, (nodes, splits)) for mask in masks]
    if np.stack(masks).sum(0).max(initial=0) > 1:
        raise DatasetError(f"{where}: a {level} is in two parts of one split")
    codes = np.stack([code * mask.astype(np.uint8) for code, mask in enumerate(masks, 1)])  # [3, N, S]
    return codes.sum(0, dtype=np.uint8).T


def _array(data: "BaseData", key: str, where: str) -> np.ndarray:
    value = getattr(data, key)
    try:
        return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DatasetError(
            f"{where}: {key} cannot be read ({error}); use a dense tensor of float32 or int64"
        ) from error
