"""Kernel attention over tiles (Kim et al. 2021, Eq. 21), a few hundred thousand numbers at a time: random features are computed where they
are used, stay in cache, and are computed again in the backward pass instead of being kept."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gt_models.nn.performer import RandomFeatures, softmax_kernel
from gt_models.nn.tiles import Tiling

_CHUNK = 1 << 18  # numbers of one chunk of features: 1 MiB in single precision


def key_sums(keys: Tensor, values: Tensor, tiling: Tiling, features: RandomFeatures, stabilizer: Tensor | None = None) -> Tensor:
    """sum_i phi(K_i) V_i^T over each group: keys [s, tiles, heads, length, d], values [s, tiles, heads,
    length, v] -> [s, groups, heads, m, v].

    Values are zero at empty places. `stabilizer`: of the softmax kernel, [] or [s, tiles, heads, 1, 1].
    """
    return _KeySums.apply(keys, values, tiling, features, features.projection, stabilizer)


def query_reads(queries: Tensor, sums: Tensor, tiling: Tiling, features: RandomFeatures) -> Tensor:
    """phi(Q_j)^T sums / Z_j: queries [s, tiles, heads, length, d], sums [s, groups, heads, m, v + 1] -> [s, tiles, heads, length, v].

    The sums' last channel is that of keys without values, so its product is Z_j; zero where Z_j is.
    """
    return _QueryReads.apply(queries, sums, tiling, features, features.projection)


class _KeySums(Function):
    @staticmethod
    def forward(
        ctx: Any, keys: Tensor, values: Tensor, tiling: Tiling, features: RandomFeatures, projection: Tensor, stabilizer: Tensor | None
    ) -> Tensor:
        out = values.new_zeros(keys.size(0), tiling.num_groups, keys.size(2), projection.size(0), values.size(-1))
        for a, part in _chunks(keys, projection):
            phi = _phi(features, keys[a, part], False, _part(stabilizer, a, part), projection)  # [c, heads, length, m]
            _add(out[a], tiling, part, phi.transpose(-1, -2) @ values[a, part])
        # a clone: redrawing in place after this forward must not change the backward
        ctx.tiling, ctx.features = tiling, features
        ctx.save_for_backward(keys, values, projection.clone(), stabilizer)
        return out

    @staticmethod
    @once_differentiable
    @torch.autocast("cpu", enabled=False)  # backward may be called inside autocast
    @torch.autocast("cuda", enabled=False)
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        keys, values, projection, stabilizer = ctx.saved_tensors
        grad_keys, grad_values = torch.empty_like(keys), torch.empty_like(values)
        grad_stabilizer = None if stabilizer is None else torch.zeros_like(stabilizer)
        for a, part in _chunks(keys, projection):
            phi, pull = _with_pull(ctx.features, keys[a, part], False, _part(stabilizer, a, part), projection)
            here = _read(grad[a], ctx.tiling, part)  # [c, heads, m, v]
            torch.matmul(phi, here, out=grad_values[a, part])
            grad_phi = values[a, part] @ here.transpose(-1, -2)  # [c, heads, length, m]
            grad_keys[a, part] = pull(grad_phi)
            if grad_stabilizer is not None:  # phi = m^-1/2 (exp(. - s) + eps)
                flow = (ctx.features.eps * projection.size(0) ** -0.5 - phi) * grad_phi
                if stabilizer.dim() == 0:
                    grad_stabilizer += flow.sum()
                else:
                    grad_stabilizer[a, part] = flow.sum((-2, -1), keepdim=True)
        return grad_keys, grad_values, None, None, None, grad_stabilizer


class _QueryReads(Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, sums: Tensor, tiling: Tiling, features: RandomFeatures, projection: Tensor) -> Tensor:
        out = queries.new_empty(*queries.shape[:-1], sums.size(-1) - 1)
        for a, part in _chunks(queries, projection):
            phi = _phi(features, queries[a, part], True, None, projection)  # [c, heads, length, m]
            read = phi @ _read(sums[a], tiling, part)  # [c, heads, length, v + 1]
            torch.div(read[..., :-1], _safe(read[..., -1:]), out=out[a, part])
        ctx.tiling, ctx.features = tiling, features
        ctx.save_for_backward(queries, sums, out, projection.clone())
        return out

    @staticmethod
    @once_differentiable
    @torch.autocast("cpu", enabled=False)  # backward may be called inside autocast
    @torch.autocast("cuda", enabled=False)
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, sums, out, projection = ctx.saved_tensors
        grad_queries, grad_sums = torch.empty_like(queries), torch.zeros_like(sums)
        for a, part in _chunks(queries, projection):
            phi, pull = _with_pull(ctx.features, queries[a, part], True, None, projection)
            here = _read(sums[a], ctx.tiling, part)  # [c, heads, m, v + 1]
            z = _safe(phi @ here[..., -1:])  # [c, heads, length, 1]
            g = grad.new_empty(*z.shape[:-1], sums.size(-1))
            torch.div(grad[a, part], z, out=g[..., :-1])
            # of above / z: grad / z for what is above, -<grad, out> / z for z
            g[..., -1:] = -(g[..., :-1] * out[a, part]).sum(-1, keepdim=True)
            _add(grad_sums[a], ctx.tiling, part, phi.transpose(-1, -2) @ g)
            grad_queries[a, part] = pull(g @ here.transpose(-1, -2))
        return grad_queries, grad_sums, None, None, None


def _chunks(u: Tensor, projection: Tensor) -> list[tuple[int, slice]]:
    """(slot, range of tiles) of each chunk."""
    slots, tiles, heads, length, _ = u.shape
    step = max(1, _CHUNK // max(1, heads * length * projection.size(0)))
    return [(a, slice(first, min(first + step, tiles))) for a in range(slots) for first in range(0, tiles, step)]


def _phi(features: RandomFeatures, u: Tensor, is_query: bool, stabilizer: Tensor | None, projection: Tensor) -> Tensor:
    """phi(u), `features`' kernel with this projection: [..., d] -> [..., m]. Not differentiable."""
    if features.kernel == "softmax":
        return softmax_kernel(u, projection, is_query, features.eps, stabilizer=stabilizer)
    return (u @ _scaled(projection, u).T).relu_().add_(features.eps)  # `relu_kernel` in place


def _with_pull(
    features: RandomFeatures, u: Tensor, is_query: bool, stabilizer: Tensor | None, projection: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """phi(u), and what turns a gradient by phi into one by u."""
    if features.kernel == "softmax":
        with torch.enable_grad():
            u = u.detach().requires_grad_()
            phi = softmax_kernel(u, projection, is_query, features.eps, stabilizer=stabilizer, detach=False)
        return phi.detach(), lambda g: torch.autograd.grad(phi, u, g)[0]
    phi = _phi(features, u, is_query, None, projection)
    # the gradient where phi > eps; vectorised, which a mask is not
    return phi, lambda g: torch.ops.aten.threshold_backward(g, phi, features.eps) @ _scaled(projection, u)


def _read(groups: Tensor, tiling: Tiling, part: slice) -> Tensor:
    return groups[part] if tiling.tile_group is None else groups.index_select(0, tiling.tile_group[part])


def _add(groups: Tensor, tiling: Tiling, part: slice, tiles: Tensor) -> None:
    if tiling.tile_group is None:
        groups[part] = tiles
    else:
        groups.index_add_(0, tiling.tile_group[part], tiles)


def _part(stabilizer: Tensor | None, a: int, part: slice) -> Tensor | None:
    return stabilizer if stabilizer is None or stabilizer.dim() == 0 else stabilizer[a, part]


def _safe(z: Tensor) -> Tensor:
    return z.masked_fill(z == 0, 1.0)


def _scaled(projection: Tensor, u: Tensor) -> Tensor:
    return projection.to(u.dtype) * u.size(-1) ** -0.25
