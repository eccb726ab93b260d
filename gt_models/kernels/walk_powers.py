"""Powers of the matrix of a random walk, for all pairs of nodes: RRWP.

Source: Ma et al. 2023, Graph Inductive Biases in Transformers without Message Passing, https://arxiv.org/abs/2305.17589.

    M^0 = I     M^k_ij = sum over the edges e = (i -> m) of w_e M^(k-1)_mj
"""

import torch
from torch import Tensor

from gt_models.kernels.dispatch import Form, Operation


def reference(
    out: Tensor, ptr: Tensor, row_ptr: Tensor, col: Tensor, weight: Tensor, channel: int, steps: int, identity: bool
) -> Tensor:
    """Writes (I if `identity`), M^1 .. M^K into the channels of `out` from `channel` on, and returns `out`.

    Args:
        out: [sum n_b^2, C], rows of a graph's pairs one after another, contiguous.
        ptr: node offsets of the graphs, long [B + 1].
        row_ptr: offsets of the rows of M of all graphs, long [N + 1].
        col: columns of the entries of M, long [E].
        weight: values of the entries of M, [E].
        channel: the first channel.
        steps: K.
        identity: whether the first channel is I.
    """
    sizes = ptr.diff()
    pair_ptr = torch.cat([ptr.new_zeros(1), sizes.square().cumsum(0)])
    graph = torch.repeat_interleave(torch.arange(len(sizes), device=ptr.device), sizes)  # of each node
    row = torch.repeat_interleave(torch.arange(len(graph), device=ptr.device), row_ptr.diff())  # of each edge
    start = (
        pair_ptr[graph] + (torch.arange(len(graph), device=ptr.device) - ptr[graph]) * sizes[graph]
    )  # slot of (node, first node)
    edge = torch.repeat_interleave(
        torch.arange(len(row), device=ptr.device), sizes[graph[row]]
    )  # each edge for all columns j
    j = torch.arange(len(edge), device=ptr.device) - torch.repeat_interleave(
        (sizes[graph[row]].cumsum(0) - sizes[graph[row]]), sizes[graph[row]]
    )
    target, source = start[row][edge] + j, start[col][edge] + j
    power = out.new_zeros(len(out))
    power[start + torch.arange(len(graph), device=ptr.device) - ptr[graph]] = 1
    if identity:
        out[:, channel] = power
    for k in range(steps):
        power = torch.zeros_like(power).index_add(0, target, weight[edge] * power[source])
        out[:, channel + int(identity) + k] = power
    return out


def _example(out: Tensor, *_) -> tuple[tuple, dict]:
    """A path of three nodes, a node alone, and a directed cycle of 18 with a node without edges."""
    sources = [0, 1, 1, 2, *range(4, 22)]
    targets = [1, 0, 2, 1, *range(5, 22), 4]
    row_ptr = torch.bincount(torch.tensor(sources) + 1, minlength=24).cumsum(0)
    weight = torch.tensor([1.0, 0.5, 0.5, 1.0] + [0.75] * 18, dtype=out.dtype)
    ptr = torch.tensor([0, 3, 4, 23])
    return (out.new_zeros(9 + 1 + 361, 6), ptr, row_ptr, torch.tensor(targets), weight, 1, 4, True), {}


def _numba():
    from gt_models.kernels.walk_powers_numba import walk_powers

    return walk_powers


walk_powers = Operation("walk_powers", reference, [Form("numba", _numba)], _example)
