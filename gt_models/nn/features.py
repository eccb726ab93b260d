"""Input features to vectors: a Linear for continuous features, a sum of embeddings for categorical ones."""

# mypy: disable-error-code="misc, operator, union-attr"

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gt_models.kernels.sparse_linear import sparse_linear


class FeatureEncoder(nn.Module):
    """Features [N, F] -> [N, out_dim]. Continuous ones may be in compressed sparse rows (`register_model(..., sparse_x=True)`).

    Args:
        in_dim: an int is the width F of continuous features; a sequence is one vocabulary size per categorical column.
        out_dim: width of the result.
        bias: whether the Linear has a bias (continuous features only).
    """

    def __init__(self, in_dim: int | Sequence[int], out_dim: int, bias: bool = True):
        super().__init__()
        self.in_dim = in_dim if isinstance(in_dim, int) else tuple(in_dim)
        self.linear = nn.Linear(in_dim, out_dim, bias=bias) if isinstance(in_dim, int) else None
        # one table for all columns: column c's values start at offset[c]
        self.embedding = None if isinstance(in_dim, int) else nn.Embedding(sum(in_dim), out_dim)
        if not isinstance(in_dim, int):
            offsets = torch.tensor([0, *in_dim[:-1]]).cumsum(0)
            self.register_buffer("offsets", offsets, persistent=False)

    def reset_parameters(self) -> None:
        (self.linear or self.embedding).reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Features [rows, columns] -> [rows, out_dim]. Raises ValueError for another number of columns."""
        width = self.in_dim if isinstance(self.in_dim, int) else len(self.in_dim)
        if x.dim() != 2 or x.size(1) != width:
            raise ValueError(f"features of shape {tuple(x.shape)} given to an encoder built for {width} columns")
        if self.linear is not None:
            x = x.to(self.linear.weight.dtype)
            if x.layout == torch.sparse_csr:
                return sparse_linear(x.values(), x.crow_indices(), x.col_indices(), self.linear.weight, self.linear.bias)
            return self.linear(x)
        return self.embedding(x.long() + self.offsets).sum(1)
