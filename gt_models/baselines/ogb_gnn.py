"""GCN, GIN and GATv2 with edge features and a virtual node, the baselines of PCQM4Mv2.

Hu et al., OGB-LSC, NeurIPS Datasets and Benchmarks 2021, https://arxiv.org/abs/2103.09430.
"""

# mypy: disable-error-code="arg-type, operator"

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.layers.edge_softmax import edge_softmax, sum_over_edges
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.gnn import check_level
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.pooling import pool
from gt_models.registry import register_model


@register_model(
    "ogb-gnn",
    levels=("graph", "node"),
    cost="m d + n d^2",
    encodings=(),
    paper="Hu et al.: OGB-LSC: A Large-Scale Challenge for Machine Learning on Graphs, NeurIPS Datasets and "
    "Benchmarks 2021. https://arxiv.org/abs/2103.09430",
)
class OGBGNN(GraphModel):
    """Graph [B, out_dim] or node [N, out_dim].

    A layer is dropout(relu(norm(conv(h + v)))), without relu in the last one; each has edge
    embeddings e of its own. conv, with d the edges that leave a node and one more:

        gcn     sum_j relu(W h_j + e_ij) / sqrt(d_i d_j) + relu(W h_i + r) / d_i
        gin     MLP((1 + eps) h_i + sum_j relu(h_j + e_ij))
        gatv2   sum_j softmax_j(a . leaky_relu(W h_j + U h_i + e_ij)) W h_j, over the neighbours and, with e = 0, the
        node itself

    v is the vector of the graph's virtual node: 0 at first, learned; after each layer but the last, v <- MLP(v + sum of
    the layer's inputs h + v).

    Args:
        in_dim, edge_dim: node and edge features (see `FeatureEncoder`); without `edge_dim` e is 0.
        out_dim: targets or classes.
        level: "graph" or "node".
        convolution: "gcn", "gin" or "gatv2" (one head).
        virtual_node: False leaves v out.
        hidden_dim: width of nodes, edges and the virtual node.
        num_layers: convolutions.
        dropout: after each layer, and of the virtual node.
        residual: a layer adds its input, and the virtual node its own.
        pooling: "sum", "mean" or "max", at graph level.

    Raises:
        ValueError: an unknown convolution, level or pooling, no layer, and a batch without the edge features that it
            was built for.
    """

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["graph", "node"] = "graph",
        edge_dim: int | Sequence[int] | None = None,
        convolution: Literal["gcn", "gin", "gatv2"] = "gin",
        virtual_node: bool = True,
        hidden_dim: int = 600,
        num_layers: int = 5,
        dropout: float = 0.0,
        residual: bool = False,
        pooling: Literal["sum", "mean", "max"] = "sum",
    ):
        super().__init__()
        check_level("ogb-gnn", level, pooling, num_layers)
        if convolution not in CONVOLUTIONS:
            raise ValueError(f"unknown convolution {convolution!r}; known: {', '.join(CONVOLUTIONS)}")
        self.level, self.pooling, self.residual = level, pooling, residual
        self.dropout = nn.Dropout(dropout)
        self.encoder = FeatureEncoder(in_dim, hidden_dim)
        self.convs = nn.ModuleList(CONVOLUTIONS[convolution](hidden_dim) for _ in range(num_layers))
        self.edge_encoders = (
            nn.ModuleList(FeatureEncoder(edge_dim, hidden_dim) for _ in range(num_layers))
            if edge_dim is not None
            else None
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden_dim) for _ in range(num_layers))
        self.virtual = nn.Parameter(torch.empty(hidden_dim)) if virtual_node else None
        self.virtual_mlps = (
            nn.ModuleList(VirtualNodeMLP(hidden_dim) for _ in range(num_layers - 1)) if virtual_node else None
        )
        self.head = nn.Linear(hidden_dim, out_dim)
        self._reset_embeddings()

    def reset_parameters(self) -> None:
        for module in [
            self.encoder,
            *self.convs,
            *(self.edge_encoders or ()),
            *self.norms,
            *(self.virtual_mlps or ()),
            self.head,
        ]:
            module.reset_parameters()
        self._reset_embeddings()

    def _reset_embeddings(self) -> None:
        if self.virtual is not None:
            nn.init.zeros_(self.virtual)
        for encoder in [self.encoder, *(self.edge_encoders or ())]:
            if encoder.embedding is not None:  # ogb's encoders of atoms and bonds: each column's table by itself
                with torch.no_grad():
                    for table in encoder.embedding.weight.split(encoder.in_dim):
                        nn.init.xavier_uniform_(table)

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Nodes after the last layer, [N, d]."""
        h = self.encoder(batch.x)  # [N, d]
        v = None if self.virtual is None else self.virtual.to(h.dtype).expand(batch.num_graphs, -1)  # [B, d]
        for i, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            last = i == len(self.convs) - 1
            if v is not None:
                h = h + v[batch.batch]
            e = None if self.edge_encoders is None else self.edge_encoders[i](batch.edge_features())  # [E, d]
            update = norm(conv(h, e, batch))
            update = self.dropout(update if last else update.relu())  # [N, d]
            if v is not None and not last:
                moved = self.dropout(self.virtual_mlps[i](pool(h, batch, "sum") + v))  # type: ignore[index]
                v = v + moved if self.residual else moved
            h = h + update if self.residual else update
        return h

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """Pooled at graph level, then the head: [N, d] -> [B, out_dim] or [N, out_dim]."""
        # deviates: the authors clip predictions to 0 .. 20 eV outside of training, where all targets lie
        return self.head(pool(features, batch, self.pooling) if self.level == "graph" else features)


class GraphConvolution(nn.Module):
    """(h [N, d], e [E, d] or None, batch) -> [N, d], as are the others."""

    def __init__(self, dim: int):
        super().__init__()
        self.linear, self.root = nn.Linear(dim, dim), nn.Parameter(torch.randn(dim))

    def reset_parameters(self) -> None:
        self.linear.reset_parameters()
        nn.init.normal_(self.root)

    def forward(self, h: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """`h` [N, d], e [E, d] or None -> [N, d]."""
        h, (source, target) = self.linear(h), batch.edge_index
        degree = batch.out_degree(torch.promote_types(h.dtype, torch.float32)) + 1
        norm = degree.rsqrt()[:, None]
        messages = (norm[source] * norm[target]) * _with(e, h[source]).relu()
        return sum_over_edges(messages, target, len(h)) + (h + self.root.to(h.dtype)).relu() / degree[:, None]


class IsomorphismConvolution(nn.Module):
    """MLP((1 + eps) h_i + sum_j relu(h_j + e_ij)), as GINE: [N, d] -> [N, d]."""

    def __init__(self, dim: int):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, dim))
        self.eps = nn.Parameter(torch.zeros(1))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.eps)
        for i in (0, 1, 3):
            self.mlp[i].reset_parameters()

    def forward(self, h: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """`h` [N, d], e [E, d] or None -> [N, d]."""
        source, target = batch.edge_index
        return self.mlp((1 + self.eps) * h + sum_over_edges(_with(e, h[source]).relu(), target, len(h)))


class AttentionConvolution(nn.Module):
    """GATv2 with one head; edge features are added before the score: [N, d] -> [N, d]."""

    # unstated: how bonds enter GATv2 and whether a node attends to itself; the parameters that TokenGT publishes
    # (6.7M, 55.2M) fit embeddings of bonds in each layer and no Linear on them

    def __init__(self, dim: int):
        super().__init__()
        self.source, self.target = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.attention, self.bias = nn.Parameter(torch.empty(dim)), nn.Parameter(torch.empty(dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for linear in (self.source, self.target):  # as torch_geometric's GATv2Conv
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)
        nn.init.xavier_uniform_(self.attention[None])
        nn.init.zeros_(self.bias)

    def forward(self, h: Tensor, e: Tensor | None, batch: GraphBatch) -> Tensor:
        """`h` [N, d], e [E, d] or None -> [N, d]."""
        nodes = torch.arange(len(h), device=h.device)
        source, target = torch.cat([batch.edge_index, nodes.expand(2, -1)], 1)
        sent, received = self.source(h), self.target(h)
        raw = sent[source] + received[target]  # [E + N, d]
        if e is not None:
            raw = raw + F.pad(e, (0, 0, 0, len(h)))
        weight = edge_softmax(F.leaky_relu(raw, 0.2) @ self.attention.to(raw.dtype), target, len(h))  # [E + N]
        return sum_over_edges(weight[:, None] * sent[source], target, len(h)) + self.bias


CONVOLUTIONS = {"gcn": GraphConvolution, "gin": IsomorphismConvolution, "gatv2": AttentionConvolution}


class VirtualNodeMLP(nn.Module):
    """Linear, batch norm, ReLU, twice: [B, d] -> [B, d]."""

    def __init__(self, dim: int):
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(dim, dim) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim) for _ in range(2))

    def reset_parameters(self) -> None:
        for module in [*self.linears, *self.norms]:
            module.reset_parameters()

    def forward(self, v: Tensor) -> Tensor:
        """[B, d] -> [B, d]."""
        for linear, norm in zip(self.linears, self.norms, strict=True):
            v = linear(v)
            # one graph has no variance: its batch is normalised as in evaluation
            if len(v) < 2 and norm.training and isinstance(norm, nn.BatchNorm1d):
                v = F.batch_norm(v, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
            else:
                v = norm(v)
            v = v.relu()
        return v


def _with(e: Tensor | None, messages: Tensor) -> Tensor:
    return messages if e is None else messages + e
