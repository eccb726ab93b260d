"""Where sizes must not depend on what a batch holds."""

import torch
from torch import Tensor


def fixed_sizes(tensor: Tensor) -> bool:
    """Whether every size must follow from the sizes of the batch: torch.compile breaks its graph at a size that numbers decide, and a GPU is waited
    for. On the CPU such a size costs nothing, and saves what padding would cost."""
    return torch.compiler.is_compiling() or tensor.device.type != "cpu"
