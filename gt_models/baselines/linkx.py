"""LINKX (Lim et al., NeurIPS 2021, https://arxiv.org/abs/2110.14446).

An MLP on the node's row of the adjacency matrix and an MLP on its features.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.kernels.neighbour_sum import neighbour_sum
from gt_models.layers.csr import csr_edges
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.static_shapes import needs_static_shapes
from gt_models.registry import register_model


@register_model(
    "linkx",
    levels=("node",),
    cost="m d + n d^2",
    encodings=("number",),
    paper="Lim et al.: Large Scale Learning on Non-Homophilous Graphs: New Benchmarks and Strong Simple Methods, "
    "NeurIPS 2021. https://arxiv.org/abs/2110.14446",
    sparse_x=True,
)
class LINKX(GraphModel):
    """Node [N, out_dim]: MLP(relu(W [h_A, h_X] + h_A + h_X)) with h_A = W_A A and h_X = W_X x.

    Row i of A is one for each edge to node i.

    W_A has a column for every node of the one graph that the model is for: it is neither equivariant nor for another
    graph. An MLP is Linear, `num_layers` - 1 times (ReLU, batch norm, dropout, Linear).

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: classes.
        level: "node".
        num_nodes: of the graph, or more; nodes are known by the encoding "number".
        hidden_dim: width of h_A, h_X and the MLP.
        num_layers: of the MLP.
        dropout: in the MLP.

    Raises:
        ValueError: for another level, no node or layer; in forward, for a graph of more nodes.
        MissingEncoding: in forward, where the encoding is absent.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node"] = "node",
        num_nodes: int = 100_000,
        hidden_dim: int = 64,
        num_layers: int = 1,
        dropout: float = 0.5,
    ):
        super().__init__()
        if level != "node":
            raise ValueError(f"linkx cannot predict at level {level!r}; it predicts: node")
        if num_nodes < 1 or num_layers < 1:
            raise ValueError(f"linkx needs nodes and layers, not {num_nodes} and {num_layers}")
        self.adjacency = AdjacencyMap(num_nodes, hidden_dim)
        self.encoder, self.joint = FeatureEncoder(in_dim, hidden_dim), nn.Linear(2 * hidden_dim, hidden_dim)
        widths = [hidden_dim] * num_layers + [out_dim]
        self.linears = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False))
        self.norms, self.dropout = nn.ModuleList(nn.BatchNorm1d(hidden_dim) for _ in widths[2:]), nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        for module in [self.adjacency, self.encoder, self.joint, *self.linears, *self.norms]:
            module.reset_parameters()

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """What the MLP reads, [N, d]."""
        from_edges = self.adjacency(batch)
        from_features = self.encoder(batch.x)
        return (self.joint(torch.cat([from_edges, from_features], 1)) + from_edges + from_features).relu()

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """[N, d] -> [N, out_dim]."""
        x = self.linears[0](features)
        for norm, linear in zip(self.norms, self.linears[1:], strict=True):
            x = linear(self.dropout(norm(x.relu())))
        return x


class AdjacencyMap(nn.Module):
    """h_A = W_A A + b for the nodes of a batch, with W_A [d, nodes]: a sum over edges, because A is never stored.

    Args:
        num_nodes: columns of W_A.
        hidden_dim: d.
    """

    def __init__(self, num_nodes: int, hidden_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden_dim, num_nodes))
        self.bias = nn.Parameter(torch.empty(hidden_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The same distribution as for a Linear."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        bound = 1 / math.sqrt(self.weight.shape[1])
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, batch: GraphBatch) -> Tensor:
        """[N, d].

        Raises:
            ValueError: a graph of more nodes than there are weights.
            MissingEncoding: the encoding "number" is absent.
        """
        num_nodes = self.weight.shape[1]
        if batch.max_nodes > num_nodes:
            raise ValueError(
                f"linkx was built for {num_nodes:,} nodes (`num_nodes`), and the graph has {batch.max_nodes:,}"
            )
        edges, number = csr_edges(batch, self_loops=False), batch.encoding("number", 1)[:, 0].long()
        if number.numel() and not needs_static_shapes(number) and int(number.max()) >= num_nodes:
            raise ValueError(f"linkx was built for {num_nodes:,} nodes, and the encoding 'number' has {number.max()}")
        own = self.weight.T[number]  # [N, d]
        return neighbour_sum(own, torch.ones_like(edges.csr[1], dtype=own.dtype), *edges.csr) + self.bias
