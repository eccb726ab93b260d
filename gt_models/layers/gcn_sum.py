"""Sums over neighbours with the fixed weights of GCN (Kipf & Welling, ICLR 2017, https://arxiv.org/abs/1609.02907)."""

import torch
from torch import Tensor

from gt_models.kernels.neighbour_sum import neighbour_sum
from gt_models.layers.csr import Edges


def gcn_sum(x: Tensor, edges: Edges, times: int = 1) -> list[Tensor]:
    """Powers A x, A^2 x, ... of A = D^-1/2 (A_0 + I) D^-1/2: `times` tensors [N, C].

    They are computed in float32 at least, also under autocast.

    Args:
        x: [N, C].
        edges: from `csr_edges`: incoming edges and one self-loop of each node, which the degrees D count.
        times: number of powers.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    scale = edges.in_degree.to(x.dtype).rsqrt()  # at least one each: the self-loop
    weight, powers = scale[edges.target] * scale[edges.csr[1]], []
    with torch.autocast(x.device.type, enabled=False):
        for _ in range(times):
            x = neighbour_sum(x, weight, *edges.csr)
            powers.append(x)
    return powers
