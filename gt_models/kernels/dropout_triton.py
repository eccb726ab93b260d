"""The counter hash of dropout in Triton: entries that `gt_models.kernels.dropout` drops are dropped here."""

import triton
import triton.language as tl

GOLDEN = tl.constexpr(0x9E3779B9)


@triton.jit
def hash32(x):
    """As `gt_models.kernels.dropout.hash32`, of uint32."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def is_kept(hashed_seed, position, LIMIT: tl.constexpr):
    """Whether the entries at `position`, any integers, survive; `hashed_seed` = hash32(seed), uint32."""
    return hash32(hashed_seed + position.to(tl.uint32) * GOLDEN) >= LIMIT
