"""Basis tensors of permutation-equivariant linear layers (Maron et al. 2019; TokenGT, Definitions 2 to 5).

A basis of L_{k->l} is one binary tensor per equality pattern of k + l indices: which of them are equal and which are
not. Patterns are set partitions, bell(k + l) of them: 15 for layers from pairs to pairs.
"""

from functools import cache

import torch
from torch import Tensor


@cache
def set_partitions(size: int) -> tuple[tuple[int, ...], ...]:
    """All bell(size) partitions of `size` elements as restricted growth strings.

    Entry a is the block of element a. Blocks are numbered as they first appear.

    From all different to all equal: for two things ((0, 1), (0, 0)). There are bell(size).
    """
    strings: list[tuple[int, ...]] = [()]
    for _ in range(size):
        strings = [(*s, block) for s in strings for block in range(max(s, default=-1) + 2)]
    return tuple(sorted(strings, reverse=True))


def bell(size: int) -> int:
    """Number of partitions of `size` things: 1, 1, 2, 5, 15, 52, ..."""
    return len(set_partitions(size))


def equality_pattern(indices: Tensor) -> Tensor:
    """Which indices of a tuple are equal: long [..., k] -> long [...], a place in `set_partitions(k)`.

    Two tuples have the same pattern exactly if a permutation of the nodes takes one to the other (Definition 3).
    """
    order = indices.size(-1)
    code = torch.zeros_like(indices[..., 0])
    for a in range(order):
        first = torch.full_like(code, a)  # first position that holds the same index
        for b in reversed(range(a)):
            first = torch.where(indices[..., a] == indices[..., b], b, first)
        code = code * order + first
    # a copy with `device=` would wait for a GPU
    codes, places = (torch.tensor(numbers).to(code.device, non_blocking=True) for numbers in _codes(order))
    return places[torch.searchsorted(codes, code)]


@cache
def _codes(order: int) -> tuple[list[int], list[int]]:
    """Codes of all partitions, rising, and the place of each in `set_partitions(order)`."""
    codes = []
    for string in set_partitions(order):
        code = 0
        for block in string:
            code = code * order + string.index(block)
        codes.append(code)
    places = sorted(range(len(codes)), key=codes.__getitem__)
    return [codes[place] for place in places], places


def pair_indices(num_nodes: int) -> Tensor:
    """All ordered pairs of nodes, row by row: long [n^2, 2]."""
    nodes = torch.arange(num_nodes)
    return torch.cartesian_prod(nodes, nodes).view(-1, 2)


def equivariant_basis(queries: Tensor, keys: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Basis tensors between given multi-indices (Definition 5): B[mu, i, j] = 1 where (i, j) has equality pattern mu.

    Dense: `pairs = pair_indices(n); equivariant_basis(pairs, pairs).view(15, n, n, n, n)`. Sparse: the nodes as (v, v)
    and the edges of a graph as rows of `queries` and `keys`.

    Args:
        queries: long [..., Q, l].
        keys: long [..., K, k], with the same leading dimensions (graphs).
        dtype: of the result.

    Returns:
        [..., bell(l + k), Q, K] of zeros and ones; over mu they sum to one.
    """
    shape = (*queries.shape[:-1], keys.size(-2))  # [..., Q, K]
    left = queries.unsqueeze(-2).expand(*shape, -1)
    right = keys.unsqueeze(-3).expand(*shape, -1)
    pattern = equality_pattern(torch.cat([left, right], -1))  # [..., Q, K]
    patterns = torch.arange(bell(queries.size(-1) + keys.size(-1)), device=pattern.device)
    return (pattern.unsqueeze(-3) == patterns[:, None, None]).to(dtype)


def basis_targets(tuples: Tensor, mask: Tensor | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """What attention should be to act as each basis tensor (TokenGT, appendix on basis approximation).

    Rows are divided by their sums; a row without an entry attends to [null] alone, every other row ignores it.

    Args:
        tuples: multi-indices of the tokens, long [..., T, k].
        mask: bool [..., T], True at real tokens; rows and columns of padding are zero.
        dtype: of the result.

    Returns:
        [..., bell(2k), T, 1 + T]; column 0 is [null].
    """
    basis = equivariant_basis(tuples, tuples, dtype)  # [..., 15, T, T]
    if mask is not None:
        basis = basis * (mask[..., None, :, None] & mask[..., None, None, :])
    total = basis.sum(-1, keepdim=True)  # [..., 15, T, 1]
    null = (total == 0).to(dtype)
    if mask is not None:
        null = null * mask[..., None, :, None]
    return torch.cat([null, basis / total.clamp(min=1)], -1)
