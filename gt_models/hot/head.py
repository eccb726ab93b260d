"""The prediction head of a higher-order encoder, and the hyperedges that it predicts."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.static_shapes import needs_static_shapes


class PredictionHead(nn.Module):
    """LayerNorm, Linear and optionally an MLP: [rows, in_dim] -> [rows, out_dim].

    Args:
        in_dim: input width.
        out_dim: output width.
        hidden_dims: hidden widths of the MLP with ReLU that follows a Linear of unchanged width; None: no MLP.
        diagonal: each layer of the MLP adds a second Linear on the diagonal of flat pairs (authors' code, Delaunay
            sets).
        dropout: dropout rate after each ReLU.
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
        self.dropout = nn.Dropout(dropout) if len(dims) > 2 else None

    def reset_parameters(self) -> None:
        for layer in (self.norm, self.project, *self.mlp, *(self.on_diagonal or ())):
            layer.reset_parameters()

    def forward(self, values: Tensor, batch: GraphBatch) -> Tensor:
        """[rows, in_dim] -> [rows, out_dim]."""
        values = self.project(self.norm(values))
        for depth, layer in enumerate(self.mlp):
            out = layer(values)
            if self.on_diagonal is not None:
                place = batch.pair_ptr[batch.batch] + batch.local * (batch.sizes[batch.batch] + 1)
                out = out.index_add(0, place, self.on_diagonal[depth](values.index_select(0, place)))
            values = out if self.dropout is None or depth == len(self.mlp) - 1 else self.dropout(out.relu())
        return values


def hyperedge_index(batch: GraphBatch, order: int) -> Tensor:
    """The hyperedges to predict, long [H, order] (`GraphBatch.hyperedges`).

    Raises:
        ValueError: they do not fit; on the CPU also a hyperedge that names a node twice.
    """
    index = batch.hyperedges(order)
    if not needs_static_shapes(index):
        ordered = index.sort(1).values
        if bool((ordered[:, 1:] == ordered[:, :-1]).any()):
            raise ValueError("a hyperedge names a node twice: hyperedges have distinct nodes")
    return index
