"""What keys are stabilised by in the softmax kernel (`gt_models.layers.performer.softmax_kernel`): a maximum of c P k, which cancels but for eps."""

import math

import torch
from torch import Tensor


def scaled_product(u: Tensor, projection: Tensor) -> Tensor:
    """c P u with c = d^-1/4: [..., d], [m, d] -> [..., m]."""
    return (u * u.size(-1) ** -0.25) @ projection.T


def graph_maximum(
    keys: Tensor, projection: Tensor, key_of_entry: Tensor | None, graph_of_entry: Tensor, num_graphs: int
) -> Tensor:
    """One for each graph and head: keys [K, heads, d] -> [K, heads, 1].

    Args:
        key_of_entry: long [E], the key of each entry that is summed over; None: entry e has key e.
        graph_of_entry: long [E]; `num_graphs` where the entry does not count.
    """
    here = scaled_product(keys, projection).amax(-1)  # [K, heads]
    here = here if key_of_entry is None else here.index_select(0, key_of_entry)  # [E, heads]
    most = here.new_full((num_graphs + 1, here.size(1)), -math.inf)
    most = most.scatter_reduce(0, graph_of_entry[:, None].expand_as(here), here, "amax")
    graph = graph_of_entry
    if key_of_entry is not None:  # of each key that an entry has
        graph = graph.new_full((len(keys),), num_graphs).scatter_reduce(0, key_of_entry, graph, "amin")
    return most.masked_fill(most == -math.inf, 0.0).index_select(0, graph)[..., None]


def call_maximum(keys: list[Tensor], projection: Tensor, spare: Tensor | None) -> Tensor:
    """One for all keys [K, heads, d] of one order, at least 0; `spare`: keys that do not count, bool [K], or None."""
    largest = [projection.new_zeros(())]
    for k in keys:
        if k.numel():
            product = scaled_product(k, projection)
            largest.append((product if spare is None else product.masked_fill(spare[:, None, None], 0.0)).amax())
    return torch.stack(largest).amax()
