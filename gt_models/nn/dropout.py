"""Dropout for large CPU tensors: torch draws one Bernoulli number per entry, on one thread, which costs more than the layer around it."""

import numpy as np
import torch
from torch import Tensor, nn


class Dropout(nn.Module):
    """Zeroes entries with probability `rate` while training and scales the others by 1 / (1 - rate).

    On the CPU four entries share one 64-bit draw, so the rate is rounded to a multiple of 2^-16 (and the scale with it). Elsewhere it is
    torch's dropout.
    """

    def __init__(self, rate: float = 0.0):
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"dropout {rate} is outside [0, 1)")
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.rate)
        threshold = min(round(self.rate * 2**16), 2**16 - 1)
        draws = random_bits(torch.randint(2**62, (1,)), x.numel()).view(x.shape)
        return x * (draws >= threshold - 2**15) * (2**16 / (2**16 - threshold))  # a Bernoulli byte per entry is kept for the backward pass

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


@torch.library.custom_op("gt_models::random_bits", mutates_args=())
def random_bits(seed: Tensor, count: int) -> Tensor:
    """`count` uniform int16 numbers from `seed`, long [1]."""
    generator = np.random.Generator(np.random.SFC64(int(seed)))
    draws = generator.integers(0, 2**64 - 1, (count + 3) // 4, dtype=np.uint64, endpoint=True)
    return torch.from_numpy(draws.view(np.int16)[:count])


@random_bits.register_fake
def _(seed, count):
    return seed.new_empty(count, dtype=torch.int16)
