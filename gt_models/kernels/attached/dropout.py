"""Dropout by the counter hash in one pass over memory."""

import torch
from torch import Tensor

from gt_models.kernels.dispatch import Form, attach
from gt_models.kernels.dropout import drop
from gt_models.layers.dropout import Dropout
from gt_models.layers.dropout_hash import draw_seed


def one_pass(module: Dropout, x: Tensor) -> Tensor:
    """`Dropout.drop`."""
    return drop(x, draw_seed(), module.rate)


def _why_not(module: Dropout, x: Tensor) -> str | None:
    return None if x.layout == torch.strided else "the features are sparse"


attach(Dropout, "drop", "dropout_module", [Form("one pass", lambda: one_pass, _why_not)])
