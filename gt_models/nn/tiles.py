"""Sums over many groups of unlike size as few batched matrix products: the rows of a group are laid out in tiles of one length.

Groups are the nodes of a graph (their edges) or graphs (their nodes or edges). Moving rows into tiles and back is a gather in both
directions, forward and backward, never a scatter with collisions: deterministic on CPU and CUDA.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

_LENGTHS = (4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256)


class Tiling:
    """Rows 0..r-1 in tiles of `length` places, each tile within one group, at least one tile per group.

    Args:
        group: long [r], group of each row.
        num_groups: number of groups.

    Attributes:
        rows: long [tiles, length], row of each place; some valid row at empty places.
        empty: bool [tiles, length], places without a row.
        tile_group: long [tiles]; None where tile t is group t.
        place: long [r], tile * length + offset of each row.
    """

    def __init__(self, group: Tensor, num_groups: int):
        self.num_rows, self.num_groups = group.numel(), num_groups
        sizes = torch.bincount(group, minlength=num_groups)
        # the length with the least work: places to move, and for each tile about 16 places' worth of sums to hold
        costs = torch.stack([(-(-sizes // t)).clamp(min=1).sum() * (t + 16) for t in _LENGTHS])
        self.length = length = _LENGTHS[int(costs.argmin())]
        counts = (-(-sizes // length)).clamp(min=1)  # tiles of each group
        tile_group = torch.repeat_interleave(torch.arange(num_groups, device=group.device), counts)
        self.num_tiles = tile_group.numel()
        self.tile_group = None if self.num_tiles == num_groups else tile_group
        start, first_tile = sizes.cumsum(0) - sizes, counts.cumsum(0) - counts
        order = torch.argsort(group, stable=True)
        offset = (torch.arange(self.num_tiles, device=group.device) - first_tile[tile_group]) * length
        within = offset[:, None] + torch.arange(length, device=group.device)  # [tiles, length]
        self.empty = within >= sizes[tile_group][:, None]
        position = (start[tile_group][:, None] + within).masked_fill(self.empty, 0)
        self.rows = order[position] if group.numel() else position
        sorted_group = group[order]
        rank = torch.arange(group.numel(), device=group.device) - start[sorted_group]
        self.place = torch.empty_like(order)
        self.place[order] = first_tile[sorted_group] * length + rank
        self._cache: dict[Any, Any] = {}

    def into(self, slots: int, heads: int, source: Tensor | None) -> Tensor:
        """Where in [rows x slots x heads] the entries of [count, tiles, heads, length] come from [count x tiles x heads x length]."""
        key = (slots, heads, None if source is None else id(source))
        if key not in self._cache:
            rows = self.rows if source is None else source[self.rows]
            slot = torch.arange(slots, device=rows.device)[:, None, None, None]
            head = torch.arange(heads, device=rows.device)[:, None]
            # the source is kept beside its index, so that no other tensor can come to have its id
            self._cache[key] = (((rows[:, None, :] * slots + slot) * heads + head).flatten(), source)
        return self._cache[key][0]

    def back(self, count: int, heads: int) -> Tensor:
        """Where in [count, tiles, heads, length] the entries of [rows, count, heads] come from, [rows x count x heads]."""
        key = (count, heads)
        if key not in self._cache:
            tile, offset = (self.place // self.length)[:, None, None], (self.place % self.length)[:, None, None]
            slot = torch.arange(count, device=tile.device)[:, None]
            head = torch.arange(heads, device=tile.device)
            self._cache[key] = (((slot * self.num_tiles + tile) * heads + head) * self.length + offset).flatten()
        return self._cache[key]

    def real(self, like: Tensor) -> Tensor:
        """One at places with a row, zero at empty ones: [tiles, 1, length, 1]."""
        if like.dtype not in self._cache:
            self._cache[like.dtype] = (~self.empty)[:, None, :, None].to(like.dtype)
        return self._cache[like.dtype]

    def per_tile(self, groups: Tensor) -> Tensor:
        """[groups, ...] -> [tiles, ...]."""
        return groups if self.tile_group is None else groups.index_select(0, self.tile_group)


def to_tiles(values: Tensor, tiling: Tiling, source: Tensor | None = None) -> Tensor:
    """values [r, slots, heads, d] -> [slots, tiles, heads, length, d]; numbers of no meaning at empty places.

    `source`: row of `values` for each row of the tiling; None where they are the same.
    """
    return _ToTiles.apply(values, tiling, source, False)


def values_to_tiles(values: Tensor, tiling: Tiling) -> Tensor:
    """values [r, slots, heads, d] -> [slots, tiles, heads, length, d + 1]: zero at empty places, the last channel one at the others."""
    return _ToTiles.apply(values, tiling, None, True)


def from_tiles(tiles: Tensor, tiling: Tiling) -> Tensor:
    """[slots, tiles, heads, length, d] -> [r, slots, heads, d]; what is at empty places is left out, and gets no gradient."""
    return _FromTiles.apply(tiles, tiling)


class _ToTiles(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, tiling: Tiling, source: Tensor | None, with_ones: bool) -> Tensor:
        ctx.tiling, ctx.source, ctx.shape = tiling, source, values.shape
        out = _gather(values, tiling, source)  # [slots, tiles, heads, length, d]
        if not with_ones:
            return out
        real = tiling.real(out)  # [tiles, 1, length, 1]
        wide = out.new_empty(*out.shape[:-1], out.size(-1) + 1)
        torch.mul(out, real, out=wide[..., :-1])
        wide[..., -1:] = real
        return wide

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        r, slots, heads, d = ctx.shape
        rows = _ungather(grad, ctx.tiling)[..., :d]  # [rows of the tiling, slots, heads, d]
        if ctx.source is not None:
            rows = rows.new_zeros(r, slots * heads * d).index_add_(0, ctx.source, rows.flatten(1)).view(ctx.shape)
        return rows, None, None, None


class _FromTiles(Function):
    @staticmethod
    def forward(ctx: Any, tiles: Tensor, tiling: Tiling) -> Tensor:
        ctx.tiling = tiling
        return _ungather(tiles, tiling)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tiling = ctx.tiling
        return _gather(grad, tiling, None).mul_(tiling.real(grad)), None


def _gather(values: Tensor, tiling: Tiling, source: Tensor | None) -> Tensor:
    r, slots, heads, d = values.shape
    shape = (slots, tiling.num_tiles, heads, tiling.length, d)
    if r == 0 or tiling.num_rows == 0:
        return values.new_zeros(shape)
    return values.reshape(r * slots * heads, d).index_select(0, tiling.into(slots, heads, source)).view(shape)


def _ungather(tiles: Tensor, tiling: Tiling) -> Tensor:
    count, _, heads, _, d = tiles.shape
    return tiles.reshape(-1, d).index_select(0, tiling.back(count, heads)).view(tiling.num_rows, count, heads, d)
