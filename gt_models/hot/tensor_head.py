"""What follows a higher-order encoder: its head, and the check of the hyperedges that it is asked about."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.static_shapes import needs_static_shapes


class TensorHead(nn.Module):
    """[rows, in_dim] -> [rows, out_dim].

    Args:
        hidden_dims: None: LN, Linear. Else LN, Linear(d, d), then Linears through these widths with ReLU between.
        diagonal: each of the latter adds a second Linear on the diagonal of flat pairs (authors, on Delaunay sets).
        dropout: after each ReLU.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        hidden_dims: Sequence[int] | None = None,
        diagonal: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.norm = nn.LayerNorm(in_dim)
        self.project = nn.Linear(in_dim, out_dim if hidden_dims is None else in_dim)
        dims = [] if hidden_dims is None else [in_dim, *hidden_dims, out_dim]
        self.mlp = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(dims))
        self.on_diagonal = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(dims)) if diagonal else None
        self.dropout = nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        for layer in (self.norm, self.project, *self.mlp, *(self.on_diagonal or ())):
            layer.reset_parameters()

    def forward(self, values: Tensor, batch: GraphBatch) -> Tensor:
        """Rows of a tensor [rows, hidden_dim] -> [rows, out_dim]."""
        values = self.project(self.norm(values))
        for depth, layer in enumerate(self.mlp):
            out = layer(values)
            if self.on_diagonal is not None:
                place = batch.pair_ptr[batch.batch] + batch.local * (batch.sizes[batch.batch] + 1)
                out = out.index_add(0, place, self.on_diagonal[depth](values.index_select(0, place)))
            values = self.dropout(out.relu()) if depth < len(self.mlp) - 1 else out
        return values


def hyperedge_index(batch: GraphBatch, order: int) -> Tensor:
    """`batch.extras["hyperedge_index"]` (or an attribute of that name of a torch_geometric Data), long [H, order] of node ids in the batch.

    Raises ValueError where it is missing, of another order, or (on the CPU, where no device has to be waited for) names a node twice or one
    that is not there, or spans two graphs.
    """
    index = batch.extras.get("hyperedge_index", batch.encodings.get("hyperedge_index"))
    if index is None:
        raise ValueError(
            "hyperedge prediction needs the tuples to score: set batch.extras['hyperedge_index'], long [H, order]"
        )
    if index.dim() != 2 or index.size(1) != order:
        raise ValueError(
            f"hyperedge_index of shape {tuple(index.shape)} given to a model built for hyperedges of {order} nodes: give [H, {order}]"
        )
    if index.numel() and not needs_static_shapes(index):
        if bool((index < 0).any() | (index >= batch.num_nodes).any()):
            raise ValueError(
                f"hyperedge_index names a node outside 0..{batch.num_nodes - 1}: it holds node ids of the whole batch"
            )
        ordered = index.sort(1).values
        if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
            raise ValueError("a hyperedge names a node twice: hyperedges have distinct nodes")
        graph = batch.batch[index]
        if bool((graph != graph[:, :1]).any()):
            raise ValueError("a hyperedge joins nodes of two graphs: hyperedge_index holds node ids of the whole batch")
    return torch.as_tensor(index, dtype=torch.long)
