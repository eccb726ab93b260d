"""Edge Transformer as the authors released it (https://github.com/luis-mueller/towards-principled-gts, commit bab6ce7).

Further norms in the layer, a sum in place of phi, batch norms in the readout. It was run on M, M^2, M^4, ... as RRWP
(`squaring` of the encoding).
"""

# mypy: disable-error-code="assignment"

from typing import Any

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.edge_transformer import PAPER, EdgeTransformer, EdgeTransformerLayer, PairReadout, PairTokens
from gt_models.layers.mlp import MLP
from gt_models.layers.signature import with_arguments_of
from gt_models.registry import register_model


@register_model(
    "edge-transformer-released", levels=("graph", "node", "pair"), cost="n^3 d", encodings=("rrwp",), paper=PAPER
)
class EdgeTransformerReleased(EdgeTransformer):
    """Arguments as of `EdgeTransformer`; the feed-forward network always adds its input."""

    @with_arguments_of(EdgeTransformer, "ffn_residual")
    def __init__(self, **paper: Any):
        super().__init__(**paper, ffn_residual=True)

    @staticmethod
    def submodule_classes() -> tuple[type[nn.Module], type[nn.Module], type[nn.Module]]:
        """The three parts below in place of the paper's."""
        return ReleasedTokens, ReleasedLayer, ReleasedReadout


class ReleasedLayer(EdgeTransformerLayer):
    """U = LN(X + TriangularAttention(LN(X))); X <- LN(U + FFN(U)).

    Not in the paper: the last two norms and the second sum.
    """

    def __init__(
        self, hidden_dim: int, num_heads: int, dropout: float, attn_dropout: float, act: str, ffn_residual: bool = True
    ):
        super().__init__(hidden_dim, num_heads, dropout, attn_dropout, act, ffn_residual)
        self.attention_norm, self.ffn_norm = nn.LayerNorm(hidden_dim), nn.LayerNorm(hidden_dim)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.attention_norm.reset_parameters()
        self.ffn_norm.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Pair states [P, d] -> [P, d]."""
        x = self.attention_norm(x + self.dropout(self.attention(self.norm(x), batch)))  # [P, d]
        return self.ffn_norm(x + self.dropout(self.ffn(x)))  # [P, d]


class ReleasedTokens(PairTokens):
    """X_ij = Linear([F_i F_j]) + E_ij in place of phi, and nothing on the diagonal."""

    def make_phi(self, hidden_dim: int, act: str) -> None:
        """Builds the Linear in place of phi, and no vector for the diagonal."""
        self.pair_encoder, self.pair_out, self.diagonal_token = nn.Linear(2 * hidden_dim, hidden_dim), None, None

    def phi(self, edges: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Linear([F_i F_j]) + E_ij, [P, d], where the paper applies phi to all three."""
        return self.pair_encoder(torch.cat([first, second], 1)) + edges


class ReleasedReadout(PairReadout):
    """BatchNorm-Linear-ReLU-Linear over pairs, and the same over nodes.

    Both sums read the same 2d hidden units; ReLU whatever the model's activation is.
    """

    def __init__(self, hidden_dim: int, act: str):
        nn.Module.__init__(self)  # other widths: nothing is drawn that is not used
        self.norm, self.hidden, self.activation = (
            nn.BatchNorm1d(hidden_dim),
            nn.Linear(hidden_dim, 2 * hidden_dim),
            nn.ReLU(),
        )
        self.first, self.second = nn.Linear(2 * hidden_dim, hidden_dim), nn.Linear(2 * hidden_dim, hidden_dim)
        self.node_norm, self.node_mlp = nn.BatchNorm1d(hidden_dim), MLP([hidden_dim, hidden_dim, hidden_dim])

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for module in (self.norm, self.node_norm, self.node_mlp):
            module.reset_parameters()

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Pair states [P, d] -> nodes [N, d]."""
        rows, columns = self.means(self.norm(x), batch)  # [N, 2d]
        return self.node_mlp(self.node_norm(self.last(rows, columns, batch)))  # [N, d]
