"""The closing step of a Polynormer layer, (1 - b) LayerNorm(h * a) + b a (equation 17), with the activations, biases and dropout before it.

On the CPU it is one compiled pass over memory forward and one backward: a dozen torch operations on [N, d], each reading and writing all
of it, took as long as the layer's matrix products.
"""

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.nn.dropout import Dropout
from gt_models.nn.llvm import Library
from gt_models.nn.row_passes import ROW_BLOCK, RowEmitter, run_rows


def gated_norm(
    h: Tensor, a: Tensor, b: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5, *, h_bias: Tensor | None = None,
    skip: Tensor | None = None, skip_bias: Tensor | None = None, relu: bool = False, dropout: float = 0.0, total: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """x = (1 - b) LayerNorm(h' * a'; weight, bias, eps) + b a' with h' = act(h + h_bias), a' = drop(act(a + skip + skip_bias)).

    Args:
        h, a, skip: [N, d].
        b, weight, bias, h_bias, skip_bias: [d].
        relu: whether act is ReLU or the identity.
        dropout: rate at which entries of a' are dropped; 0 at evaluation.
        total: [N, d], what x is added to; None, nothing.

    Returns x and total + x, [N, d]. Holds h, a' and two numbers a row for the backward pass.
    """
    kinds = {t.dtype for t in (h, a, b, weight, bias, h_bias, skip, skip_bias) if t is not None}
    if h.device.type == "cpu" and len(kinds) == 1 and kinds <= {torch.float32, torch.float64}:
        seed = torch.randint(2**31 - 1, (1,)) if dropout else torch.zeros(1, dtype=torch.long)
        zero = torch.zeros_like(b)
        h_bias, skip_bias = (zero if t is None else t for t in (h_bias, skip_bias))
        weight, bias = (1 - b) * weight, (1 - b) * bias
        out, summed, *_ = _gated_norm(h, a, skip, total, h_bias, skip_bias, b, weight, bias, seed, dropout, eps, relu)
        return out, out if total is None else summed
    h = h if h_bias is None else h + h_bias
    a = a if skip is None else a + skip
    a = a if skip_bias is None else a + skip_bias
    h, a = (F.relu(h), F.relu(a)) if relu else (h, a)
    a = Dropout(dropout)(a)
    out = F.layer_norm((h * a).to(weight.dtype), a.shape[1:], (1 - b) * weight, (1 - b) * bias, eps) + b * a
    return out, out if total is None else total + out


@torch.library.custom_op("gt_models::gated_norm", mutates_args=())
def _gated_norm(
    h: Tensor, a: Tensor, skip: Tensor | None, total: Tensor | None, h_bias: Tensor, skip_bias: Tensor, b: Tensor, weight: Tensor,
    bias: Tensor, seed: Tensor, rate: float, eps: float, relu: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """out, total + out (empty without total), a' and (mean, 1 / deviation) of each row [N, 2]; `weight` and `bias` already times 1 - b."""
    unused = h.new_empty(0)
    tensors = [t.contiguous() for t in (h, a, unused if skip is None else skip, unused if total is None else total)]
    tensors += [t.contiguous() for t in (h_bias, skip_bias, b, weight, bias)]
    summed = torch.empty_like(unused if total is None else tensors[0])
    results = torch.empty_like(tensors[0]), summed, torch.empty_like(tensors[0]), h.new_empty(h.size(0), 2)
    function = _library(h.dtype, relu, skip is not None, rate > 0, total is not None)["forward"]
    run_rows(
        function, h.size(0), [t.data_ptr() for t in (*tensors, *results)], (h.size(1), int(seed), int(rate * 2**32), 1 / (1 - rate), eps)
    )
    return results


@_gated_norm.register_fake
def _(h, a, skip, total, h_bias, skip_bias, b, weight, bias, seed, rate, eps, relu):
    return h.new_empty(h.shape), h.new_empty(0 if total is None else h.shape), h.new_empty(h.shape), h.new_empty(h.size(0), 2)


@torch.library.custom_op("gt_models::gated_norm_backward", mutates_args=())
def _backward(
    grad: Tensor, more: Tensor | None, h: Tensor, a: Tensor, stats: Tensor, h_bias: Tensor, b: Tensor, weight: Tensor, seed: Tensor,
    rate: float, relu: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of h and of a (and skip) for the gradient grad + more of x; sums over nodes [5, d] for the gradients of the vectors."""
    tensors = [t.contiguous() for t in (grad, grad if more is None else more, h, a, stats, h_bias, b, weight)]
    sums = grad.new_zeros(-(-h.size(0) // ROW_BLOCK), len(_SUMS), h.size(1))
    results = torch.empty_like(tensors[0]), torch.empty_like(tensors[0])
    function = _library(h.dtype, relu, False, rate > 0, more is not None)["backward"]
    run_rows(
        function, h.size(0), [t.data_ptr() for t in (*tensors, *results, sums)], (h.size(1), int(seed), int(rate * 2**32), 1 / (1 - rate))
    )
    return *results, sums.sum(0)


@_backward.register_fake
def _(grad, more, h, a, stats, h_bias, b, weight, seed, rate, relu):
    return h.new_empty(h.shape), h.new_empty(h.shape), h.new_empty(len(_SUMS), h.size(1))


def _save(ctx, inputs, output):
    h, _, skip, total, h_bias, _, b, weight, _, seed, ctx.rate, _, ctx.relu = inputs
    ctx.skip, ctx.total = skip is not None, total is not None
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(h, *output[2:], h_bias, b, weight, seed)


def _gradient(ctx, grad, grad_total, grad_a, grad_stats):
    grad_total = grad_total if ctx.total else None
    if grad is None and grad_total is None:
        return (None,) * 13
    grads = (grad_total, None) if grad is None else (grad, grad_total)
    grad_h, grad_a, sums = _backward(*grads, *ctx.saved_tensors, ctx.rate, ctx.relu)
    normed, plain, gate, h_bias, skip_bias = sums
    return grad_h, grad_a, grad_a if ctx.skip else None, grad_total, h_bias, skip_bias, gate, normed, plain, None, None, None, None


_gated_norm.register_autograd(_gradient, setup_context=_save)


@cache
def _library(dtype: torch.dtype, relu: bool, skip: bool, dropout: bool, total: bool) -> Library:
    return Library([kind(dtype, relu, skip, dropout, total) for kind in (_Forward, _Backward)])


# sums over nodes: of the gradient times the normalised row, of the gradient, of the gradient times a', of the gradients of h and of a
_SUMS = ("normed", "plain", "gate", "h_bias", "skip_bias")


class _Rows(RowEmitter):
    def __init__(self, dtype: torch.dtype, relu: bool, skip: bool, dropout: bool, summed: bool):
        super().__init__(dtype)
        self.relu, self.skip, self.dropout, self.summed = relu, skip, dropout, summed

    @property
    def arguments(self) -> list[tuple[str, str]]:
        numbers = [("i64", name) for name in ("begin", "end", "dim", "seed", "threshold")]
        return [("ptr", name) for name in self.tensors] + numbers + [(self.real, "scale")]

    def kept(self, place: str) -> str:
        """Which entries from `place` on dropout keeps: as in gt_models.nn.dropout."""
        v, w = self.vec(None, "i32"), self.lanes
        offsets = f"<{', '.join(f'i32 {i * 0x9E3779B9 & 0xFFFFFFFF}' for i in range(w))}>"
        step = self.op(f"mul i32 {self.op(f'trunc i64 {place} to i32')}, {0x9E3779B9}")
        start = self.splat(self.op(f"add i32 {self.hashed_seed}, {step}"), kind="i32")
        limit = self.splat(self.op("trunc i64 %threshold to i32"), kind="i32")
        return self.op(f"icmp uge {v} {self.hash32(self.op(f'add {v} {start}, {offsets}'), v)}, {limit}")


class _Forward(_Rows):
    name = "forward"
    tensors = ("h", "a", "skip", "total", "h_bias", "skip_bias", "b", "weight", "bias", "out", "summed", "kept", "stats")

    @property
    def arguments(self) -> list[tuple[str, str]]:
        return [*super().arguments, (self.real, "eps")]

    def body(self) -> None:
        self.hashed_seed = self.hash32(self.op("trunc i64 %seed to i32"), "i32")
        scale = self.splat("%scale")
        with self.loop("%begin", "%end") as row:
            start = self.integer("mul", row, "%dim")
            total = self.variable(self.vec(), "zeroinitializer")

            def product(c, mask):  # u = h' * a' into out, a' into kept
                place = self.integer("add", start, c)
                h = self.add(self.read(self.at("%h", place), mask), self.read(self.at("%h_bias", c), mask))
                a = self.add(self.read(self.at("%a", place), mask), self.read(self.at("%skip_bias", c), mask))
                if self.skip:
                    a = self.add(a, self.read(self.at("%skip", place), mask))
                if self.relu:
                    h, a = self.only(self.positive(h), h), self.only(self.positive(a), a)
                if self.dropout:
                    a = self.only(self.kept(place), self.mul(a, scale))
                u = self.mul(h, a)
                self.write(a, self.at("%kept", place), mask)
                self.write(u, self.at("%out", place), mask)
                self.put(total, self.add(self.get(total), u))

            self.columns(product)
            mean = self.mean(total)
            squares, mean_vector = self.variable(self.vec(), "zeroinitializer"), self.splat(mean)

            def square(c, mask):
                distance = self.sub(self.read(self.at("%out", start, c), mask), mean_vector)
                distance = distance if mask is None else self.only(mask, distance)
                self.put(squares, self.fma(distance, distance, self.get(squares)))

            self.columns(square)
            inverse = self.inverse_deviation(squares)
            self.put_number(mean, self.at("%stats", (row, 2)))
            self.put_number(inverse, self.at("%stats", (row, 2), 1))
            inverse_vector = self.splat(inverse)

            def close(c, mask):
                place = self.integer("add", start, c)
                normed = self.mul(self.sub(self.read(self.at("%out", place), mask), mean_vector), inverse_vector)
                out = self.fma(normed, self.read(self.at("%weight", c), mask), self.read(self.at("%bias", c), mask))
                out = self.fma(self.read(self.at("%kept", place), mask), self.read(self.at("%b", c), mask), out)
                self.write(out, self.at("%out", place), mask)
                if self.summed:
                    self.write(self.add(out, self.read(self.at("%total", place), mask)), self.at("%summed", place), mask)

            self.columns(close)


class _Backward(_Rows):
    """With g = weight * grad and x the normalised row: du = (g - mean g - x mean(g x)) / deviation, dh' = du a', da' = du h' + b grad."""

    name = "backward"
    tensors = ("grad", "more", "h", "a", "stats", "h_bias", "b", "weight", "grad_h", "grad_a", "sums")

    def body(self) -> None:
        self.hashed_seed = self.hash32(self.op("trunc i64 %seed to i32"), "i32")
        scale = self.splat("%scale")
        with self.loop("%begin", "%end") as row:
            start = self.integer("mul", row, "%dim")
            block = self.integer("mul", self.integer("sdiv", row, ROW_BLOCK), self.integer("mul", "%dim", len(_SUMS)))
            sums = {name: self.at("%sums", block, (i, "%dim")) for i, name in enumerate(_SUMS)}
            mean, inverse = (self.broadcast(self.at("%stats", (row, 2), i)) for i in range(2))

            def add(name, c, value, mask, sums=sums):
                pointer = self.at(sums[name], c)
                self.write(self.add(self.read(pointer, mask), value), pointer, mask)

            def values(c, mask):
                place = self.integer("add", start, c)
                grad, a = (self.read(self.at(f"%{name}", place), mask) for name in ("grad", "a"))
                grad = self.add(grad, self.read(self.at("%more", place), mask)) if self.summed else grad
                h = self.add(self.read(self.at("%h", place), mask), self.read(self.at("%h_bias", c), mask))
                above = self.positive(h)
                h = self.only(above, h) if self.relu else h
                normed = self.mul(self.sub(self.mul(h, a), mean), inverse)
                return place, grad, a, h, above, normed, self.mul(grad, self.read(self.at("%weight", c), mask))

            first, second = (self.variable(self.vec(), "zeroinitializer") for _ in range(2))

            def means(c, mask):
                _, grad, a, _, _, normed, g = values(c, mask)
                self.put(first, self.add(self.get(first), g))
                self.put(second, self.fma(g, normed, self.get(second)))
                add("normed", c, self.mul(grad, normed), mask)
                add("plain", c, grad, mask)
                add("gate", c, self.mul(grad, a), mask)

            self.columns(means)
            first, second = self.splat(self.mean(first)), self.splat(self.mean(second))

            def gradients(c, mask):
                place, grad, a, h, above, normed, g = values(c, mask)
                grad_u = self.mul(self.sub(self.sub(g, first), self.mul(normed, second)), inverse)
                grad_h = self.mul(grad_u, a)
                grad_a = self.fma(grad_u, h, self.mul(grad, self.read(self.at("%b", c), mask)))
                if self.relu:  # a' is zero where it is dropped, too
                    grad_h, grad_a = self.only(above, grad_h), self.only(self.positive(a), grad_a)
                elif self.dropout:
                    grad_a = self.only(self.kept(place), grad_a)
                if self.dropout:
                    grad_a = self.mul(grad_a, scale)
                self.write(grad_h, self.at("%grad_h", place), mask)
                self.write(grad_a, self.at("%grad_a", place), mask)
                add("h_bias", c, grad_h, mask)
                add("skip_bias", c, grad_a, mask)

            self.columns(gradients)
