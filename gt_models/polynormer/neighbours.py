"""The A of Polynormer's equation 7: attention over neighbours (GAT, Velickovic et al. 2018) or fixed weights (GCN, Kipf & Welling 2017)."""

# mypy: disable-error-code="operator"

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.kernels.graph_attention import graph_attention
from gt_models.kernels.neighbour_sum import neighbour_sum
from gt_models.nn.compressed_edges import Edges, compressed_edges
from gt_models.nn.gcn_sum import gcn_sum


class GraphAttention(nn.Module):
    """out_i = sum_j a_ij W x_j per head, a_ij = softmax_j leaky_relu(<W x_j, att_source> + <W x_i, att_target>), heads concatenated.

    `forward(x [N, in_dim], batch) -> [N, out_dim]`. Each node attends over its incoming edges and itself, exactly once, whatever self-loops
    the graph stores; parallel edges each count. No bias, as in Polynormer. Raises ValueError for an odd head split.
    Equal to torch_geometric's GATConv, which holds a message [E, H, C] per edge, several times over.
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
        """Nodes [N, in_dim] -> the weighted sum over their neighbours, [N, out_dim]."""
        return self.attend(self.linear(x), self.edges(batch))

    def edges(self, batch: GraphBatch) -> Edges:
        """What `attend` reads: the same for every layer."""
        return compressed_edges(batch)

    def attend(self, value: Tensor, edges: Edges) -> Tensor:
        """The sum over neighbours of projected nodes, [N, out_dim]; under autocast in float32."""
        full = _full(value)
        with torch.autocast(value.device.type, enabled=False):
            vectors = self.att_source.to(full), self.att_target.to(full)
            return graph_attention(value.to(full), *vectors, *edges.compressed, self.negative_slope)


class GraphConvolution(nn.Module):
    """out_i = sum_j w_ij W x_j + b with fixed weights.

    `kind`: "gcn", w_ij = (d_i d_j)^-1/2 over neighbours and the node itself, d counting that self-loop, with bias; "random-walk",
    w_ij = 1/d_j over the edges as stored (A D^-1 of Polynormer's Appendix K), without bias.
    `forward(x [N, in_dim], batch) -> [N, out_dim]`.
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
        """Nodes [N, in_dim] -> the weighted sum over their neighbours, [N, out_dim]."""
        return self.attend(self.linear(x), self.edges(batch))

    def edges(self, batch: GraphBatch) -> Edges:
        """What `attend` reads: the same for every layer of one kind."""
        return compressed_edges(batch, self_loops=self.kind == "gcn")

    def attend(self, value: Tensor, edges: Edges) -> Tensor:
        """The sum over neighbours of projected nodes, [N, out_dim]; under autocast in float32."""
        if self.kind == "gcn":
            return gcn_sum(value, edges)[0] + self.bias
        full = _full(value)
        weight = edges.out_degree.to(full)[edges.compressed[1]].reciprocal()
        with torch.autocast(value.device.type, enabled=False):
            return neighbour_sum(value.to(full), weight, *edges.compressed)


def _full(value: Tensor) -> torch.dtype:
    return torch.float64 if value.dtype == torch.float64 else torch.float32


LOCAL_ATTENTION = {
    "gat": lambda in_dim, dim, num_heads: GraphAttention(in_dim, dim, num_heads),
    "gcn": lambda in_dim, dim, num_heads: GraphConvolution(in_dim, dim, "gcn"),
    "random-walk": lambda in_dim, dim, num_heads: GraphConvolution(in_dim, dim, "random-walk"),
}
