"""AdaRMSNorm on a GPU: one pass over the tokens forward and one backward, which forms the roots again.

A program has a tile of tokens. Saved for the backward pass: the arguments.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gt_models.kernels.once_differentiable import once_differentiable

PROGRAMS = 512  # each adds up the gradients of alpha and beta of its tiles
TILE = 1024  # numbers of a tile


class _AdaRMS(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, alpha: Tensor, beta: Tensor, eps: float) -> Tensor:
        x, alpha, beta = x.contiguous(), alpha.contiguous(), beta.contiguous()
        y, ctx.constants = torch.empty_like(x), _constants(x.size(-1), eps)
        if x.numel():
            tokens = x.numel() // x.size(-1)
            _forward[(triton.cdiv(tokens, ctx.constants["ROWS"]),)](x, alpha, beta, y, tokens, **ctx.constants)
        ctx.save_for_backward(x, alpha, beta)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        x, alpha, beta = ctx.saved_tensors
        d, dx = x.size(-1), torch.empty_like(x)
        tokens = x.numel() // d
        programs = min(triton.cdiv(tokens, ctx.constants["ROWS"]), PROGRAMS)
        sums = x.new_empty(programs, 2, d)
        if x.numel():
            _backward[(programs,)](grad.contiguous(), x, alpha, beta, dx, sums, tokens, **ctx.constants)
        dalpha, dbeta = sums.sum(0)
        return dx, dalpha, dbeta, None


ada_rms = _AdaRMS.apply


def _constants(width: int, eps: float) -> dict:
    padded = triton.next_power_of_2(width)
    rows = max(1, TILE // padded)
    return {"D": width, "PADDED": padded, "ROWS": rows, "EPS": eps, "num_warps": max(1, min(8, rows * padded // 256))}


@triton.jit
def _squares(x, a, b, D: tl.constexpr, EPS: tl.constexpr):
    """rms(x)^2 and rms(alpha x + beta)^2 of each token, [ROWS, 1] each; x, alpha and beta are zero beyond D."""
    u = a * x + b
    return tl.sum(x * x, 1)[:, None] / D + EPS, tl.sum(u * u, 1)[:, None] / D + EPS


@triton.jit
def _forward(
    x, alpha, beta, y, tokens, D: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, EPS: tl.constexpr
):  # fmt: skip
    """The output of ROWS tokens."""
    i, c = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS), tl.arange(0, PADDED)[None, :]
    place, inside = i[:, None] * D + c, (i < tokens)[:, None] & (c < D)
    a, b = tl.load(alpha + c, c < D, 0.0), tl.load(beta + c, c < D, 0.0)
    row = tl.load(x + place, inside, 0.0)
    s, t = _squares(row, a, b, D, EPS)
    tl.store(y + place, row / tl.sqrt(s) * tl.sqrt(t), inside)


@triton.jit
def _backward(
    grad, x, alpha, beta, dx, sums, tokens,
    D: tl.constexpr, PADDED: tl.constexpr, ROWS: tl.constexpr, EPS: tl.constexpr,
):  # fmt: skip
    """Gradient dx of every PROGRAMS-th tile, and sums [programs, 2, D] of those of alpha and beta over these tiles.

    With s = rms(x)^2, t = rms(u)^2, u = alpha x + beta, r = sqrt(t / s) and g = <dy, x> / d:
    dx = r dy + alpha u g r / t - x g r / s, dalpha = sum x u g r / t, dbeta = sum u g r / t.
    """
    first, c = tl.program_id(0), tl.arange(0, PADDED)[None, :]
    a, b = tl.load(alpha + c, c < D, 0.0), tl.load(beta + c, c < D, 0.0)
    dalpha, dbeta = tl.zeros((PADDED,), a.dtype), tl.zeros((PADDED,), a.dtype)
    for tile in range(first, tl.cdiv(tokens, ROWS), tl.num_programs(0)):
        i = tl.cast(tile, tl.int64) * ROWS + tl.arange(0, ROWS)
        place, inside = i[:, None] * D + c, (i < tokens)[:, None] & (c < D)
        row, dy = tl.load(x + place, inside, 0.0), tl.load(grad + place, inside, 0.0)
        s, t = _squares(row, a, b, D, EPS)
        r = tl.sqrt(t) / tl.sqrt(s)
        g = tl.sum(dy * row, 1)[:, None] / D * r
        u = (a * row + b) * (g / t)
        tl.store(dx + place, dy * r + a * u - row * (g / s), inside)
        dalpha, dbeta = dalpha + tl.sum(row * u, 0), dbeta + tl.sum(u, 0)
    channel = tl.arange(0, PADDED)
    place = sums + first * 2 * D + channel
    tl.store(place, dalpha, channel < D)
    tl.store(place + D, dbeta, channel < D)
