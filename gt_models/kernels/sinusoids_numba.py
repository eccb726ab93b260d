"""Sinusoids on the CPU in float32, in one pass.

A power series gives the lowest frequency; sin 2a = 2 sin a cos a and cos 2a = 1 - 2 sin^2 a give the others.
"""

import math

import numpy as np
from torch import Tensor

from gt_models.kernels.compiled import compiled, run

HALF, ONE, TWO = np.float32(0.5), np.float32(1), np.float32(2)
# of sin(pi r) / r and cos(pi r), r in [-1/2, 1/2]
S6, S5, S4, S3, S2, S1, S0 = (
    np.float32((-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1)) for k in range(6, -1, -1)
)
C6, C5, C4, C3, C2, C1 = (np.float32((-1) ** k * math.pi ** (2 * k) / math.factorial(2 * k)) for k in range(6, 0, -1))


def sinusoids(p: Tensor, num_frequencies: int) -> Tensor:
    """See `gt_models.kernels.sinusoids`."""
    out = p.new_empty(len(p), p.size(1) * (1 + 2 * num_frequencies))
    run(_forward, len(p), p.contiguous(), num_frequencies, out, grain=256)
    return out


@compiled
def _forward(begin, end, p, frequencies, out):
    width = p.shape[1]
    for i in range(begin, end):
        raw, row = p[i], out[i]
        sine, cosine = row[width : 2 * width], row[2 * width : 3 * width]
        for c in range(width):
            row[c] = raw[c]
        for c in range(width):
            k = np.rint(raw[c])
            r = raw[c] - k
            sign, square = ONE - TWO * abs(k - TWO * np.rint(k * HALF)), r * r  # -1 where k is odd
            a = ((((((S6 * square + S5) * square + S4) * square + S3) * square + S2) * square + S1) * square + S0) * r
            b = (((((C6 * square + C5) * square + C4) * square + C3) * square + C2) * square + C1) * square + ONE
            sine[c], cosine[c] = sign * a, sign * b
        for s in range(1, frequencies):
            low, high = row[(2 * s - 1) * width :], row[(2 * s + 1) * width :]
            for c in range(width):
                a, b = low[c], low[width + c]
                high[c], high[width + c] = TWO * a * b, ONE - TWO * a * a
