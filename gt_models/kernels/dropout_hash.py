"""The hash that decides which entries dropout keeps, shared by the reference and the fast forms."""

from torch import Tensor

GOLDEN = 0x9E3779B9  # 2^32 / golden ratio: spreads neighbouring positions


def hash32(x: Tensor) -> Tensor:
    """A 32-bit mixing function on long tensors of 0 .. 2^32 - 1; https://github.com/skeeto/hash-prospector, the two-round form."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return x ^ (x >> 16)


def threshold(rate: float) -> int:
    """Hashes below it are dropped."""
    return int(rate * 2**32)
