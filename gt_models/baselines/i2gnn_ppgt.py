"""I2GNN + PPGT: learnt subgraph encodings of edges as additional pair encodings.

Source: PPGT, Section 5.1 [4] and Appendix A.2.
"""

# mypy: disable-error-code="operator"

from typing import Any, Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.precision import dtype_of
from gt_models.layers.settings import at_least
from gt_models.layers.signature import with_arguments_of
from gt_models.registry import register_model
from gt_models.released.ppgt import PPGTReleased

# what no run of it varies
FIXED = (
    "pair_dim", "attention", "urpe", "norm", "head", "degree", "node_order", "position_dim", "stem_ffn_init",
    "stem_norm", "layer_scale", "pool_norm",
)  # fmt: skip
BREC = {
    "hidden_dim": 96,
    "num_layers": 6,
    "num_heads": 16,
    "rrwp_dim": 33,
    "stem_dim": 192,
    "num_stem_ffn": 4,
    "num_frequencies": 15,
}


@register_model("i2gnn-ppgt", levels=("graph", "node"), cost="m^2 d + n^2 d", encodings=("rrwp",))
class I2GNNPPGT(GraphModel):
    """PPGT as released, with an encoding of a subgraph around each directed edge.

    Nodes v of the subgraph of edge (i, j) carry the RRWP of (v, i) and (v, j). A GIN computes one vector from it, which
    is added to the pair (i, j). Predicts [B, out_dim] (graph) or [N, out_dim] (node).

    Args:
        subgraph_hops: radius of a subgraph. subgraph: "edge" takes the nodes near either end (the paper's neighbourhood
            of the edge), "source" those near the first end (the authors' implementation).
        gin_layers: layers of the GIN, each as wide as the pair encodings.
        The others: see `PPGTReleased`; defaults are the paper's BREC setting (Table 10).

    Memory grows with sum over edges of the subgraphs' edges, at most m^2 a graph: for small graphs.
    """

    @with_arguments_of(PPGTReleased, *FIXED, **BREC)
    def __init__(
        self, subgraph_hops: int = 4, subgraph: Literal["edge", "source"] = "edge", gin_layers: int = 6, **released: Any
    ):
        super().__init__()
        if subgraph not in ("edge", "source"):
            raise ValueError(f"unknown subgraph {subgraph!r}; known: edge, source")
        at_least(0, subgraph_hops=subgraph_hops, gin_layers=gin_layers)
        rrwp_dim, hidden_dim = released["rrwp_dim"], released["hidden_dim"]
        self.rrwp_dim, self.subgraph_hops, self.subgraph = rrwp_dim, subgraph_hops, subgraph
        self.ppgt = _Backbone(**released)
        # unstated: all of the GIN but its depth and batch norm; as wide as the pairs, walks that end at i and j,
        # nothing after a layer's norm, sum, batch norm, bias-free linear, and the backbone's initialisation, from the
        # authors' implementation
        self.node_linear = nn.Linear(2 * rrwp_dim, hidden_dim)
        self.layers = nn.ModuleList([GINLayer(hidden_dim) for _ in range(gin_layers)])
        self.norm = nn.BatchNorm1d(hidden_dim)
        self.out = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.ppgt.reset_parameters()
        self.norm.reset_parameters()
        for layer in self.layers:
            layer.reset_parameters()
        nn.init.trunc_normal_(self.node_linear.weight, std=0.02)
        nn.init.zeros_(self.node_linear.bias)
        nn.init.trunc_normal_(self.out.weight, std=0.02)

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Nodes after PPGT's backbone, whose pairs of an edge carry that edge's subgraph, [N, hidden_dim]."""
        return self.ppgt.forward_features(batch, self.encode_subgraphs(batch))

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """As of PPGT: [N, hidden_dim] -> [B, out_dim] or [N, out_dim]."""
        return self.ppgt.forward_head(features, batch)

    def encode_subgraphs(self, batch: GraphBatch) -> Tensor:
        """One vector per directed edge, [E, hidden_dim]; a self-loop has no subgraph and gets zeros."""
        owner, node, source, target = edge_subgraphs(batch, self.subgraph_hops, self.subgraph == "source")
        rrwp = batch.pairs_to_dense(batch.encoding("rrwp", self.rrwp_dim))  # [B, n, n, K]
        graph, first, second = batch.edge_slots()
        graph, first, second, local = graph[owner], first[owner], second[owner], batch.local[node]
        seen = torch.cat(
            [rrwp[graph, local, first], rrwp[graph, local, second]], 1
        )  # [S, 2 K], S nodes of all subgraphs
        h = self.node_linear(seen.to(dtype_of(self.node_linear)))  # [S, d]
        if _some(h.size(0), self.training):
            for layer in self.layers:
                h = layer(h, source, target)
        pooled = h.new_zeros(batch.num_edges, h.size(1)).index_add(0, owner, h)  # [E, d]
        proper = (batch.edge_index[0] != batch.edge_index[1]).nonzero().squeeze(1)
        if not _some(proper.size(0), self.training):
            return pooled
        return torch.zeros_like(pooled).index_copy(0, proper, self.out(self.norm(pooled[proper])))


def _some(count: int, training: bool) -> bool:
    """Whether there are rows for a batch norm.

    A compiled model must not ask: it is compiled for some, and raises where there are none.
    """
    if torch.compiler.is_compiling():
        torch._check(count > 1 if training else count > 0)
        return True
    return count > 0


class _Backbone(PPGTReleased):
    def edge_ends(self, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        return tuple(batch.edge_index)  # the vector of the edge (i, j) belongs to the pair (i, j)


class GINLayer(nn.Module):
    """x + batch norm(MLP((1 + eps) x + sum of neighbours)), [S, dim] -> [S, dim]."""

    def __init__(self, dim: int):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        self.linear1, self.linear2, self.norm = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.BatchNorm1d(dim)

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.eps)
        self.norm.reset_parameters()
        for linear in (self.linear1, self.linear2):
            nn.init.trunc_normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        """Nodes of all subgraphs x [S, dim]; `source`, `target`: edges of the subgraphs as indices into x, long [M]."""
        mixed = ((1.0 + self.eps) * x).index_add(0, target, x[source])  # [S, d]
        return x + self.norm(self.linear2(nn.functional.gelu(self.linear1(mixed))))


def edge_subgraphs(batch: GraphBatch, hops: int, source_only: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Subgraphs around all directed edges without self-loops: nodes within `hops` of an end (or of the first end).

    Returns (owner, node, source, target): the edge that owns each subgraph node, its original node, long [S]; and the
    induced edges as indices into those, long [M].
    """
    n, device = batch.max_nodes, batch.ptr.device
    graph, first, second = batch.edge_slots()
    near = torch.eye(n, dtype=torch.bool, device=device).expand(batch.num_graphs, n, n) & batch.node_mask[:, :, None]
    adjacency = torch.zeros(batch.num_graphs, n, n, device=device).index_put_(
        (graph, first, second), torch.ones((), device=device)
    )
    for _ in range(hops):
        near = near | (torch.bmm(near.to(adjacency.dtype), adjacency) > 0)  # [B, n, n]: near[b, i, v]
    inside = near[graph, first] if source_only else near[graph, first] | near[graph, second]  # [E, n]
    inside = inside & (first != second)[:, None]
    owner, local = inside.nonzero(as_tuple=True)  # [S]
    position = torch.full(inside.shape, -1, dtype=torch.long, device=device)
    position[owner, local] = torch.arange(owner.numel(), device=device)
    # for each owner, the edges of its graph with both ends inside
    own, other = (graph[:, None] == graph[None, :]).nonzero(as_tuple=True)
    source, target = position[own, first[other]], position[own, second[other]]
    both = (source >= 0) & (target >= 0)
    return owner, batch.ptr[graph[owner]] + local, source[both], target[both]
