"""Attention over neighbours with exactly one self-loop per node."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv
from torch_geometric.utils import add_self_loops, remove_self_loops

from gt_models.layers.static_shapes import needs_static_shapes


def with_self_loops(x: Tensor, edge_index: Tensor, features: Tensor | None = None) -> tuple[Tensor, ...]:
    """Edges [2, E] and their features [E, d], if any, with exactly one self-loop per node of x [N, d].

    Self-loops of the graph are dropped. The features of a new one are the mean of those of the node's incoming edges,
    as in torch_geometric's layers. Where sizes must not depend on data, dropped self-loops point to one more node.
    """
    if not needs_static_shapes(x):
        edge_index, features = remove_self_loops(edge_index, features)
        edge_index, features = add_self_loops(edge_index, features, "mean", len(x))
        return (edge_index,) if features is None else (edge_index, features)
    moved = edge_index.masked_fill(edge_index[0] == edge_index[1], len(x))
    nodes = torch.arange(len(x), device=x.device)
    edge_index = torch.cat([moved, torch.stack([nodes, nodes])], 1)
    if features is None:
        return (edge_index,)
    total = features.new_zeros(len(x) + 1, features.size(1)).index_add(0, moved[1], features)
    count = features.new_zeros(len(x) + 1).index_add(0, moved[1], torch.ones_like(features[:, 0])).clamp(min=1)
    return edge_index, torch.cat([features, (total / count[:, None])[:-1]])


def attend(layer: GATConv | GATv2Conv, x: Tensor, edges: tuple[Tensor, ...]) -> Tensor:
    """Call `layer`, which adds no self-loops, on the nodes x [N, d] and the result of `with_self_loops`.

    Returns:
        [N, heads * channels].
    """
    return layer(F.pad(x, (0, 0, 0, 1)), *edges)[:-1] if needs_static_shapes(x) else layer(x, *edges)
