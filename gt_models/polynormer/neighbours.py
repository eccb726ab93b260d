"""The A of Polynormer's equation 7: attention over neighbours (GAT, Velickovic et al. 2018) or fixed weights (GCN, Kipf & Welling 2017)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.kernels.graph_attention import compressed, graph_attention, rows_of
from gt_models.kernels.neighbour_sum import neighbour_sum
from gt_models.nn.cached import build_to_keep
from gt_models.nn.fixed_sizes import fixed_sizes


class GraphAttention(nn.Module):
    """out_i = sum_j a_ij W x_j per head, a_ij = softmax_j leaky_relu(<W x_j, att_source> + <W x_i, att_target>), heads concatenated.

    `forward(x [N, in_dim], batch) -> [N, out_dim]`. Each node attends over its incoming edges and itself, exactly once, whatever self-loops
    the graph stores; parallel edges each count. No bias, as in Polynormer. Raises ValueError for an odd head split.
    Equal to torch_geometric's GATConv, which holds a message [E, H, C] per edge, several times over.
    """

    def __init__(self, in_dim: int, out_dim: int, num_heads: int = 1, negative_slope: float = 0.2):
        super().__init__()
        if out_dim % num_heads:
            raise ValueError(f"width {out_dim} cannot be split into {num_heads} heads: choose hidden_dim as a multiple of num_heads")
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

    def edges(self, batch: GraphBatch) -> "Edges":
        """What `attend` reads: the same for every layer."""
        return compressed_edges(batch)

    def attend(self, value: Tensor, edges: "Edges") -> Tensor:
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

    def edges(self, batch: GraphBatch) -> "Edges":
        """What `attend` reads: the same for every layer of one kind."""
        return compressed_edges(batch, self_loops=self.kind == "gcn")

    def attend(self, value: Tensor, edges: "Edges") -> Tensor:
        """The sum over neighbours of projected nodes, [N, out_dim]; under autocast in float32."""
        full = _full(value)
        source = edges.compressed[1]
        if self.kind == "gcn":
            scale = edges.in_degree.to(full).rsqrt()  # at least one each: the self-loop
            weight = scale[edges.target] * scale[source]
        else:
            weight = edges.out_degree.to(full)[source].reciprocal()
        with torch.autocast(value.device.type, enabled=False):
            out = neighbour_sum(value.to(full), weight, *edges.compressed)
        return out if self.bias is None else out + self.bias


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


def compressed_edges(batch: GraphBatch, self_loops: bool = True) -> Edges:
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
        if fixed_sizes(target):  # to the node that is none
            target = torch.where(proper, target, num_nodes)
        else:
            source, target = source[proper], target[proper]
        source, target = torch.cat([source, nodes]), torch.cat([target, nodes])
    edges = compressed(source, target, num_nodes)
    ptr, col, ptr_t, _, _ = edges
    return Edges(edges, rows_of(ptr, col.numel()).clamp(max=max(num_nodes - 1, 0)), ptr.long().diff(), ptr_t.long().diff())


def _full(value: Tensor) -> torch.dtype:
    return torch.float64 if value.dtype == torch.float64 else torch.float32


LOCAL_ATTENTION = {
    "gat": lambda in_dim, dim, num_heads: GraphAttention(in_dim, dim, num_heads),
    "gcn": lambda in_dim, dim, num_heads: GraphConvolution(in_dim, dim, "gcn"),
    "random-walk": lambda in_dim, dim, num_heads: GraphConvolution(in_dim, dim, "random-walk"),
}
