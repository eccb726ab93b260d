"""Convolutions of GCN, GAT, GraphSAGE and GIN that hold no message per edge and channel.

Parameters have the names, shapes and initial values of torch_geometric's GCNConv, GATConv, SAGEConv and GINConv; the
results are equal. Their edges are the result of `csr_edges`: for GCN, GAT and MeanAndSelf with exactly one self-loop
per node, for GIN those of the graph.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import Linear
from torch_geometric.nn.inits import glorot, reset

from gt_models.kernels.neighbour_sum import neighbour_sum
from gt_models.kernels.sparse_linear import sparse_linear
from gt_models.layers.accelerated import accelerated, differs
from gt_models.layers.csr import Edges, rows_of
from gt_models.layers.edge_softmax import edge_softmax, sum_over_edges
from gt_models.layers.gcn_sum import gcn_sum
from gt_models.layers.precision import full_precision

NEGATIVE_SLOPE = 0.2  # of GAT's scores


class GraphConvolution(nn.Module):
    """D^-1/2 (A + I) D^-1/2 x W^T + b, [N, in_dim] -> [N, out_dim]."""

    def __init__(self, in_dim: int, out_dim: int):
        super().__init__()
        self.lin = Linear(in_dim, out_dim, bias=False, weight_initializer="glorot")
        self.bias = nn.Parameter(torch.empty(out_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        value = linear(self.lin, x)
        return gcn_sum(value, edges)[0].to(value.dtype) + self.bias


class GraphAttention(nn.Module):
    """Attention over neighbours (GAT, Velickovic et al., ICLR 2018), [N, in_dim] -> [N, out_dim] of all heads."""

    def __init__(self, in_dim: int, out_dim: int, num_heads: int, bias: bool = False):
        super().__init__()
        self.lin = Linear(in_dim, out_dim, bias=False, weight_initializer="glorot")
        self.att_src = nn.Parameter(torch.empty(1, num_heads, out_dim // num_heads))
        self.att_dst = nn.Parameter(torch.empty(1, num_heads, out_dim // num_heads))
        self.bias = nn.Parameter(torch.empty(out_dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()
        glorot(self.att_src)
        glorot(self.att_dst)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        value = linear(self.lin, x)
        out = self.attend(value, edges).to(value.dtype)
        return out if self.bias is None else out + self.bias

    @full_precision
    @accelerated
    def attend(self, value: Tensor, edges: Edges) -> Tensor:
        """Attention of each node over its neighbours; `value` is W x. [N, out_dim] -> [N, out_dim]."""
        ptr, source, *_ = edges.csr
        target = rows_of(ptr, source.numel())  # [E], N for an edge that belongs to no node
        v = value.unflatten(1, self.att_src.shape[1:])  # [N, H, C]
        of_source, of_target = (v * self.att_src).sum(-1), (v * self.att_dst).sum(-1)  # [N, H]
        score = F.leaky_relu(of_source[source] + of_target[edges.target], NEGATIVE_SLOPE)  # [E, H]
        weight = edge_softmax(score, target, len(v))  # [E, H]
        return sum_over_edges(weight[..., None] * v[source], target, len(v)).flatten(1)


class MeanAndSelf(nn.Module):
    """W mean(x_j) + b + V x (GraphSAGE, Hamilton et al., NeurIPS 2017), [N, in_dim] -> [N, out_dim]."""

    def __init__(self, in_dim: int, out_dim: int):
        super().__init__()
        self.lin_l, self.lin_r = Linear(in_dim, out_dim), Linear(in_dim, out_dim, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.lin_l.reset_parameters()
        self.lin_r.reset_parameters()

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        # each mean is over one node at least, so that of W x + b is W mean(x) + b
        value = linear(self.lin_l, x)
        return self.mean(value, edges).to(value.dtype) + linear(self.lin_r, x)

    @full_precision
    def mean(self, value: Tensor, edges: Edges) -> Tensor:
        """Mean over the neighbours and the node itself, [N, out_dim] -> [N, out_dim]."""
        weight = edges.in_degree.to(value.dtype).reciprocal()[edges.target]
        return neighbour_sum(value, weight, *edges.csr)


class SumAndSelf(nn.Module):
    """nn((1 + eps) x_i + sum of x_j) (GIN, Xu et al., ICLR 2019), [N, in_dim] -> what `nn` makes of it."""

    def __init__(self, network: nn.Module, train_eps: bool = False):
        super().__init__()
        self.nn = network
        if train_eps:
            self.eps = nn.Parameter(torch.empty(1))
        else:
            self.register_buffer("eps", torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        reset(self.nn)
        nn.init.zeros_(self.eps)

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        return self.nn(self.total(x, edges).to(x.dtype) + (1 + self.eps) * x)

    @full_precision
    def total(self, x: Tensor, edges: Edges) -> Tensor:
        """Sum over the neighbours, [N, in_dim] -> [N, in_dim]."""
        return neighbour_sum(x, x.new_ones(edges.target.numel()), *edges.csr)


def linear(module: nn.Module, x: Tensor) -> Tensor:
    """`module(x)` of a Linear; x may be in compressed sparse rows."""
    if x.layout != torch.sparse_csr:
        return module(x)
    if differs("linear", module, (nn.Linear, Linear)):
        return module(x.to_dense())
    return sparse_linear(x.values(), x.crow_indices(), x.col_indices(), module.weight, module.bias)
