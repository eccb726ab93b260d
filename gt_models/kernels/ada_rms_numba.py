"""AdaRMSNorm on the CPU: one pass over the tokens forward and one backward, which forms the roots again."""

from functools import cache
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from gt_models.kernels.compiled import compiled, real, run
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.kernels.vectors import local

BLOCK = 256  # tokens whose contributions to the gradients of alpha and beta are added up together


class _AdaRMS(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, alpha: Tensor, beta: Tensor, eps: float) -> Tensor:
        x, d = x.contiguous(), x.size(-1)
        y, rows = torch.empty_like(x), x.view(-1, d)
        run(_kernels(x.dtype, d).forward, len(rows), rows, alpha, beta, real(x.dtype)(eps), y.view(-1, d), grain=BLOCK)
        ctx.save_for_backward(x, alpha, beta)
        ctx.eps = eps
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        x, alpha, beta = ctx.saved_tensors
        d, grad, dx = x.size(-1), grad.contiguous(), torch.empty_like(x)
        rows = x.view(-1, d)
        blocks = -(-len(rows) // BLOCK)
        sums = x.new_empty(blocks, 2, d)
        run(
            _kernels(x.dtype, d).backward,
            blocks,
            rows,
            alpha,
            beta,
            real(x.dtype)(ctx.eps),
            grad.view(-1, d),
            dx.view(-1, d),
            sums,
        )
        total = sums.sum(0)
        return dx, total[0], total[1], None


ada_rms = _AdaRMS.apply


@cache
def _kernels(dtype: torch.dtype, dim: int) -> SimpleNamespace:
    """For tokens of `dim` numbers. alpha and beta are copied to the stack: LLVM sees that no store changes them."""
    number = real(dtype)
    zero, size = number(0), number(dim)

    @compiled
    def forward(begin, end, x, alpha, beta, eps, y):
        a, b, row = local(number, dim), local(number, dim), local(number, dim)
        for c in range(dim):
            a[c], b[c] = alpha[c], beta[c]
        for i in range(begin, end):
            s, t = zero, zero
            for c in range(dim):
                row[c] = x[i, c]
            for c in range(dim):
                u = a[c] * row[c] + b[c]
                s += row[c] * row[c]
                t += u * u
            factor = np.sqrt((t / size + eps) / (s / size + eps))
            for c in range(dim):
                row[c] *= factor
            for c in range(dim):
                y[i, c] = row[c]

    @compiled
    def backward(begin, end, x, alpha, beta, eps, grad, dx, sums):
        """Gradients dx, and sums [blocks, 2, d] of x u g r / t and of u g r / t over a block of tokens.

        With s = rms(x)^2, t = rms(u)^2, u = alpha x + beta, r = sqrt(t / s) and g = <dy, x> / d:
        dx = r dy + alpha u g r / t - x g r / s.
        """
        a, b, row, dy = local(number, dim), local(number, dim), local(number, dim), local(number, dim)
        by_alpha, by_beta = local(number, dim), local(number, dim)
        for c in range(dim):
            a[c], b[c] = alpha[c], beta[c]
        for block in range(begin, end):
            for c in range(dim):
                by_alpha[c], by_beta[c] = zero, zero
            for i in range(block * BLOCK, min(len(x), block * BLOCK + BLOCK)):
                s, t, g = zero, zero, zero
                for c in range(dim):
                    row[c], dy[c] = x[i, c], grad[i, c]
                for c in range(dim):
                    u = a[c] * row[c] + b[c]
                    s += row[c] * row[c]
                    t += u * u
                    g += dy[c] * row[c]
                s, t = s / size + eps, t / size + eps
                factor = np.sqrt(t / s)
                moved, shrunk = g / size * factor / t, g / size * factor / s
                for c in range(dim):
                    u = (a[c] * row[c] + b[c]) * moved
                    by_alpha[c] += row[c] * u
                    by_beta[c] += u
                    dy[c] = dy[c] * factor + a[c] * u - row[c] * shrunk
                for c in range(dim):
                    dx[i, c] = dy[c]
            for c in range(dim):
                sums[block, 0, c], sums[block, 1, c] = by_alpha[c], by_beta[c]

    return SimpleNamespace(forward=forward, backward=backward)
