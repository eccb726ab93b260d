"""Triangular attention as the layers call it: seed of the dropout, and precision under autocast."""

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.kernels.triangular_attention import triangular_attention


def attend(projected: Tensor, batch: GraphBatch, dropout: float = 0.0, fusion_norm: nn.Module | None = None) -> Tensor:
    """Eqs. 1 and 2: queries, keys and both values [P, 4, H, d_h] -> [P, H, d_h], under autocast in float32. Dropout draws one seed."""
    seed = torch.randint(2**31 - 1, (1,)) if dropout > 0.0 else torch.zeros(1, dtype=torch.long)
    with torch.autocast(projected.device.type, enabled=False):
        wide = projected if projected.dtype == torch.float64 else projected.float()
        return triangular_attention(wide, batch, seed, dropout, fusion_norm).to(projected.dtype)
