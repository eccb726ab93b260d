"""The edges of a batch as the operations over neighbours take them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.kernels.graph_attention import compressed, rows_of
from gt_models.layers.cached import build_to_keep
from gt_models.layers.static_shapes import needs_static_shapes


@dataclass(frozen=True)
class Edges:
    """The edges of a batch by target and by source.

    Attributes:
        compressed: (ptr, col, ptr_t, col_t, perm_t) as `gt_models.kernels.graph_attention` takes them.
        target: of each edge in the order of col, long [E].
        in_degree, out_degree: edges per node that arrive and leave, long [N].
    """

    compressed: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
    target: Tensor
    in_degree: Tensor
    out_degree: Tensor


def csr_edges(batch: GraphBatch, self_loops: bool = True) -> Edges:
    """The edges of `batch.edge_index` for the operations over neighbours.

    Args:
        self_loops: True drops the self-loops that are there and gives each node exactly one, as torch_geometric's GATConv does with
            `add_self_loops`; False takes the edges as they are. Parallel edges each count once, here as there.

    Sorting costs O(E log E); the result is kept on the GraphBatch for as long as its edge_index is the same, unchanged tensor
    (not where it was made in torch's inference mode).
    """
    edge_index = batch.edge_index
    # in inference mode tensors have no version by which a change would be seen
    if torch.compiler.is_compiling() or edge_index.is_inference():
        return _build(edge_index, batch.num_nodes, self_loops)
    cache = batch.__dict__.setdefault("_compressed_edges", {})
    if self_loops in cache:
        known, version, result = cache[self_loops]
        if known is edge_index and version == edge_index._version:
            return result
    result = build_to_keep(_build, edge_index, batch.num_nodes, self_loops)
    cache[self_loops] = (edge_index, edge_index._version, result)
    return result


def _build(edge_index: Tensor, num_nodes: int, self_loops: bool) -> Edges:
    source, target = edge_index
    if self_loops:
        proper, nodes = source != target, torch.arange(num_nodes, device=edge_index.device)
        if needs_static_shapes(target):  # to the node that is none
            target = torch.where(proper, target, num_nodes)
        else:
            source, target = source[proper], target[proper]
        source, target = torch.cat([source, nodes]), torch.cat([target, nodes])
    edges = compressed(source, target, num_nodes)
    ptr, col, ptr_t, _, _ = edges
    return Edges(
        edges, rows_of(ptr, col.numel()).clamp(max=max(num_nodes - 1, 0)), ptr.long().diff(), ptr_t.long().diff()
    )
