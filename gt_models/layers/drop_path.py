"""Stochastic depth (Huang et al. 2016): a residual branch is dropped for a whole graph at a time."""

# mypy: disable-error-code="arg-type"

import torch
from torch import Tensor, nn


class DropPath(nn.Module):
    """Zeroes a branch per graph with probability `rate` while training and scales what stays by 1 / (1 - rate).

    `forward(branch)`: dimension 0 of the branch is the graph (padded form). `forward(branch, batch, num_graphs)`: rows
    of the branch belong to graphs `batch` (flat form). One rate gives the same distribution in both.
    """

    def __init__(self, rate: float = 0.0):
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"drop path rate {rate} is outside [0, 1)")
        self.rate = rate

    def forward(self, branch: Tensor, batch: Tensor | None = None, num_graphs: int | None = None) -> Tensor:
        """The branch, of the same shape; as it is outside of training."""
        if not self.training or self.rate == 0.0:
            return branch
        count = branch.size(0) if batch is None else num_graphs
        keep = (torch.rand(count, device=branch.device) >= self.rate).to(branch.dtype) / (1.0 - self.rate)
        keep = keep if batch is None else keep[batch]
        return branch * keep.view(-1, *[1] * (branch.dim() - 1))

    def extra_repr(self) -> str:
        return f"rate={self.rate}"
