"""Sums over many groups of unlike size as few batched matrix products: the rows of a group are laid out in tiles of one length.

Groups are the nodes of a graph (their edges) or graphs (their nodes or edges). Moving rows into tiles and back is a gather in both
directions, forward and backward, never a scatter with collisions: deterministic on CPU and CUDA.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

_LENGTHS = (4, 8, 16, 32, 64, 128, 256)


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


class Chunk(NamedTuple):
    """Slots first..first+count-1 of [r, slots, heads, d] are laid out by `tiling`; `source`: the tensor's row of each of the tiling's rows."""

    first: int
    count: int
    tiling: Tiling
    source: Tensor | None = None


def to_tiles(values: Tensor, chunks: list[Chunk]) -> tuple[Tensor, ...]:
    """values [r, slots, heads, d] -> per chunk [count, tiles, heads, length, d], zero at empty places."""
    return _ToTiles.apply(values, chunks)


def from_tiles(tiles: list[Tensor], chunks: list[Chunk], num_slots: int) -> Tensor:
    """Per chunk [count, tiles, heads, length, d] -> [r, slots, heads, d]; chunks together cover every slot once."""
    return _FromTiles.apply(chunks, num_slots, *tiles)


class _ToTiles(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, chunks: list[Chunk]) -> tuple[Tensor, ...]:
        ctx.chunks, ctx.shape = chunks, values.shape
        return tuple(_gather(values, chunk) for chunk in chunks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        r, slots, heads, d = ctx.shape
        out = grads[0].new_zeros(ctx.shape)
        for grad, (first, count, tiling, source) in zip(grads, ctx.chunks, strict=True):
            rows = _ungather(grad, tiling)  # [rows of the tiling, count, heads, d]
            if source is None:
                out[:, first : first + count] = rows
            else:
                summed = grad.new_zeros(r, count * heads * d).index_add_(0, source, rows.flatten(1))
                out[:, first : first + count] = summed.view(r, count, heads, d)
        return out, None


class _FromTiles(Function):
    @staticmethod
    def forward(ctx: Any, chunks: list[Chunk], num_slots: int, *tiles: Tensor) -> Tensor:
        ctx.chunks = chunks
        heads, d = tiles[0].size(2), tiles[0].size(4)
        out = tiles[0].new_empty(chunks[0].tiling.num_rows, num_slots, heads, d)
        for tile, (first, count, tiling, _) in zip(tiles, chunks, strict=True):
            out[:, first : first + count] = _ungather(tile, tiling)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad = grad.contiguous()
        return None, None, *[_gather(grad, chunk) for chunk in ctx.chunks]


def _gather(values: Tensor, chunk: Chunk) -> Tensor:
    r, slots, heads, d = values.shape
    tiling = chunk.tiling
    if r == 0 or tiling.num_rows == 0:
        return values.new_zeros(chunk.count, tiling.num_tiles, heads, tiling.length, d)
    index = tiling.into(slots, chunk.first, chunk.count, heads, chunk.source)
    out = values.reshape(r * slots * heads, d).index_select(0, index)
    out = out.view(chunk.count, tiling.num_tiles, heads, tiling.length, d)
    return out.masked_fill_(tiling.empty[:, None, :, None], 0.0)


def _ungather(tiles: Tensor, tiling: Tiling) -> Tensor:
    count, _, heads, _, d = tiles.shape
    return tiles.reshape(-1, d).index_select(0, tiling.back(count, heads)).view(tiling.num_rows, count, heads, d)
