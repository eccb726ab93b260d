"""Where sizes must not depend on what a batch holds."""

import torch
from torch import Tensor, nn


def needs_static_shapes(tensor: Tensor) -> bool:
    """Whether every size must follow from the sizes of the batch.

    torch.compile breaks its graph at a size that depends on values, and a GPU must synchronise. On the CPU such a size
    costs nothing and avoids padding.
    """
    return torch.compiler.is_compiling() or tensor.device.type != "cpu" or stands_for_numbers(tensor)


def stands_for_numbers(*tensors: Tensor) -> bool:
    """Whether a transform of torch.func is active, or a tensor is of a subclass, such as a fake tensor."""
    return torch._C._functorch.peek_interpreter_stack() is not None or any(
        type(t) not in (Tensor, nn.Parameter) for t in tensors
    )
