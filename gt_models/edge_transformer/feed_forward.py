"""The feed-forward network of a layer."""

from torch import Tensor, nn

from gt_models.kernels.gelu_mlp import feed_forward
from gt_models.kernels.row_linear import RowLinear
from gt_models.nn.dropout import Dropout
from gt_models.nn.mlp import activation


class FeedForward(nn.Module):
    """Linear, activation, dropout, Linear: [P, d] -> [P, d]."""

    def __init__(self, hidden_dim: int, ffn_dim: int, act: str, dropout: float):
        super().__init__()
        self.hidden, self.out = RowLinear(hidden_dim, ffn_dim), RowLinear(ffn_dim, hidden_dim)
        self.activation, self.dropout = activation(act), Dropout(dropout)

    def reset_parameters(self) -> None:
        self.hidden.reset_parameters()
        self.out.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """[P, d] -> [P, d]."""
        if isinstance(self.activation, nn.GELU) and not (self.training and self.dropout.rate):
            return feed_forward(x, self.hidden, self.out)
        return self.out(self.dropout(self.activation(self.hidden(x))))
