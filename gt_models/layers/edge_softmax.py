"""Softmax over the incoming edges of each node, in plain torch."""

import torch
from torch import Tensor


def edge_softmax(scores: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """Scores [E, ...] -> weights of their shape that sum to one over the edges of each target [E]; at least in float32.

    An edge of the target `num_nodes` belongs to no node (see `gt_models.layers.csr.csr_of`).
    """
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    index, size = target.view(-1, *[1] * (scores.dim() - 1)).expand_as(scores), (num_nodes + 1, *scores.shape[1:])
    peak = scores.new_full(size, -torch.inf).scatter_reduce(0, index, scores.detach(), "amax")
    weight = (scores - peak[target]).exp()
    return weight / weight.new_zeros(size).index_add(0, target, weight)[target]


def sum_over_edges(messages: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """Messages [E, ...] -> their sum at each target, [N, ...]; 0 where none arrives."""
    return messages.new_zeros(num_nodes + 1, *messages.shape[1:]).index_add(0, target, messages)[:-1]
