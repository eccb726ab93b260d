"""TokenGT as its authors released it, where it differs from the paper.

https://github.com/jw9730/tokengt (large-scale-regression).
"""

# mypy: disable-error-code="arg-type, assignment"

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.identifiers import orthogonal_rows_of_largest
from gt_models.registry import register_model
from gt_models.tokengt import REGISTERED, TokenGT


@register_model("tokengt-released", **REGISTERED)
class TokenGTReleased(TokenGT):
    """Arguments and errors of `TokenGT`. In addition to the [graph] token each graph has a [null] token (tokenizer.py).

    Orthogonal random features: an n_max x n_max matrix, n_max the largest graph of the batch, its first d_p channels,
    rows of unit length; so a batch differs from its graphs alone.
    """

    def build_output(self, hidden_dim: int, out_dim: int) -> None:
        """Layer norm before the first layer, none after the last, and a head with a hidden layer.

        Source: tokengt_graph_encoder.py, tokengt.py.
        """
        # deviates: the pooler and the final norm that it builds and never applies are left out (`build_unused`)
        self.null_token = nn.Parameter(torch.empty(1, hidden_dim))
        self.embedding_norm = nn.LayerNorm(hidden_dim)
        self.final_norm = nn.Identity()
        self.head = TransformHead(hidden_dim, out_dim)

    def build_unused(self) -> None:
        """Build the pooler and the final norm that the released code never applies, for its parameter counts."""
        dim = self.embedding_norm.normalized_shape[0]
        self.unused = nn.ModuleList([nn.Linear(dim, dim), nn.LayerNorm(dim)])

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.zeros_(self.head.bias)

    def special_tokens(self) -> list[Tensor]:
        """A [null] token behind the [graph] token (tokenizer.py)."""
        return [*super().special_tokens(), self.null_token]

    def tokens(self, *arguments) -> Tensor:
        """A layer norm before the first layer (tokengt_graph_encoder.py)."""
        return self.embedding_norm(super().tokens(*arguments))

    def drop_eigenvectors(self, vectors: Tensor, batch: GraphBatch) -> Tensor:
        """Single entries are dropped (tokenizer.py); the paper drops eigenvectors."""
        return F.dropout(vectors, self.eigenvector_dropout)

    @staticmethod
    def orthogonal_rows(  # type: ignore[override]  # the paper's is an attribute
        sizes: Tensor, owner: Tensor, local: Tensor, max_size: int, width: int, dtype: torch.dtype
    ) -> Tensor:
        """tokenizer.py pads all graphs to the largest of the batch before it draws."""
        return orthogonal_rows_of_largest(sizes.numel(), owner, local, max_size, width, dtype)


class TransformHead(nn.Module):
    """Linear, GELU, LN, Linear without bias, and one scalar bias: [..., d] -> [..., out]."""

    def __init__(self, hidden_dim: int, out_dim: int):
        super().__init__()
        self.transform = nn.Linear(hidden_dim, hidden_dim)
        self.norm = nn.LayerNorm(hidden_dim)
        self.out = nn.Linear(hidden_dim, out_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """[rows, hidden_dim] -> [rows, out_dim]."""
        return self.out(self.norm(F.gelu(self.transform(x)))) + self.bias
