"""Checks of the parts of a GraphBatch: shapes, types, devices, offsets, and numbers of nodes and edges."""

from typing import Any

import torch
from torch import Tensor

from gt_models.layers.static_shapes import needs_static_shapes

# what the rows of each array of `gt_models.encodings` are, and those of `gt_models.layers.subgraphs`
ROWS = {
    "laplacian_eigenvectors": "node", "second_eigenvector": "node", "rwse": "node", "node_identifiers": "node",
    "degree": "node", "position": "node", "hops": "node", "expander": "node", "number": "node", "target": "node",
    "rrwp": "pair", "shortest_path_distance": "pair", "shortest_path_edges": "pair",
    "laplacian_eigenvalues": "graph", "expander_gap": "graph", "order": "graph",
}  # fmt: skip
# arrays of integers: what their numbers are
_NUMBERS = {
    "shortest_path_distance": "numbers of edges, or -1",
    "shortest_path_edges": "edges of the pair's graph, numbered within the batch, or -1",
    "expander": "nodes of the row's graph, numbered within it, or -1",
    "number": "nodes, numbered within a graph",
}


class BatchError(ValueError):
    """A part of a batch is missing or does not fit the others.

    Attributes:
        part: its name: an attribute of `GraphBatch` or of a torch_geometric Data, or an encoding.
    """

    def __init__(self, message: str, part: str = ""):
        super().__init__(message)
        self.part = part


def _is_index(values: Tensor) -> bool:
    return not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)


def _check_device(name: str, value: Tensor, ptr: Tensor) -> None:
    if value.device != ptr.device:
        raise BatchError(f"{name} is on {value.device} and ptr on {ptr.device}: put all tensors on one device", name)


def check_shapes(x: Tensor, edges: Tensor, ptr: Tensor, edge_attr: Tensor | None) -> None:
    """Check what needs no value: shapes, types and devices.

    Raises:
        BatchError: they do not fit.
    """
    if edges.dim() != 2 or edges.size(0) != 2 or not _is_index(edges):
        raise BatchError(f"edge_index is {edges.dtype} of shape {tuple(edges.shape)}: give long [2, E]", "edge_index")
    if ptr.dim() != 1 or not _is_index(ptr):
        raise BatchError(f"ptr is {ptr.dtype} of shape {tuple(ptr.shape)}: give long [B + 1]", "ptr")
    if edge_attr is not None and (not edge_attr.dim() or edge_attr.size(0) != edges.size(1)):
        raise BatchError(
            f"edge_attr has shape {tuple(edge_attr.shape)} and edge_index {edges.size(1)} edges: give a row for each",
            "edge_attr",
        )
    for name, value in (("x", x), ("edge_index", edges), ("edge_attr", edge_attr)):
        if value is not None:
            _check_device(name, value, ptr)


def check_values(edge_index: Tensor, ptr: Tensor, num_nodes: int) -> None:
    """Check the offsets of graphs, and that each edge joins two nodes of one graph.

    Raises:
        BatchError: they do not; the message has the first edge that joins two graphs.
    """
    if not ptr.numel() or int(ptr[0]) or int(ptr[-1]) != num_nodes or bool((ptr.diff() < 0).any()):
        raise BatchError(
            f"ptr is {_shown(ptr)}: it must rise from 0 to the {num_nodes} nodes of x, the first node of each graph "
            "and the number of nodes",
            "ptr",
        )
    if not edge_index.numel():
        return
    least, most = map(int, edge_index.aminmax())
    if least < 0 or most >= num_nodes:
        raise BatchError(f"edge_index names node {most} (min {least}) of a graph with {num_nodes} nodes", "edge_index")
    if ptr.numel() == 2:
        return
    source, target = torch.bucketize(edge_index, ptr[1:], right=True)
    if not torch.equal(source, target):
        edge = int((source != target).nonzero()[0])
        raise BatchError(
            f"edge {edge} joins node {int(edge_index[0, edge])} of graph {int(source[edge])} and node "
            f"{int(edge_index[1, edge])} of graph {int(target[edge])}: edge_index must join nodes of one graph, "
            "numbered within the whole batch",
            "edge_index",
        )


def _shown(values: Tensor) -> str:
    """The values, shortened if there are many."""
    text = ", ".join(map(str, values[:4].tolist()))
    return f"[{text}, ..., {int(values[-1])}]" if len(values) > 5 else str(values.tolist())


def offsets(batch: Tensor, ptr: Tensor | None, num_nodes: int) -> Tensor:
    """`ptr`, or the offsets of the graphs that `batch` [N] counts, long [B + 1].

    Raises:
        BatchError: `batch` has another length, is not sorted, or is not that of `ptr`.
    """
    if batch.dim() != 1 or batch.numel() != num_nodes or not _is_index(batch):
        raise BatchError(
            f"data.batch is {batch.dtype} of shape {tuple(batch.shape)} and the graph has {num_nodes} nodes: give the "
            "graph of each node",
            "batch",
        )
    falls = (batch.diff() < 0).nonzero()
    if falls.numel() or (num_nodes and int(batch[0]) < 0):
        at = int(falls[0]) + 1 if falls.numel() else 0
        raise BatchError(
            f"data.batch is {int(batch[at])} at node {at}, after {int(batch[at - 1]) if at else 'nothing'}: graphs "
            "lie one after the other, so that "
            "batch rises from 0; sort the nodes by their graph",
            "batch",
        )
    counts = torch.bincount(batch, minlength=0 if ptr is None else ptr.numel() - 1)
    if ptr is None:
        return torch.cat([batch.new_zeros(1), counts.cumsum(0)])
    if not torch.equal(counts, ptr.diff()):
        raise BatchError(
            f"data.ptr is {_shown(ptr)} and data.batch counts {_shown(counts)} nodes of each graph: remove one of them",
            "batch",
        )
    return ptr


def check_encoding(batch: Any, name: str, value: Tensor) -> None:
    """Checks the rows and the device of an encoding of a GraphBatch, [rows, C], and its numbers of nodes or edges.

    Raises:
        BatchError: they do not fit the batch.
    """
    rows = {"node": batch.num_nodes, "graph": batch.num_graphs}.get(ROWS[name])
    # else a size that would synchronise the device
    if rows is None and ("num_pairs" in batch.__dict__ or not needs_static_shapes(batch.ptr)):
        rows = batch.num_pairs
    if value.dim() != 2 or rows not in (None, value.size(0)):
        raise BatchError(
            f"encoding {name!r} has shape {tuple(value.shape)} and the batch {rows} {ROWS[name]}s: it has one row "
            "for each; compute it for this batch (gt_models.encodings.compute)",
            name,
        )
    _check_device(name, value, batch.ptr)
    if name in _NUMBERS and (not _is_index(value) or _holds_other_numbers(batch, name, value)):
        raise BatchError(f"encoding {name!r}, {value.dtype}, holds other numbers than {_NUMBERS[name]}", name)


def _holds_other_numbers(batch: Any, name: str, value: Tensor) -> bool:
    if needs_static_shapes(value) or not value.numel():
        return False
    least, most = map(int, value.aminmax())
    if least < (0 if name == "number" else -1):
        return True
    if name == "expander":
        return bool((value >= batch.sizes[batch.batch][:, None]).any())
    if name != "shortest_path_edges" or most < 0:
        return False
    if most >= batch.num_edges or batch.num_graphs == 1:
        return most >= batch.num_edges
    graph = torch.cat([batch.batch[batch.edge_index[0]], batch.ptr.new_full((1,), -1)])[value.long()]  # -1 finds -1
    owner = batch.batch[batch.pair_nodes[0]][:, None]
    return bool(((graph != owner) & (graph >= 0)).any())


def check_hyperedges(batch: Any, index: Tensor | None, order: int) -> Tensor:
    """Returns `index`, the `hyperedge_index` [H, order] of a GraphBatch.

    Raises:
        BatchError: it is missing, of another order, or on the CPU names other nodes than those of one graph.
    """
    if index is None:
        raise BatchError(
            f'the model needs hyperedges: set batch.extras["hyperedge_index"], long [H, {order}], the nodes of each',
            "hyperedge_index",
        )
    if index.dim() != 2 or index.size(1) != order or (index.numel() and not _is_index(index)):
        raise BatchError(
            f"hyperedge_index is {index.dtype} of shape {tuple(index.shape)} and the model was built for "
            f"hyperedges of {order} nodes: give long [H, {order}]",
            "hyperedge_index",
        )
    if index.numel() and not needs_static_shapes(index):
        least, most = map(int, index.aminmax())
        if least < 0 or most >= batch.num_nodes:
            raise BatchError(
                f"hyperedge_index names a node outside 0..{batch.num_nodes - 1}: it holds nodes of the whole batch",
                "hyperedge_index",
            )
        graph = batch.batch[index]
        if bool((graph != graph[:, :1]).any()):
            raise BatchError(
                "a hyperedge joins nodes of two graphs: hyperedge_index holds nodes of the whole batch",
                "hyperedge_index",
            )
    return index
