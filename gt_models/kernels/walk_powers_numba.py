"""Powers of a walk's matrix on the CPU, written straight into the flat layout of pairs.

On a molecule a sparse row has two products per entry in place of n. As torch operations that would be a pass over
memory for each power and another to put the channels of a pair side by side; here a strip of columns of one graph stays
in cache for all powers.
"""

from functools import cache

import numba
import numpy as np
import torch
from torch import Tensor

from gt_models.kernels.compiled import real, run_parts
from gt_models.kernels.vectors import local

LANES = 64  # columns of a strip
ENTRIES_PER_THREAD = 2**14  # below it a second thread costs more than it does


def walk_powers(out, ptr, row_ptr, col, weight, channel, steps, identity) -> Tensor:
    """Fills `out` [P, channels] with the powers of the walk matrices; see `gt_models.kernels.walk_powers`."""
    pair_ptr = torch.cat([ptr.new_zeros(1), ptr.diff().square().cumsum(0)])
    num_graphs = len(ptr) - 1
    num_threads = max(
        1, min(torch.get_num_threads(), int(pair_ptr[-1]) * (steps + 1) // ENTRIES_PER_THREAD, num_graphs)
    )
    # graphs in parts of about equally many pairs
    cuts = torch.searchsorted(pair_ptr, pair_ptr[-1] * torch.arange(1, num_threads) // num_threads).tolist()
    strips = [0, *cuts, num_graphs]
    run_parts(_kernel(out.dtype), strips, ptr, pair_ptr, row_ptr, col, weight, channel, steps, int(not identity), out)
    return out


@cache
def _kernel(dtype: torch.dtype):
    number = real(dtype)
    zero, one, smallest = number(0), number(1), np.finfo(real(dtype)).tiny

    # without the leave to reorder sums: encodings have the same bits on every machine
    @numba.njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")
    def walk(begin, end, ptr, pair_ptr, row_ptr, col, weight, channel, steps, skip, out):
        """Graphs begin .. end - 1. A strip holds LANES columns of all powers of one graph, [K + 1, n, LANES]."""
        total = local(number, LANES)
        for g in range(begin, end):
            first, n = ptr[g], ptr[g + 1] - ptr[g]
            strip = np.zeros((steps + 1, n, LANES), number)
            for column in range(0, n, LANES):
                width = min(LANES, n - column)
                strip[0] = zero
                for lane in range(width):
                    strip[0, column + lane, lane] = one
                for k in range(1, steps + 1):
                    before, after = strip[k - 1], strip[k]
                    for i in range(n):
                        for lane in range(LANES):
                            total[lane] = zero
                        for e in range(row_ptr[first + i], row_ptr[first + i + 1]):
                            m, w = col[e] - first, weight[e]
                            for lane in range(LANES):
                                total[lane] += w * before[m, lane]
                        for lane in range(LANES):  # denormals are flushed: they would be many times slower
                            after[i, lane] = zero if abs(total[lane]) < smallest else total[lane]
                for i in range(n):
                    for lane in range(width):
                        pair = pair_ptr[g] + i * n + column + lane
                        for k in range(skip, steps + 1):
                            out[pair, channel + k - skip] = strip[k, i, lane]

    return walk
