"""The hash that decides which entries dropout keeps, shared by the reference and the fast forms.

The entry at a position is kept if hash32(hash32(seed) + position * GOLDEN mod 2^32) is at least the threshold. hash32 is a bijection and GOLDEN is
odd. Hence two seeds never share the hash of an entry at the same position, and two positions below 2^32 of one seed never share one. The entries p of
one random seed and q of another share a hash with probability 2^-32, as independent 32-bit numbers do.

The streams of all seeds are windows of one sequence of length 2^32. The windows of two seeds of n entries overlap, shifted against each other, with
probability 2n / 2^32. Philox has no such overlaps. It would change the numbers of every run with dropout.
"""

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
