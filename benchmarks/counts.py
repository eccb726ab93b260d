"""Operations and memory traffic of a training step, counted on the definitions in plain torch.

The floor of a CPU and of a GPU are computed from the same counts.

with use("reference"), Counts() as counts:
    loss().backward(); optimiser.step()
counts.products       operations of matrix products (a multiplication and an addition are two)
counts.product_bytes  their operands and results, each once a product
counts.other          numbers that every other operation writes
counts.bytes          what every operation reads and writes, products too: the traffic if nothing is fused
counts.calls          operations that are no view: kernels that a GPU would launch
counts.optimiser_bytes  what the optimiser's calls read and write
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

# fused attention of the CPU, which torch's own counter does not know: products of the forward pass (two), of the
# backward pass (five)
ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (2, 0),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (5, 1),
}


class Counts(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.products = self.product_bytes = self.other = self.bytes = self.calls = self.optimiser_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func.is_view or func.namespace != "aten":
            return out
        written = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        moved = sum(_bytes(t) for t in tree_leaves((args, kwargs)) + written if isinstance(t, Tensor))
        self.calls += 1
        self.bytes += moved
        packet = func.overloadpacket
        if packet in ATTENTION:
            count, first = ATTENTION[packet]
            query, key = args[first : first + 2]
            self.products += count * 2 * query.numel() * key.size(-2)
        elif packet in flop_registry:
            self.products += flop_registry[packet](*args, **(kwargs or {}), out_val=out)
        else:
            self.other += sum(t.numel() for t in written)
            if packet.__name__.startswith(
                "_fused_"
            ):  # reads weights, gradients and two moments, and writes three of them back in place
                self.optimiser_bytes += moved * 7 // 4
            return out
        self.product_bytes += moved
        return out

    def floor(self, operations: float, bandwidth: float) -> float:
        """Seconds at given rates of products and bytes per second.

        Products overlap perfectly with their traffic and that of the optimiser; everything else is free.
        """
        return max(self.products / operations, (self.product_bytes + self.optimiser_bytes) / bandwidth)


def _bytes(tensor: Tensor) -> int:
    if tensor.layout != torch.strided:
        return sum(_bytes(part) for part in (tensor.values(), tensor.col_indices(), tensor.crow_indices()))
    # an expanded tensor is as large as what it repeats
    size = tensor.element_size()
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        size *= length if stride else 1
    return size
