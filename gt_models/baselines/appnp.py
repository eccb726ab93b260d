"""APPNP (Gasteiger et al., ICLR 2019, https://arxiv.org/abs/1810.05997).

An MLP on nodes, then steps of personalised PageRank.
"""

from collections.abc import Sequence
from typing import Literal

from gt_models.baselines.gprgnn import GPRGNN
from gt_models.registry import register_model


@register_model(
    "appnp",
    levels=("node",),
    cost="m c + n d^2 for c classes",
    paper="Gasteiger, Bojchevski, Guennemann: Predict then Propagate: Graph Neural Networks meet Personalized "
    "PageRank, ICLR 2019. https://arxiv.org/abs/1810.05997",
    sparse_x=True,
)
class APPNP(GPRGNN):
    """Node [N, out_dim]: z <- (1 - alpha) A z + alpha MLP(x), `steps` times from z = MLP(x).

    This is GPR-GNN whose gamma stays at its first value.

    Args:
        in_dim, out_dim, level, hidden_dim, steps, alpha, dropout: see `GPRGNN`.

    Raises as `GPRGNN`.
    """

    learned = False

    def __init__(
        self,
        in_dim: int | Sequence[int],
        out_dim: int,
        level: Literal["node"] = "node",
        hidden_dim: int = 64,
        steps: int = 10,
        alpha: float = 0.1,
        dropout: float = 0.5,
    ):
        super().__init__(in_dim, out_dim, level, hidden_dim, steps, alpha, dropout, step_dropout=0.0)
