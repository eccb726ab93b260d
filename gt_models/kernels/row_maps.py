"""Linear maps of rows of one matrix, each taken from where it is stored: y_j = sum over s of x[rows_js] W_s + b. Those are the lightweight
layers of Kim et al. 2021 (Eq. 14), https://arxiv.org/abs/2110.14416. The maps of a layer are one operation.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.linears import without_autocast

ONEDNN, BOTH_COPIED = 1 << 21, 1 << 24  # multiplications from which oneDNN's products are used, and where it copies both matrices first


class Rows:
    """Rows of x, of which r outputs take s each.

    Args:
        source: the range of x in which all of them lie.
        index: long [r, s], -1 for a row of zeros; None: the rows of `source`, one for each output.
    """

    def __init__(self, source: slice, index: Tensor | None = None):
        self.source, self.index, self.count = source, index, source.stop - source.start
        self.size: int = self.count if index is None else index.size(0)
        self.side: int = 1 if index is None else index.size(1)

    @cached_property
    def missing(self) -> Tensor | None:
        """The places [r x s] of rows of zeros."""
        missing = torch.empty(0) if self.index is None else (self.index.flatten() < 0).nonzero().squeeze(1)
        return missing if len(missing) else None

    @cached_property
    def mapped_first(self) -> bool:
        """Whether the few rows are mapped, and what they give is taken, instead of themselves."""
        return self.index is not None and self.count < self.size and self.missing is None

    @cached_property
    def places(self) -> tuple[Tensor, Tensor]:
        """The row of x at each place, [r x s], and the first place of each output. Mapped first: of the maps' outputs, [s x source]."""
        assert self.index is not None
        rows = self.index.clamp(min=0)
        if self.mapped_first:
            rows = rows - self.source.start + torch.arange(self.side) * self.count
        return rows.flatten(), torch.arange(0, rows.numel(), self.side)

    @cached_property
    def users(self) -> tuple[Tensor, Tensor]:
        """The places where each row of `source` is, row by row, and the first of each. Mapped first: the outputs that use each map's output."""
        assert self.index is not None
        if self.mapped_first:
            of, number, count = self.places[0], torch.arange(self.size).repeat_interleave(self.side), self.count * self.side
        else:
            of, number, count = self.index.flatten() - self.source.start, torch.arange(self.index.numel()), self.count
            of = of if self.missing is None else of.index_fill(0, self.missing, count)  # beyond the last
        sizes, order = torch.bincount(of, minlength=count)[:count], torch.argsort(of, stable=True)
        return number[order][: int(sizes.sum())], sizes.cumsum(0) - sizes

    def take(self, x: Tensor) -> Tensor:
        """[r, s d]."""
        if self.index is None:
            return x[self.source]
        taken = x.index_select(0, self.places[0])
        return (taken if self.missing is None else taken.index_fill_(0, self.missing, 0.0)).view(self.size, -1)


class Map(NamedTuple):
    """A map of `rows`, whose weights follow each other in rows of a weight [., width] from `first` on, and its columns.

    `weight`, `bias`: which of the parameters they are; a bias is a row of a matrix [., width], or None.
    """

    rows: tuple[Rows, ...]
    weight: int
    first: int
    columns: slice
    bias: int | None
    bias_row: int

    def blocks(self, weights: Sequence[Tensor], width: int) -> list[Tensor]:
        """The blocks of its weight (or of that weight's gradient) for each of `rows`."""
        weight = weights[self.weight]
        if self.columns.stop - self.columns.start < weight.size(1):
            weight = weight[:, self.columns]
        ends = list(accumulate((width * rows.side for rows in self.rows), initial=self.first))
        return [weight.narrow(0, first, last - first) for first, last in pairwise(ends)]

    def bias_of(self, biases: Sequence[Tensor]) -> Tensor | None:
        """Its bias (or that bias' gradient)."""
        return None if self.bias is None else biases[self.bias][self.bias_row, self.columns]


def reference(x: Tensor, outs: Sequence[Sequence[Map]], *parameters: Tensor) -> tuple[Tensor, ...]:
    """For each of `outs`, what its maps give, one after another: [r, width]. No number of a weight or bias is of two maps."""

    def taken(rows: Rows) -> Tensor:
        if rows.index is None:
            return x[rows.source]
        index = rows.index.flatten()
        return x.index_select(0, index.clamp(min=0)).masked_fill((index < 0)[:, None], 0.0).view(rows.size, rows.side * x.size(1))

    def of(m: Map) -> Tensor:
        inputs, blocks = [taken(rows) for rows in m.rows], m.blocks(parameters, x.size(1))
        return F.linear(inputs[0], blocks[0].T, m.bias_of(parameters)) if len(blocks) == 1 else (
            F.linear(torch.cat(inputs, 1), torch.cat(blocks).T, m.bias_of(parameters))
        )  # fmt: skip

    each = [[of(m) for m in maps] for maps in outs]
    return tuple(torch.cat(ys) if len(ys) > 1 else ys[0] for ys in each)


class _RowMaps(torch.autograd.Function):
    """One node of the graph for all maps. Rows that many outputs share are mapped once; their gradients are added up before the products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, outs: Sequence[Sequence[Map]], *parameters: Tensor) -> tuple[Tensor, ...]:
        found: list[Tensor] = []
        taken = {rows: rows.take(x) for rows in _rows(outs)}
        for maps in outs:
            sizes = [m.rows[0].size for m in maps]
            joined, y = None, x
            if len(maps) > 1:
                joined = x.new_empty(sum(sizes), parameters[maps[0].weight][0, maps[0].columns].numel())
            for m, out in zip(maps, [None] if joined is None else torch.split_with_sizes(joined, sizes), strict=True):
                bias, blocks, begun = m.bias_of(parameters), m.blocks(parameters, x.size(1)), False
                for rows, weight in zip(m.rows, blocks, strict=True):
                    if not rows.mapped_first:
                        y = _product(taken[rows], weight, add_to=y) if begun else _product(taken[rows], weight, bias, out)
                        begun = True
                for rows, weight in zip(m.rows, blocks, strict=True):
                    if rows.mapped_first:
                        mapped = x.new_empty(rows.side * rows.count, weight.size(1))
                        for to, w in zip(_parts(mapped, rows.count), _parts(weight, x.size(1)), strict=True):
                            torch.mm(x[rows.source], w, out=to)
                        of_rows = row_sums(mapped, *rows.places)
                        if begun:
                            y.add_(of_rows)
                        else:
                            of_rows = of_rows if bias is None else of_rows.add_(bias)
                            y, begun = of_rows if out is None else out.copy_(of_rows), True
            found.append(y if joined is None else joined)
        ctx.save_for_backward(x, *parameters, *taken.values())
        ctx.outs, ctx.taken = outs, list(taken)
        return tuple(found)

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        x, *saved = ctx.saved_tensors
        parameters, kept = saved[: len(saved) - len(ctx.taken)], saved[len(saved) - len(ctx.taken) :]
        taken, wanted, width = dict(zip(ctx.taken, kept, strict=True)), ctx.needs_input_grad[0], x.size(1)
        dx, dparameters = torch.zeros_like(x), [torch.zeros_like(p) for p in parameters]
        dtaken = {rows: dx[rows.source] for rows in taken if rows.index is None}
        for maps, grad in zip(ctx.outs, grads, strict=True):
            for m, g in zip(maps, torch.split_with_sizes(grad.contiguous(), [m.rows[0].size for m in maps]), strict=True):
                added_up = g
                for rows, weight, dweight in zip(m.rows, m.blocks(parameters, width), m.blocks(dparameters, width), strict=True):
                    if rows.mapped_first:
                        by_map = _parts(row_sums(g, *rows.users), rows.count)
                        added_up = by_map[0]  # each output uses one row of each map
                        of_each = zip(by_map, _parts(weight, width), _parts(dweight, width), strict=True)
                        for d, w, dw in of_each:
                            torch.mm(x[rows.source].T, d, out=dw)
                            _product(d, w.T, add_to=dx[rows.source])
                        continue
                    _product(taken[rows].T, g, out=dweight)
                    if wanted:
                        dtaken[rows] = _product(g, weight.T, add_to=dtaken.get(rows))
                if m.bias is not None:
                    torch.sum(added_up, 0, out=m.bias_of(dparameters))
        for rows, d in dtaken.items():
            if rows.index is not None:
                dx[rows.source].add_(row_sums(d.view(-1, width), *rows.users))
        return dx if wanted else None, None, *dparameters


def _rows(outs: Sequence[Sequence[Map]]) -> list[Rows]:
    return [rows for maps in outs for m in maps for rows in m.rows if not rows.mapped_first]


def _parts(x: Tensor, size: int) -> list[Tensor]:
    return [x.narrow(0, first, size) for first in range(0, x.size(0), size)]


def row_sums(x: Tensor, rows: Tensor, first: Tensor) -> Tensor:
    """Sums of the rows of x that `rows` names, from each of `first` to the next: [first, d]."""
    return F.embedding_bag(rows, x, first, mode="sum")


def _product(x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None, add_to: Tensor | None = None) -> Tensor:
    """x W + b, in `out` where it is given, or added to `add_to`."""
    work = x.size(0) * weight.numel()
    if x.dtype == torch.float32 and work >= (ONEDNN if x.stride(1) == 1 else BOTH_COPIED) and _HAS_ONEDNN:
        y = torch.ops.mkldnn._linear_pointwise(x, weight.T.contiguous(), bias, "none", [], "")
        return add_to.add_(y) if add_to is not None else y if out is None else out.copy_(y)
    if add_to is not None:
        return add_to.addmm_(x, weight)
    return torch.mm(x, weight, out=out) if bias is None else torch.addmm(bias, x, weight, out=out)


_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _example(x: Tensor, outs: Sequence[Sequence[Map]], *parameters: Tensor) -> tuple[tuple, dict]:
    """Seven rows, four of which five others take, and one that is missing; two maps joined and one alone."""
    width = parameters[outs[0][0].weight].size(1)
    draw = lambda *shape: torch.randn(*shape, dtype=x.dtype).to(x.device).requires_grad_()  # noqa: E731
    index = torch.tensor([[0, 1], [1, 0], [2, 2], [0, 2], [1, 1]], device=x.device)
    others = torch.tensor([[3, 4], [4, 3], [5, -1], [6, 6], [5, 3]], device=x.device)
    rows = (Rows(slice(0, 3), index), Rows(slice(3, 7), others))
    every, own = slice(0, width), (Rows(slice(0, 3)),)
    outs = [[Map(own, 0, 0, every, 1, 0), Map(rows, 0, x.size(1), every, 1, 1)], [Map(rows, 2, 0, every, None, 0)]]
    return (draw(7, x.size(1)), outs, draw(5 * x.size(1), width), draw(2, width), draw(4 * x.size(1), width)), {}


def _why_not(x: Tensor, outs: Sequence[Sequence[Map]], *parameters: Tensor) -> str | None:
    if torch.is_autocast_enabled(x.device.type):
        return "autocast is on"
    empty = any(rows.size == 0 or rows.count == 0 for maps in outs for m in maps for rows in m.rows)
    return "there are maps without rows" if empty else None


row_maps = Operation("row_maps", reference, [Form("one node", lambda: _RowMaps.apply, _why_not)], _example)
