"""The hash that decides which entries dropout keeps, shared by the reference and the fast forms.

The entry at a position survives if hash32(hash32(seed) + position * GOLDEN mod 2^32) is at least the threshold. hash32
is a bijection and GOLDEN is odd. Hence two seeds never share the hash of an entry at the same position, and two
positions below 2^32 of one seed never share one. The entries p of one random seed and q of another share a hash with
probability 2^-32, as independent 32-bit numbers do.

The streams of all seeds are windows of one sequence of length 2^32. The windows of two seeds of n entries overlap,
shifted against each other, with probability 2n / 2^32. Philox has no such overlaps. It would change the numbers of
every run with dropout.
"""

import torch
from torch import Tensor

GOLDEN = 0x9E3779B9  # 2^32 / golden ratio: spreads neighbouring positions


def hash32(x: Tensor) -> Tensor:
    """A 32-bit mixing function on long tensors of 0 .. 2^32 - 1.

    https://github.com/skeeto/hash-prospector, the two-round form.
    """
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return x ^ (x >> 16)


def threshold(rate: float) -> int:
    """Hashes below it are dropped."""
    return int(rate * 2**32)


def draw_seed(device: torch.device | None = None) -> Tensor:
    """A seed from torch's CPU generator, long [1].

    Copy it to a GPU with `non_blocking=True`: otherwise each layer waits for the GPU.

    Args:
        device: in a compiled graph, draw by this device's generator instead, because a CUDA graph that is replayed
            cannot read a number from the CPU.
    """
    return torch.randint(2**31 - 1, (1,), device=device if torch.compiler.is_compiling() else None)


def kept(seed: Tensor, count: int, rate: float) -> Tensor:
    """Whether the entries 0 to count - 1 survive: bool [count] on the device of `seed`, long [1]."""
    return kept_at(seed, torch.arange(count, device=seed.device), rate)


def kept_at(seed: Tensor, position: Tensor, rate: float) -> Tensor:
    """Whether the entries at `position`, long, survive: bool of its shape."""
    return hash32((hash32(seed) + _spread(position)) & 0xFFFFFFFF) >= threshold(rate)


def kept_in_rows(seed: Tensor, row: Tensor, num_columns: int, rate: float) -> Tensor:
    """Whether the entries of rows of attention weights survive.

    Which ones depends on the number of the row and on the column, not on how rows are padded or split.

    Args:
        seed: long [1].
        row: number of each row, long [...].
        num_columns: entries of a row.
        rate: share of the entries that is dropped.

    Returns:
        bool [..., num_columns].
    """
    hashed = hash32((row & 0xFFFFFFFF) ^ seed.to(row.device, non_blocking=True))
    column = _spread(torch.arange(num_columns, device=row.device))
    return hash32((hashed[..., None] + column) & 0xFFFFFFFF) >= threshold(rate)


def _spread(position: Tensor) -> Tensor:
    """Position * GOLDEN, exact modulo 2^32.

    Without the mask, torch.compile takes the product of an `arange` for an index of 32 bits, and Triton refuses GOLDEN
    as too large.
    """
    return (position & 0xFFFFFFFF) * GOLDEN
