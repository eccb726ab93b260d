"""Graphs as order-1 and order-2 tensors (Kim et al. 2021, Section 2): node features on the diagonal, edge features off it."""

# mypy: disable-error-code="arg-type, operator"

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.hot.support import Support
from gt_models.layers.features import FeatureEncoder


class TensorInput(nn.Module):
    """A batch -> values [rows of the order, width] on a `Support`.

    Order 1: node features. Order 2: [node features, 0] on the diagonal and [0, edge features] off it, and zeros at non-edges of a dense
    support; a self-loop's features join its node's; features of parallel edges are added up. Edges without features are ones.

    Args:
        order: 1 or 2.
        in_dim, edge_dim: an int is the width of continuous features, taken as they are; a sequence is one vocabulary size per categorical
            column, embedded to `hidden_dim`. `edge_dim` None: edges carry nothing (what they carry is ignored).
        hidden_dim: width of embeddings.
        edge_columns: categorical edge columns are added up ("sum") or averaged ("mean", as the authors do).
        degree_embeddings: rows of each of two tables of in-degrees added to embedded nodes (authors: 512); 0 for none.
    """

    def __init__(
        self,
        order: int,
        in_dim: int | Sequence[int],
        edge_dim: int | Sequence[int] | None,
        hidden_dim: int,
        edge_columns: str = "sum",
        degree_embeddings: int = 0,
    ):
        super().__init__()
        if order not in (1, 2):
            raise ValueError(f"input_order {order}: give 1 (nodes) or 2 (nodes and edges)")
        if edge_columns not in ("sum", "mean"):
            raise ValueError(f"unknown edge_columns {edge_columns!r}; known: sum, mean")
        if degree_embeddings and isinstance(in_dim, int):
            raise ValueError(
                "degree_embeddings are added to embedded nodes: give in_dim as vocabulary sizes, or degree_embeddings=0"
            )
        self.order, self.edge_columns = order, edge_columns
        self.in_dim, self.edge_dim = in_dim, edge_dim
        self.node = None if isinstance(in_dim, int) else FeatureEncoder(in_dim, hidden_dim)
        self.edge = FeatureEncoder(edge_dim, hidden_dim) if order == 2 and isinstance(edge_dim, Sequence) else None
        # both tables are fed the in-degree: the graphs are undirected
        self.degree = nn.ModuleList(
            nn.Embedding(degree_embeddings, hidden_dim) for _ in range(2 if degree_embeddings else 0)
        )
        self.node_width = in_dim if isinstance(in_dim, int) else hidden_dim
        self.edge_width = hidden_dim if self.edge is not None else 1 if edge_dim is None else int(edge_dim)
        self.width = self.node_width + (self.edge_width if order == 2 else 0)

    def reset_parameters(self) -> None:
        for part in (self.node, self.edge, *self.degree):
            if part is not None:
                part.reset_parameters()

    def forward(self, batch: GraphBatch, support: Support, dtype: torch.dtype) -> Tensor:
        """Raises ValueError where features do not have the width that the model was built for."""
        x = self._checked(batch.x, self.node_width, "node") if self.node is None else self.node(batch.x)
        for table in self.degree:
            target = batch.edge_index[1]
            in_degree = target.new_zeros(batch.num_nodes).index_add(
                0, target, torch.ones_like(target)
            )  # bincount waits for the device
            x = x + table(in_degree.clamp(max=table.num_embeddings - 1))
        x = x.to(dtype)  # [n, node width]
        if self.order == 1:
            return x
        edges = self._edges(batch).to(dtype)  # [E, edge width]
        at_node = torch.cat([x, x.new_zeros(x.size(0), self.edge_width)], 1)
        values = x.new_zeros(len(support.sets[2]), self.width)
        values = values.index_copy(0, torch.arange(x.size(0), device=x.device), at_node)
        at_edge = torch.cat([edges.new_zeros(edges.size(0), self.node_width), edges], 1)
        # unstated: parallel edges and self-loops. One entry each, features added up; a tensor has one A_ij
        return values.index_add(0, support.edge_rows, at_edge)  # [rows of order 2, width]

    def _edges(self, batch: GraphBatch) -> Tensor:
        if self.edge_dim is None:
            return batch.x.new_ones(batch.num_edges, 1)
        if batch.edge_attr is None:
            raise ValueError(
                f"the model was built for edge features (edge_dim={self.edge_dim}); the batch has none: set edge_attr, or edge_dim=None"
            )
        if self.edge is None:
            return self._checked(batch.edge_attr, self.edge_width, "edge")
        embedded = self.edge(batch.edge_attr)
        return embedded / len(self.edge_dim) if self.edge_columns == "mean" else embedded

    def _checked(self, values: Tensor, width: int, what: str) -> Tensor:
        if values.dim() != 2 or values.size(1) != width:
            raise ValueError(
                f"{what} features of shape {tuple(values.shape)} given to a model built for {width} columns"
            )
        return values
