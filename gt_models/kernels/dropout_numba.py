"""Dropout by the counter hash on the CPU, one pass over memory."""

import numpy as np
import torch
from torch import Tensor

from gt_models.kernels.compiled import compiled, hash32, inner, real, run
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.layers.dropout_hash import GOLDEN, threshold

_GOLDEN = np.uint32(GOLDEN)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, seed: Tensor, rate: float) -> Tensor:
        ctx.seed, ctx.rate = seed, rate
        return _run(x, seed, rate)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        return _run(grad, ctx.seed, ctx.rate), None, None


drop = _Drop.apply


def _run(x: Tensor, seed: Tensor, rate: float) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    run(_pass, x.numel(), x.view(-1), *draws(seed, rate, x.dtype), out.view(-1), grain=2**14)
    return out


def draws(seed: Tensor | None, rate: float, dtype: torch.dtype) -> tuple[np.uint32, np.uint32, np.floating]:
    """(seed, threshold, scale) as kernels take them; seed None: the threshold is 0, and no entry is dropped."""
    if seed is None:
        return np.uint32(0), np.uint32(0), real(dtype)(1)
    return np.uint32(int(seed)), np.uint32(threshold(rate)), real(dtype)(1 / (1 - rate))


@inner
def is_kept(hashed_seed, position, limit):
    """Whether the entry at `position` (unsigned, 32 bits) survives."""
    return hash32(np.uint32(hashed_seed + position * _GOLDEN)) >= limit


@inner
def factors(hashed_seed, first, limit, scale, out):
    """What dropout multiplies the entries from number `first` on by."""
    for t in range(len(out)):
        out[t] = scale if is_kept(hashed_seed, np.uint32(first + t), limit) else scale - scale


@compiled
def _pass(begin, end, x, seed, limit, scale, out):
    hashed, zero = hash32(seed), scale - scale
    # indices from 0 on: Numba lets negative ones count from the end, which keeps loops out of vectors
    x, out = x[begin:end], out[begin:end]
    for i in range(end - begin):
        out[i] = x[i] * scale if is_kept(hashed, np.uint32(begin + i), limit) else zero
