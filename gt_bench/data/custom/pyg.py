"""Reading a user's own torch_geometric dataset, or list of its graphs."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from gt_bench.data.custom.arrays import edges_of, table_of, typed
from gt_bench.utils.errors import DatasetError

if TYPE_CHECKING:
    from torch_geometric.data.data import BaseData

# a Data, a list of them, or a torch_geometric dataset: what a user's function is asked to return
Graphs: TypeAlias = "BaseData | Iterable[BaseData]"
MASKS = ("train_mask", "val_mask", "test_mask")
BY_EDGES = ": the nodes are counted by the edges, and those at the end without an edge are missing; give the Data num_nodes or x"
BLOCK = 1000  # graphs of a torch_geometric dataset held in memory at once


def graphs_of(data: Graphs, where: str) -> "Iterable[BaseData]":
    """The graphs of a torch_geometric dataset or a list; of a single Data itself. Raises DatasetError for anything else."""
    from torch_geometric.data import Batch
    from torch_geometric.data.data import BaseData

    if isinstance(data, BaseData):
        return data.to_data_list() if isinstance(data, Batch) else [data]
    if not isinstance(data, Iterable) and not hasattr(data, "__getitem__"):
        raise DatasetError(
            f"{where}: returned {type(data).__name__}; return a Data, a list of Data or a torch_geometric dataset"
        )
    return cast("Iterable[BaseData]", data)  # one that is indexed alone can be iterated too


def from_graphs(dataset: Graphs, level: str, where: str, remarks: list[str]) -> Iterator[dict[str, np.ndarray]]:
    """Data objects in blocks of whole graphs. A node-level mask [N] or [N, S] is a split. `remarks`: gets what is not read."""
    block: list[dict[str, np.ndarray]] = []
    first = None
    unread: set[str] = set()
    counted = 0  # graphs whose nodes only the edges tell
    for number, data in enumerate(graphs_of(dataset, where)):
        arrays = _arrays(data, level, f"{where}: graph {number}")
        unread |= _unread(data, arrays)
        counted += nodes_of(data)[1]
        form = _form(arrays)
        first = first or form
        if form != first:
            key = next(key for key in first if form[key] != first[key])
            raise DatasetError(
                f"{where}: {key} of graph {number} is {form[key]} and of graph 0 {first[key]}; all graphs need the same"
            )
        block.append(arrays)
        if len(block) == BLOCK:
            yield _block(block, where)
            block = []
    if block:
        yield _block(block, where)
    if first is None:
        raise DatasetError(f"{where}: returned no graphs; return a torch_geometric dataset or a list of Data")
    if unread:
        remarks.append(
            f"{where}: {', '.join(sorted(unread))} of the Data {'is' if len(unread) == 1 else 'are'} not read; put what a model should see into x (nodes) or "
            "edge_attr (edges)"
        )
    if counted:
        remarks.append(
            f"{where}: {counted:,} graphs have neither num_nodes nor x: their nodes are counted by their edges, those without an edge are missing"
        )


def nodes_of(data: "BaseData") -> tuple[int | None, bool]:
    """(nodes of a Data object, whether they are only counted by its edges: those at the end without edges are missing then)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nodes = getattr(data, "num_nodes", None)
    return nodes, any("num_nodes" in str(warning.message) for warning in caught)


def _unread(data: "BaseData", arrays: Mapping[str, np.ndarray]) -> set[str]:
    """Names of what a Data object has beside `arrays`."""
    known = {"num_nodes", "x", "edge_index", "edge_attr", "y", *(MASKS if "split" in arrays else ())}
    return (
        {key for key, value in data.to_dict().items() if value is not None and key not in known}
        if hasattr(data, "to_dict")
        else set()
    )


def _form(arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
    """What must be the same in all graphs of a dataset."""
    form = {}
    for key in ("x", "edge_attr"):
        array = arrays.get(key)
        form[key] = (
            "absent"
            if array is None
            else f"{'continuous' if array.dtype.kind == 'f' else 'categorical'}, {array.shape[1]} wide"
        )
    form["y"] = f"{int(np.prod(arrays['y'].shape[1:]))} wide"
    form["train_mask"] = f"of {len(arrays['split'])} splits" if "split" in arrays else "absent"
    return form


def _arrays(data: "BaseData", level: str, where: str) -> dict[str, np.ndarray]:
    """The arrays of one Data object."""
    lacking = [key for key in ("edge_index", "y") if getattr(data, key, None) is None]
    if lacking:
        hint, has = "", lambda key: getattr(data, key, None) is not None
        if others := [key for key in ("hyperedge_index", "edge_label", "edge_label_index") if has(key)]:
            hint = f"; it has {', '.join(others)}, and of one's own data the benchmark knows targets per node and per graph alone"
        elif others := [key for key in ("adj", "adj_t") if has(key)]:
            hint = f"; it has {others[0]}: leave out the transform that makes it (ToSparseTensor, ToDense)"
        elif type(data).__name__ == "HeteroData":
            hint = "; of several kinds of nodes, to_homogeneous() makes one graph"
        raise DatasetError(
            f"{where}: a {type(data).__name__} without {' and '.join(lacking)}; a torch_geometric graph needs edge_index and y{hint}"
        )
    edge_index = edges_of(_array(data, "edge_index", where), where)
    nodes, counted = nodes_of(data)
    if not isinstance(nodes, int) or nodes < 1:
        raise DatasetError(f"{where}: has no nodes")
    arrays = {"num_nodes": np.array([nodes]), "num_edges": np.array([edge_index.shape[1]]), "edge_index": edge_index}
    rows = {"x": nodes, "edge_attr": edge_index.shape[1], "y": nodes}
    for key in rows:
        if getattr(data, key, None) is not None:
            array = _array(data, key, where)
            arrays[key] = array.reshape(1, -1) if key == "y" and level == "graph" else table_of(array, key, where)
            if key != "y" and not np.isfinite(array).all():
                raise DatasetError(
                    f"{where}: {key} holds a number that is not finite; put one in its place, or take the graph out"
                )
            if len(arrays[key]) != rows[key] and not (key == "y" and level == "graph"):
                raise DatasetError(
                    f"{where}: {key} has {len(arrays[key])} rows where {rows[key]} are needed{BY_EDGES if counted else ''}"
                )
    if edge_index.size and edge_index.max() >= nodes:
        row = int(np.flatnonzero((edge_index >= nodes).any(0))[0])
        raise DatasetError(
            f"{where}: edge {row} names node {edge_index[:, row].max()} of {nodes} nodes; nodes are numbered from 0 to {nodes - 1}: correct edge_index or num_nodes"
        )
    if level == "node" and any(getattr(data, mask, None) is not None for mask in MASKS):
        arrays["split"] = _masks(data, nodes, where)
    return arrays


def _block(graphs: Sequence[Mapping[str, np.ndarray]], where: str) -> dict[str, np.ndarray]:
    arrays = {
        key: np.concatenate([graph[key] for graph in graphs], axis=int(key in ("edge_index", "split")))
        for key in graphs[0]
    }
    arrays.setdefault("x", np.zeros((arrays["num_nodes"].sum(), 1), np.uint8))
    y = arrays["y"]
    arrays["y"] = y[:, 0] if y.shape[1] == 1 else y
    return typed(arrays, where)


def _masks(data: "BaseData", nodes: int, where: str) -> np.ndarray:
    missing = [mask for mask in MASKS if getattr(data, mask, None) is None]
    if missing:
        there = [mask for mask in MASKS if mask not in missing]
        raise DatasetError(
            f"{where}: has {' and '.join(there)} and no {' and no '.join(missing)}; give it all three (bool, a row per node), or take out {' and '.join(there)}: "
            "then splits are drawn"
        )
    masks = [table_of(_array(data, f"{part}_mask", where), f"{part}_mask", where) for part in ("train", "val", "test")]
    # [N, S]; wikics has one test mask for all
    splits = max(mask.shape[1] for mask in masks)
    if any(len(mask) != nodes or mask.shape[1] not in (1, splits) or mask.dtype != bool for mask in masks):
        raise DatasetError(
            f"{where}: train_mask, val_mask and test_mask must be bool, with a row for each of the {nodes} nodes"
        )
    masks = [np.broadcast_to(mask, (nodes, splits)) for mask in masks]
    if np.stack(masks).sum(0).max(initial=0) > 1:
        raise DatasetError(f"{where}: a node is in two parts of one split")
    codes = np.stack([code * mask.astype(np.uint8) for code, mask in enumerate(masks, 1)])  # [3, N, splits]
    return codes.sum(0, dtype=np.uint8).T


def _array(data: "BaseData", key: str, where: str) -> np.ndarray:
    value = getattr(data, key)
    try:
        return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DatasetError(
            f"{where}: {key} cannot be read ({error}); give a dense tensor of float32 or int64"
        ) from error
