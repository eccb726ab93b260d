"""GPR-GNN (Chien et al., ICLR 2021, https://arxiv.org/abs/2006.07988).

An MLP on nodes, then a learned sum of powers of the adjacency matrix.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.layers.csr import csr_edges
from gt_models.layers.dropout import Dropout
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.gcn_sum import gcn_sum
from gt_models.layers.graph_model import GraphModel
from gt_models.layers.precision import dtype_of
from gt_models.registry import register_model


@register_model(
    "gprgnn",
    levels=("node",),
    cost="m c + n d^2 for c classes",
    paper="Chien et al.: Adaptive Universal Generalized PageRank Graph Neural Network, ICLR 2021. "
    "https://arxiv.org/abs/2006.07988",
    sparse_x=True,
)
class GPRGNN(GraphModel):
    """Node [N, out_dim]: sum_k gamma_k A^k MLP(x), k = 0 .. steps, A = D^-1/2 (A + I) D^-1/2.

    The MLP is dropout, Linear, ReLU, dropout, Linear.

    gamma begins as personalised PageRank, alpha (1 - alpha)^k and (1 - alpha)^steps for the last, and is learned.

    Args:
        in_dim: width of continuous node features, or vocabulary sizes of categorical columns.
        out_dim: classes.
        level: "node".
        hidden_dim: of the MLP.
        steps: the highest power.
        alpha: of the first gamma, in 0 .. 1.
        dropout: of the features (continuous ones) and after the MLP's ReLU.
        step_dropout: of what is propagated.

    Raises:
        ValueError: another level, no step, or an alpha outside of 0 .. 1.
    """

    learned = True

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node"] = "node",
        hidden_dim: int = 64,
        steps: int = 10,
        alpha: float = 0.1,
        dropout: float = 0.5,
        step_dropout: float = 0.5,
    ):
        super().__init__()
        if level != "node":
            raise ValueError(f"this model cannot predict at level {level!r}; it predicts: node")
        if steps < 1 or not 0 <= alpha <= 1:
            raise ValueError(f"{steps} steps with alpha {alpha}: give at least one step, and an alpha from 0 to 1")
        self.steps, self.alpha, self.continuous = steps, alpha, isinstance(in_dim, int)
        self.encoder, self.head = FeatureEncoder(in_dim, hidden_dim), nn.Linear(hidden_dim, out_dim)
        self.in_dropout, self.dropout, self.step_dropout = (
            Dropout(dropout),
            nn.Dropout(dropout),
            nn.Dropout(step_dropout),
        )
        # APPNP's weights are numbers and no buffer, which `to_empty` would leave undefined
        self.gamma = nn.Parameter(torch.empty(steps + 1)) if self.learned else self._pagerank()
        self._reset_gamma()

    def reset_parameters(self) -> None:
        self.encoder.reset_parameters()
        self.head.reset_parameters()
        self._reset_gamma()

    def _pagerank(self) -> list[float]:
        """The steps + 1 weights of personalised PageRank."""
        powers = [(1 - self.alpha) ** k for k in range(self.steps + 1)]
        return [*(self.alpha * power for power in powers[:-1]), powers[-1]]

    def _reset_gamma(self) -> None:
        if isinstance(self.gamma, nn.Parameter):
            with torch.no_grad():
                self.gamma.copy_(torch.tensor(self._pagerank()))

    def forward_features(self, batch: GraphBatch) -> Tensor:
        """Of each node by itself, [N, d]."""
        x = self.in_dropout(batch.x) if self.continuous else batch.x
        return self.dropout(self.encoder(x).relu())

    def forward_head(self, features: Tensor, batch: GraphBatch) -> Tensor:
        """The MLP's last Linear, then the weighted sum over steps: [N, d] -> [N, out_dim]."""
        x = self.step_dropout(self.head(features))  # [N, out]
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        out = self.gamma[0] * x
        for gamma, power in zip(self.gamma[1:], gcn_sum(x, csr_edges(batch), self.steps), strict=True):
            out = out + gamma * power
        return out.to(dtype_of(self.head))
