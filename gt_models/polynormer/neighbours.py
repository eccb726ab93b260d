"""The A of Polynormer's equation 7: attention over neighbours, or the fixed weights of GCN or of random walks.

GAT: Velickovic et al. 2018, https://arxiv.org/abs/1710.10903. GCN: Kipf & Welling 2017,
https://arxiv.org/abs/1609.02907.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.layers.accelerated import accelerated
from gt_models.layers.edge_softmax import edge_softmax, sum_over_edges
from gt_models.layers.precision import full_precision


class GraphAttention(nn.Module):
    """Attention over neighbours.

        a_ij = softmax_j leaky_relu(<W x_j, att_source> + <W x_i, att_target>)      per head
        out_i = sum_j a_ij W x_j

    The heads are concatenated. Each node attends over its incoming edges and exactly once over itself, whether or not
    the graph has self-loops. Each of several parallel edges counts. There is no bias. The results are equal to those of
    torch_geometric's GATConv.

    Args:
        in_dim: width of the input.
        out_dim: width of all heads together.
        num_heads: number of heads.
        negative_slope: slope of leaky ReLU.

    Raises:
        ValueError: `num_heads` does not divide `out_dim`.
    """

    def __init__(self, in_dim: int, out_dim: int, num_heads: int = 1, negative_slope: float = 0.2):
        super().__init__()
        if out_dim % num_heads:
            raise ValueError(
                f"width {out_dim} cannot be split into {num_heads} heads: choose hidden_dim as a multiple of num_heads"
            )
        self.num_heads, self.negative_slope = num_heads, negative_slope
        self.linear = nn.Linear(in_dim, out_dim, bias=False)
        self.att_source = nn.Parameter(torch.empty(num_heads, out_dim // num_heads))
        self.att_target = nn.Parameter(torch.empty(num_heads, out_dim // num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.linear.weight, self.att_source, self.att_target):
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """[N, in_dim] -> [N, out_dim]."""
        return self.attend(self.linear(x), batch).to(x.dtype)

    @full_precision
    @accelerated
    def attend(self, value: Tensor, batch: GraphBatch) -> Tensor:
        """Attention of each node over its neighbours; `value` is W x. [N, H C] -> [N, H C]."""
        source, target = edges_with_self_loops(batch)  # [E + N]
        v = value.unflatten(1, (self.num_heads, -1))  # [N, H, C]
        of_source, of_target = (v * self.att_source).sum(-1), (v * self.att_target).sum(-1)  # [N, H]
        score = F.leaky_relu(of_source[source] + at(of_target, target), self.negative_slope)  # [E + N, H]
        weight = edge_softmax(score, target, batch.num_nodes)  # a, [E + N, H]
        return sum_over_edges(weight[..., None] * v[source], target, batch.num_nodes).flatten(1)


class GraphConvolution(nn.Module):
    """Sum over neighbours with fixed weights, out_i = sum_j w_ij W x_j + b.

    Args:
        in_dim: width of the input.
        out_dim: width of the output.
        kind: "gcn": w_ij = (d_i d_j)^-1/2 over the neighbours and the node itself, with bias. The degree d counts the
            self-loop. "random-walk": w_ij = 1 / d_j over the stored edges (A D^-1 of Polynormer's Appendix K), without
            bias.

    Raises:
        ValueError: `kind` is unknown.
    """

    def __init__(self, in_dim: int, out_dim: int, kind: str = "gcn"):
        super().__init__()
        if kind not in ("gcn", "random-walk"):
            raise ValueError(f"unknown graph convolution {kind!r}; known: gcn, random-walk")
        self.kind = kind
        self.linear = nn.Linear(in_dim, out_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_dim)) if kind == "gcn" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.linear.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """[N, in_dim] -> [N, out_dim]."""
        return self.attend(self.linear(x), batch).to(x.dtype)

    @full_precision
    @accelerated
    def attend(self, value: Tensor, batch: GraphBatch) -> Tensor:
        """Weighted sum over the neighbours of each node; `value` is W x. [N, C] -> [N, C]."""
        source, target = edges_with_self_loops(batch) if self.kind == "gcn" else batch.edge_index
        if self.kind == "gcn":
            scale = degree(target, batch.num_nodes, value.dtype).rsqrt()  # at least one edge each: the self-loop
            weight = scale[source] * at(scale, target)
        else:
            weight = degree(source, batch.num_nodes, value.dtype).reciprocal()[source]
        out = sum_over_edges(weight[:, None] * value[source], target, batch.num_nodes)
        return out if self.bias is None else out + self.bias


def edges_with_self_loops(batch: GraphBatch) -> tuple[Tensor, Tensor]:
    """Returns sources and targets of the edges with exactly one self-loop per node, long [E + N] each.

    The size does not depend on the number of self-loops of the graph: those get the target N, whose sums `edge_softmax`
    and `sum_over_edges` drop.
    """
    source, target = batch.edge_index
    nodes = torch.arange(batch.num_nodes, device=source.device)
    return torch.cat([source, nodes]), torch.cat([torch.where(source == target, batch.num_nodes, target), nodes])


def at(values: Tensor, target: Tensor) -> Tensor:
    """Returns the values [N, ...] of the target of each edge. The target N, which is no node, gets any values."""
    return values[target.clamp(max=len(values) - 1)]


def degree(nodes: Tensor, num_nodes: int, dtype: torch.dtype) -> Tensor:
    """Counts how often each node occurs in `nodes`, [E] -> [N]. The id N is no node and does not count."""
    return sum_over_edges(torch.ones_like(nodes, dtype=dtype), nodes, num_nodes)


def neighbours(kind: str, num_heads: int) -> Callable[[int, int], nn.Module]:
    """Returns the constructor of "gat", "gcn" or "random-walk", which gets input and output width."""
    if kind == "gat":
        return partial(GraphAttention, num_heads=num_heads)
    return partial(GraphConvolution, kind=kind)
