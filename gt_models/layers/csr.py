"""The edges of a batch in compressed sparse rows, by target and by source, as operations over neighbours read them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.layers.cached import outside_inference_mode
from gt_models.layers.static_shapes import needs_static_shapes


@dataclass(frozen=True)
class Edges:
    """The edges of a batch by target and by source.

    Attributes:
        csr: (ptr, col, ptr_t, col_t, perm_t), see `csr_of`.
        target: target of each edge in the order of col, long [E].
        in_degree, out_degree: number of edges that arrive at and leave each node, long [N].
    """

    csr: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
    target: Tensor
    in_degree: Tensor
    out_degree: Tensor


def csr_edges(batch: GraphBatch, self_loops: bool = True) -> Edges:
    """The edges of `batch.edge_index` in compressed sparse rows.

    Sorting needs O(E log E). The result is cached on the GraphBatch as long as its edge_index is the same, unchanged
    tensor. Tensors of torch's inference mode are not cached.

    Args:
        batch: graphs.
        self_loops: True drops the self-loops of the graph and gives each node exactly one, as torch_geometric's GATConv
            does with `add_self_loops`. False uses the edges as they are. Parallel edges each count in both.
    """
    edge_index = batch.edge_index
    # tensors of inference mode have no version by which a change could be seen
    if torch.compiler.is_compiling() or edge_index.is_inference():
        return _build(edge_index, batch.num_nodes, self_loops)
    cache = batch.__dict__.setdefault("_csr_edges", {})
    if self_loops in cache:
        known, version, result = cache[self_loops]
        if known is edge_index and version == edge_index._version:
            return result
    result = outside_inference_mode(_build, edge_index, batch.num_nodes, self_loops)
    cache[self_loops] = (edge_index, edge_index._version, result)
    return result


def _build(edge_index: Tensor, num_nodes: int, self_loops: bool) -> Edges:
    source, target = edge_index
    if self_loops:
        proper, nodes = source != target, torch.arange(num_nodes, device=edge_index.device)
        if needs_static_shapes(
            target
        ):  # the number of self-loops must decide no size: they get a target that is no node
            target = torch.where(proper, target, num_nodes)
        else:
            source, target = source[proper], target[proper]
        source, target = torch.cat([source, nodes]), torch.cat([target, nodes])
    edges = csr_of(source, target, num_nodes)
    ptr, col, ptr_t, _, _ = edges
    return Edges(
        edges, rows_of(ptr, col.numel()).clamp(max=max(num_nodes - 1, 0)), ptr.long().diff(), ptr_t.long().diff()
    )


def csr_of(source: Tensor, target: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Edges in compressed sparse rows, by target and by source; int32 where that is wide enough.

    Args:
        source: long [E].
        target: long [E]. An edge with the target `num_nodes` comes last and belongs to no node: so edges can be dropped
            if no size may depend on data.
        num_nodes: N.

    Returns:
        (ptr, col, ptr_t, col_t, perm_t): edges by target as offsets [N + 1] and sources [E]; the same edges by source
        as offsets [N + 1], targets [E] and the place of each edge in `col` [E].
    """
    row, order = torch.sort(target, stable=True)
    col, nodes = source[order], torch.arange(num_nodes + 1, device=source.device)
    col_sorted, perm_t = torch.sort(torch.where(row == num_nodes, num_nodes, col), stable=True)
    arrays = torch.searchsorted(row, nodes), col, torch.searchsorted(col_sorted, nodes), row[perm_t], perm_t
    ptr, col, ptr_t, col_t, perm_t = (
        arrays if max(source.numel(), num_nodes) >= 2**31 - 1 else (t.int() for t in arrays)
    )
    return ptr, col, ptr_t, col_t, perm_t


def rows_of(ptr: Tensor, num_edges: int) -> Tensor:
    """Target of each edge, long [E]; N for the edges behind the last node's."""
    return torch.searchsorted(
        ptr[1:].contiguous(), torch.arange(num_edges, device=ptr.device, dtype=ptr.dtype), right=True
    )
