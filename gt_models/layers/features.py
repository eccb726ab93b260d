"""Input features to vectors: a Linear for continuous features, a sum of embeddings for categorical ones."""

# mypy: disable-error-code="misc, operator, union-attr"

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gt_models.layers.accelerated import accelerated
from gt_models.layers.dropout import Dropout
from gt_models.layers.precision import dtype_of
from gt_models.layers.static_shapes import needs_static_shapes


def with_columns(values: Tensor, width: int) -> Tensor:
    """`values`, if they are [rows, width].

    Raises:
        ValueError: they have another shape.
    """
    if values.dim() != 2 or values.size(1) != width:
        raise ValueError(f"features of shape {tuple(values.shape)} given to a model built for {width} columns")
    return values


class FeatureEncoder(nn.Module):
    """Features [N, F] -> [N, out_dim].

    Continuous ones may be in compressed sparse rows (`register_model(..., sparse_x=True)`).

    Args:
        in_dim: an int is the width F of continuous features; a sequence is one vocabulary size per categorical column.
        out_dim: width of the result.
        bias: whether the Linear has a bias (continuous features only).
        dropout: on the features (continuous features only).
    """

    def __init__(self, in_dim: int | Sequence[int], out_dim: int, bias: bool = True, dropout: float = 0.0):
        super().__init__()
        self.in_dim = in_dim if isinstance(in_dim, int) else tuple(in_dim)
        self.linear = nn.Linear(in_dim, out_dim, bias=bias) if isinstance(in_dim, int) else None
        # one table for all columns: column c's values start at offsets[c]
        self.embedding = None if isinstance(in_dim, int) else nn.Embedding(sum(in_dim), out_dim)
        self.dropout = Dropout(dropout)
        # numbers, and no buffer, which `to_empty` would leave undefined
        self.offsets = [] if isinstance(in_dim, int) else list(itertools.accumulate([0, *in_dim[:-1]]))

    def reset_parameters(self) -> None:
        (self.linear or self.embedding).reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Features [rows, columns] -> [rows, out_dim].

        Raises:
            ValueError: another number of columns, or a category that is no integer of its vocabulary. On a GPU and in
                a compiled graph, a category outside its vocabulary is an index outside the table of embeddings, which
                fails there.
        """
        x = with_columns(x, self.in_dim if isinstance(self.in_dim, int) else len(self.in_dim))
        if self.linear is not None:
            return self.project(self.dropout(x.to(dtype_of(self.linear))))
        if not needs_static_shapes(x):
            self._check(x)
        x = x.long()
        # copies with `device=` would wait for a GPU
        row = x + torch.tensor(self.offsets).to(x.device, non_blocking=True)
        if needs_static_shapes(x):  # no value may be read here, and no row of another column may be used
            outside = (x < 0) | (x >= torch.tensor(self.in_dim).to(x.device, non_blocking=True))
            row = row.masked_fill(outside, self.embedding.num_embeddings)
        return self.embedding(row).sum(1)

    @accelerated
    def project(self, x: Tensor) -> Tensor:
        """Continuous features through the Linear, [N, F] -> [N, out_dim]."""
        return self.linear(x.to_dense() if x.layout == torch.sparse_csr else x)

    def _check(self, x: Tensor) -> None:
        sizes = self.in_dim if isinstance(self.in_dim, tuple) else ()
        wrong = (x < 0) | (x >= torch.tensor(sizes))
        if x.is_floating_point():
            wrong |= x != x.trunc()
        if bool(wrong.any()):
            row, column = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"categorical feature {column} of row {row} is {x[row, column].item()}; the model was built for "
                f"{sizes[column]} categories, 0 to {sizes[column] - 1}: build it with a larger vocabulary, or map "
                "unknown values to one of these"
            )
