"""Activation checkpointing for models that do not fit into memory.

Only the input of each layer is stored. Its intermediate results are computed again in the backward pass, by the same
operations with the same random numbers. The results of a run are bit-identical. It uses less memory and about a third
more time.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute(model: nn.Module) -> int:
    """Enables activation checkpointing for the layers in the outermost ModuleLists of a model.

    Returns:
        The number of these layers. 0 if the model has none.
    """
    # a layer that counts its forward passes outside its buffers would draw random features at another time
    layers = [
        layer
        for layer in _layers(model)
        if not any(getattr(module, "counts_forwards", False) for module in layer.modules())
    ]
    for layer in layers:
        layer.forward = partial(_forward, layer, layer.forward)
    return len(layers)


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        yield from child if isinstance(child, nn.ModuleList) else _layers(child)


def _forward(layer: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    before, again = [buffer.clone() for buffer in layer.buffers()], False

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal again
        if not again:
            again = True
            return forward(*args, **kwargs)
        # the second pass must not update running statistics again
        after = [buffer.clone() for buffer in layer.buffers()]
        _set_buffers(layer, before)
        out = forward(*args, **kwargs)
        _set_buffers(layer, after)
        return out

    return checkpoint(run, *args, use_reentrant=False, **kwargs)


def _set_buffers(layer: nn.Module, values: list[torch.Tensor]) -> None:
    for buffer, value in zip(layer.buffers(), values, strict=True):
        buffer.data.copy_(value)  # `data`: autograd may have saved the buffer
