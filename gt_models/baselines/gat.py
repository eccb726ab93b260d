"""Graph attention network (Velickovic et al. 2018) and GATv2 (Brody et al. 2022) on torch_geometric's layers."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import GATConv, GATv2Conv
from torch_geometric.utils import add_self_loops, remove_self_loops

from gt_models.batch import GraphBatch
from gt_models.nn.fixed_sizes import fixed_sizes
from gt_models.nn.node_wise import NodeWise
from gt_models.registry import register_model


@register_model("gat", levels=("node", "graph"), cost="m d + n d^2", encodings=("rrwp", "laplacian_eigenvectors"), sparse_x=True)
class GAT(NodeWise):
    """Node [N, out_dim] or graph [B, out_dim]. Heads side by side in every layer, hidden_dim / num_heads channels each.

    Args:
        in_dim, out_dim, level, edge_dim, hidden_dim, num_layers, dropout, activation, normalisation, residual, pooling, rrwp_dim, laplacian_dim:
            see `NodeWise`.
        num_heads: must divide `hidden_dim`.
        version: "v1" (GAT) or "v2" (GATv2).
        attn_dropout: on attention weights.
        self_loops: each node attends to itself too (with edge features: the mean of those of its incoming edges).
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node", "graph"],
        edge_dim: int | Sequence[int] | None = None,
        hidden_dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 1,
        version: Literal["v1", "v2"] = "v1",
        attn_dropout: float = 0.0,
        self_loops: bool = True,
        dropout: float = 0.0,
        activation: str = "relu",
        normalisation: Literal["none", "batch", "layer"] = "none",
        residual: bool = False,
        pooling: Literal["sum", "mean", "max"] = "mean",
        rrwp_dim: int = 0,
        laplacian_dim: int = 0,
    ):
        if num_heads < 1 or hidden_dim % num_heads:
            raise ValueError(f"hidden_dim {hidden_dim} does not split into {num_heads} heads: choose a multiple of num_heads")
        if version not in ("v1", "v2"):
            raise ValueError(f"unknown version {version!r}; known: v1, v2")
        layer, edge_width = GATConv if version == "v1" else GATv2Conv, None if edge_dim is None else hidden_dim
        # unstated: heads of the last layer; side by side as in the others, since a Linear follows (the paper averages them in its place)
        shape = (hidden_dim, hidden_dim // num_heads, num_heads)
        super().__init__(
            "gat",
            lambda: layer(*shape, dropout=attn_dropout, add_self_loops=False, edge_dim=edge_width),
            in_dim,
            out_dim,
            level,
            edge_dim,
            hidden_dim,
            num_layers,
            dropout,
            activation,
            normalisation,
            residual,
            pooling,
            rrwp_dim,
            laplacian_dim,
        )
        self.self_loops = self_loops

    def edges(self, batch: GraphBatch) -> tuple[Tensor, ...]:
        edges = super().edges(batch)
        if not self.self_loops:
            return edges
        return (_move_self_loops if fixed_sizes(batch.x) else _replace_self_loops)(batch.num_nodes, *edges)

    def convolve(self, index: int, x: Tensor, first: Tensor, edges: tuple[Tensor, ...]) -> Tensor:
        if not (self.self_loops and fixed_sizes(x)):
            return super().convolve(index, x, first, edges)
        return super().convolve(index, F.pad(x, (0, 0, 0, 1)), first, edges)[:-1]


def _replace_self_loops(num_nodes: int, edge_index: Tensor, features: Tensor | None = None) -> tuple[Tensor, ...]:
    """As torch_geometric's layer does it in every call: self-loops that are there go, each node gets one."""
    edge_index, features = remove_self_loops(edge_index, features)
    edge_index, features = add_self_loops(edge_index, features, "mean", num_nodes)
    return (edge_index,) if features is None else (edge_index, features)


def _move_self_loops(num_nodes: int, edge_index: Tensor, features: Tensor | None = None) -> tuple[Tensor, ...]:
    """The same, but self-loops that are there go to one more node, which is left out afterwards."""
    is_loop = edge_index[0] == edge_index[1]
    moved = edge_index.masked_fill(is_loop, num_nodes)
    nodes = torch.arange(num_nodes, device=edge_index.device)
    edge_index = torch.cat([moved, torch.stack([nodes, nodes])], 1)
    if features is None:
        return (edge_index,)
    total = features.new_zeros(num_nodes + 1, features.size(1)).index_add(0, moved[1], features)
    count = features.new_zeros(num_nodes + 1).index_add(0, moved[1], torch.ones_like(features[:, 0])).clamp(min=1)
    return edge_index, torch.cat([features, (total / count[:, None])[:-1]])
