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

    def into(self, slots: int, first: int, count: int, heads: int, source: Tensor | None) -> Tensor:
        """Where in [rows x slots x heads] the entries of [count, tiles, heads, length] come from [count x tiles x heads x length]."""
        key = (slots, first, count, heads, None if source is None else id(source))
        if key not in self._cache:
            rows = self.rows if source is None else source[self.rows]
            slot = torch.arange(first, first + count, device=rows.device)[:, None, None, None]
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

    def per_group(self, tiles: Tensor) -> Tensor:
        """Sums of tiles: [s, tiles, ...] -> [s, groups, ...]."""
        if self.tile_group is None:
            return tiles
        return tiles.new_zeros(tiles.size(0), self.num_groups, *tiles.shape[2:]).index_add(1, self.tile_group, tiles)

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


def ratios_from_tiles(tiles: list[Tensor], tilings: list[Tiling]) -> Tensor:
    """Per slot [tiles, heads, length, d + 1] -> [r, slots, heads, d]: the first d channels over the last, zero where that is zero."""
    return _RatiosFromTiles.apply(tilings, *tiles)


class _ToTiles(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, tiling: Tiling, source: Tensor | None, with_ones: bool) -> Tensor:
        ctx.tiling, ctx.source, ctx.shape = tiling, source, values.shape
        out = _gather(values, tiling, source, 0, values.size(1))  # [slots, tiles, heads, length, d]
        if not with_ones:
            return out
        real = (~tiling.empty)[:, None, :, None].to(out.dtype)  # [tiles, 1, length, 1]
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


class _RatiosFromTiles(Function):
    @staticmethod
    def forward(ctx: Any, tilings: list[Tiling], *tiles: Tensor) -> Tensor:
        _, heads, _, d = tiles[0].shape
        out = tiles[0].new_empty(tilings[0].num_rows, len(tiles), heads, d - 1)
        below = tiles[0].new_empty(tilings[0].num_rows, len(tiles), heads, 1)
        for s, (tile, tiling) in enumerate(zip(tiles, tilings, strict=True)):
            rows = _ungather(tile[None], tiling)[:, 0]  # [r, heads, d + 1]
            below[:, s] = rows[..., -1:].masked_fill(rows[..., -1:] == 0, 1.0)
            torch.div(rows[..., :-1], below[:, s], out=out[:, s])
        ctx.tilings = tilings
        ctx.save_for_backward(out, below)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        out, below = ctx.saved_tensors
        wide = grad.new_empty(*out.shape[:-1], out.size(-1) + 1)
        torch.div(grad, below, out=wide[..., :-1])
        torch.mul((wide[..., :-1] * out).sum(-1, keepdim=True), -1.0, out=wide[..., -1:])
        tiles = []
        for s, tiling in enumerate(ctx.tilings):
            tile = _gather(wide, tiling, None, s, 1)[0]
            tiles.append(tile.masked_fill_(tiling.empty[:, None, :, None], 0.0))
        return None, *tiles


def _gather(values: Tensor, tiling: Tiling, source: Tensor | None, first: int, count: int) -> Tensor:
    r, slots, heads, d = values.shape
    shape = (count, tiling.num_tiles, heads, tiling.length, d)
    if r == 0 or tiling.num_rows == 0:
        return values.new_zeros(shape)
    return values.reshape(r * slots * heads, d).index_select(0, tiling.into(slots, first, count, heads, source)).view(shape)


def _ungather(tiles: Tensor, tiling: Tiling) -> Tensor:
    count, _, heads, _, d = tiles.shape
    return tiles.reshape(-1, d).index_select(0, tiling.back(count, heads)).view(tiling.num_rows, count, heads, d)
