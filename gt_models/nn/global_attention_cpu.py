"""What a global layer of Polynormer does between its projections and its output (equations 6 and 8, Listing 2), for one graph on the CPU.

x = LayerNorm(sigma(Q) (sigma(K)^T V) / (sigma(Q) sum_i sigma(K_i))) * (H + gate). The products per head stay matrix products; all that
lies between them is two compiled passes over memory forward and two backward, where torch makes some thirty. The bias of the values is
added after the attention, whose weights sum to one, and so never takes a pass of its own.
"""

import math
from functools import cache

import torch
from torch import Tensor

from gt_models.nn.head_products_cpu import outer, times
from gt_models.nn.llvm import Library
from gt_models.nn.row_passes import ROW_BLOCK, RowEmitter, run_rows


@torch.library.custom_op("gt_models::global_attention", mutates_args=())
def global_attention(
    h: Tensor, v: Tensor, k: Tensor, q: Tensor | None, gate: Tensor, v_bias: Tensor, k_bias: Tensor, q_bias: Tensor | None, weight: Tensor,
    bias: Tensor, num_heads: int, eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """x [N, d], head first (channel c of head h is h * C + c), of one float32 or float64 dtype; the rest is for the backward pass.

    h, v, k, q: projections [N, d] without biases, head first; q None: query and key are one. gate: what is added to h, [d]. v_bias, k_bias,
    q_bias: [d]. weight, bias, eps: of the LayerNorm over d, [d].
    """
    h, v = h.contiguous(), v.contiguous()
    (n, d), library = h.shape, _library(h.dtype, q is None)
    sums = h.new_zeros(-(-n // ROW_BLOCK), d)
    keys = _activate(library, k, k_bias, sums)
    total = sums.sum(0)  # sum_i sigma(K_i), [d]
    queries = keys if q is None else _activate(library, q, q_bias, torch.zeros_like(sums))
    memory = outer(num_heads, keys, v)  # [H, C, C]
    y, out, scale, stats = torch.empty_like(h), torch.empty_like(h), h.new_empty(n, num_heads), h.new_empty(n, 2)
    times(num_heads, y, (queries, memory))
    _run(library["close"], [queries, y, h, gate, v_bias, weight, bias, total, scale, stats, out], num_heads, eps)
    return out, keys, h.new_empty(0) if q is None else queries, y, scale, stats, memory, total


@global_attention.register_fake
def _(h, v, k, q, gate, v_bias, k_bias, q_bias, weight, bias, num_heads, eps):
    (n, d), width = h.shape, h.size(1) // num_heads
    shapes = ((n, d), (n, d), (0,) if q is None else (n, d), (n, d), (n, num_heads), (n, 2), (num_heads, width, width), (d,))
    return tuple(h.new_empty(shape) for shape in shapes)


@torch.library.custom_op("gt_models::global_attention_backward", mutates_args=())
def _backward(
    grad: Tensor, h: Tensor, v: Tensor, gate: Tensor, v_bias: Tensor, weight: Tensor, bias: Tensor, keys: Tensor, queries: Tensor | None,
    y: Tensor, scale: Tensor, stats: Tensor, memory: Tensor, total: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of h, v, k, q (empty without one), and the sums over nodes [5, d] and [2, d] that the gradients of the vectors are."""
    v, (n, d), num_heads, library = v.contiguous(), h.shape, memory.size(0), _library(h.dtype, queries is None)
    grad_h, grad_y, dots = torch.empty_like(v), torch.empty_like(v), torch.empty_like(scale)
    sums = h.new_zeros(-(-n // ROW_BLOCK), len(_SUMS), d)
    q = keys if queries is None else queries
    tensors = [grad.contiguous(), h.contiguous(), y, q, gate, v_bias, weight, bias, scale, stats, grad_h, grad_y, dots, sums]
    _run(library["open"], tensors, num_heads, 0.0)
    sums = sums.sum(0)
    grad_memory = outer(num_heads, q, grad_y)  # [H, C, C]
    of_queries, of_keys = (grad_y, memory.transpose(1, 2)), (v, grad_memory.transpose(1, 2))
    grad_k = torch.empty_like(v)
    if queries is None:
        grad_q = grad_k
        times(num_heads, grad_k, of_queries, of_keys)
    else:
        grad_q = torch.empty_like(v)
        times(num_heads, grad_q, of_queries)
        times(num_heads, grad_k, of_keys)
    grad_v = grad_y  # what it held is not asked for again
    times(num_heads, grad_v, (keys, grad_memory))
    biases = h.new_zeros(-(-n // ROW_BLOCK), 2, d)
    _run(library["sigmoids"], [keys, q, grad_k, grad_q, total, sums[-1].contiguous(), dots, biases], num_heads, 0.0)
    return grad_h, grad_v, grad_k, h.new_empty(0) if queries is None else grad_q, sums, biases.sum(0)


@_backward.register_fake
def _(grad, h, v, gate, v_bias, weight, bias, keys, queries, y, scale, stats, memory, total):
    (n, d), grad_q = h.shape, (0,) if queries is None else h.shape
    return tuple(h.new_empty(shape) for shape in ((n, d), (n, d), (n, d), grad_q, (len(_SUMS), d), (2, d)))


def _save(ctx, inputs, output):
    h, v, _, q, gate, v_bias, _, _, weight, bias, _, _ = inputs
    ctx.set_materialize_grads(False)
    _, keys, queries, *rest = output
    ctx.save_for_backward(h, v, gate, v_bias, weight, bias, keys, None if q is None else queries, *rest)


def _gradient(ctx, grad, *_):
    if grad is None:
        return (None,) * 12
    with torch.autocast("cpu", enabled=False):  # backward may be called inside autocast
        grad_h, grad_v, grad_k, grad_q, sums, (k_bias, q_bias) = _backward(grad, *ctx.saved_tensors)
    if ctx.saved_tensors[7] is None:
        grad_q = q_bias = None
    normed, plain, gate, v_bias, _ = sums
    return grad_h, grad_v, grad_k, grad_q, gate, v_bias, k_bias, q_bias, normed, plain, None, None


global_attention.register_autograd(_gradient, setup_context=_save)


def _activate(library: Library, x: Tensor, bias: Tensor, sums: Tensor) -> Tensor:
    """sigma(x + bias), whose sums over blocks of rows are added to `sums`."""
    x = x.contiguous()
    out = torch.empty_like(x)
    _run(library["activate"], [x, bias, out, sums], 1, 0.0)
    return out


def _run(function, tensors: list[Tensor], num_heads: int, eps: float) -> None:
    n, d = tensors[0].shape
    tensors = [t if t.dim() > 1 else t.contiguous() for t in tensors]
    run_rows(function, n, [t.data_ptr() for t in tensors], (d, num_heads, d // num_heads, eps))


@cache
def _library(dtype: torch.dtype, shared: bool) -> Library:
    return Library([_Activate(dtype), _Close(dtype), _Open(dtype), _Sigmoids(dtype, shared)])


# sums over nodes: for weight and bias of the norm, gate, bias of the values, and the sum of all keys
_SUMS = ("normed", "plain", "gate", "v_bias", "total")


class _Rows(RowEmitter):
    """Rows of H heads of `width` channels."""

    @property
    def arguments(self) -> list[tuple[str, str]]:
        numbers = [("i64", name) for name in ("begin", "end", "dim", "heads", "width")]
        return [("ptr", name) for name in self.tensors] + numbers + [(self.real, "eps")]

    def body(self) -> None:
        with self.loop("%begin", "%end") as row:
            self.row(row, self.integer("mul", row, "%dim"))

    def row(self, row: str, start: str) -> None:
        raise TypeError(f"{type(self).__name__} does not say what is done with a row")

    def read_row(self, name: str, start: str | int, c: str, mask: str | None) -> str:
        return self.read(self.at(f"%{name}", start, c), mask)

    def add_sum(self, row: str, which: int, count: int, c: str, value: str, mask: str | None) -> None:
        """Into the block's sum number `which` of `count`."""
        block = self.integer("sdiv", row, ROW_BLOCK)
        place = self.at("%sums", (self.integer("mul", block, count), "%dim"), (which, "%dim"), c)
        self.write(self.add(self.read(place, mask), value), place, mask)

    def each_head(self):
        """(head, first and last + 1 column) of each head."""
        with self.loop(0, "%heads") as head:
            first = self.integer("mul", head, "%width")
            yield head, first, self.integer("add", first, "%width")


class _Activate(_Rows):
    """sigma(x + bias) without overflow: with e = exp(-|x|), 1 / (1 + e) or e / (1 + e)."""

    name = "activate"
    tensors = ("x", "bias", "out", "sums")

    def row(self, row: str, start: str) -> None:
        v, suffix = self.vec(), f"v{self.lanes}f{8 * self.size}"

        def values(c, mask):
            x = self.add(self.read_row("x", start, c, mask), self.read_row("bias", 0, c, mask))
            size = self.call(f"llvm.fabs.{suffix}", v, (v, x))
            e = self.exp2(self.mul(size, self.constant(-1 / math.log(2))))
            above = self.op(f"select <{self.lanes} x i1> {self.positive(x)}, {v} {self.constant(1.0)}, {v} {e}")
            out = self.op(f"fdiv {v} {above}, {self.add(e, self.constant(1.0))}")
            self.write(out, self.at("%out", start, c), mask)
            self.add_sum(row, 0, 1, c, out, mask)

        self.columns(values)


class _Close(_Rows):
    """Division of the numerators y by the denominators, where they lie; norm; gate."""

    name = "close"
    tensors = ("queries", "y", "h", "gate", "v_bias", "weight", "bias", "total", "scale", "stats", "out")

    def row(self, row: str, start: str) -> None:
        summed = self.variable(self.vec(), "zeroinitializer")
        for head, first, last in self.each_head():
            product = self.variable(self.vec(), "zeroinitializer")

            def dot(c, mask, product=product):
                self.put(product, self.fma(self.read_row("queries", start, c, mask), self.read_row("total", 0, c, mask), self.get(product)))

            self.columns(dot, first, last)
            scale = self.op(f"fdiv {self.real} 1.0, {self.total(self.get(product))}")
            self.put_number(scale, self.at("%scale", (row, "%heads"), head))
            scale = self.splat(scale)

            def divide(c, mask, scale=scale):
                y = self.mul(self.read_row("y", start, c, mask), scale)
                self.write(y, self.at("%y", start, c), mask)
                self.put(summed, self.add(self.get(summed), self.add(y, self.read_row("v_bias", 0, c, mask))))

            self.columns(divide, first, last)
        mean = self.mean(summed)
        mean_vector, squares = self.splat(mean), self.variable(self.vec(), "zeroinitializer")

        def distance(c, mask):
            return self.sub(self.add(self.read_row("y", start, c, mask), self.read_row("v_bias", 0, c, mask)), mean_vector)

        def square(c, mask):
            away = distance(c, mask) if mask is None else self.only(mask, distance(c, mask))
            self.put(squares, self.fma(away, away, self.get(squares)))

        self.columns(square)
        inverse = self.inverse_deviation(squares)
        self.put_number(mean, self.at("%stats", (row, 2)))
        self.put_number(inverse, self.at("%stats", (row, 2), 1))
        inverse = self.splat(inverse)

        def close(c, mask):
            normed = self.mul(distance(c, mask), inverse)
            normed = self.fma(normed, self.read_row("weight", 0, c, mask), self.read_row("bias", 0, c, mask))
            gate = self.add(self.read_row("h", start, c, mask), self.read_row("gate", 0, c, mask))
            self.write(self.mul(normed, gate), self.at("%out", start, c), mask)

        self.columns(close)


class _Open(_Rows):
    """Back through gate, norm and division: gradients of h and of the numerators, and per head that of the denominator.

    With g = weight * (h + gate) * grad and x the normalised row, dy = (g - mean g - x mean(g x)) / deviation; the numerator's gradient is
    scale * dy, the denominator's -<scale * dy, y>.
    """

    name = "open"
    tensors = (
        "grad", "h", "y", "queries", "gate", "v_bias", "weight", "bias", "scale", "stats", "grad_h", "grad_y", "dots", "sums",
    )  # fmt: skip

    def row(self, row: str, start: str) -> None:
        mean, inverse = (self.broadcast(self.at("%stats", (row, 2), i)) for i in range(2))
        first, second = (self.variable(self.vec(), "zeroinitializer") for _ in range(2))

        def add(name, c, value, mask):
            self.add_sum(row, _SUMS.index(name), len(_SUMS), c, value, mask)

        def normalised(c, mask):
            y = self.add(self.read_row("y", start, c, mask), self.read_row("v_bias", 0, c, mask))
            return self.mul(self.sub(y, mean), inverse)

        def means(c, mask):
            grad, normed, weight = self.read_row("grad", start, c, mask), normalised(c, mask), self.read_row("weight", 0, c, mask)
            gated = self.mul(grad, self.add(self.read_row("h", start, c, mask), self.read_row("gate", 0, c, mask)))
            grad_h = self.mul(grad, self.fma(normed, weight, self.read_row("bias", 0, c, mask)))
            self.write(grad_h, self.at("%grad_h", start, c), mask)
            add("gate", c, grad_h, mask)
            add("normed", c, self.mul(gated, normed), mask)
            add("plain", c, gated, mask)
            g = self.mul(gated, weight)
            self.write(g, self.at("%grad_y", start, c), mask)
            self.put(first, self.add(self.get(first), g))
            self.put(second, self.fma(g, normed, self.get(second)))

        self.columns(means)
        first_mean, second_mean = self.splat(self.mean(first)), self.splat(self.mean(second))
        for head, begin, end in self.each_head():
            product = self.variable(self.vec(), "zeroinitializer")
            scale = self.broadcast(self.at("%scale", (row, "%heads"), head))

            def gradients(c, mask, product=product, scale=scale):
                g = self.sub(self.read_row("grad_y", start, c, mask), first_mean)
                grad = self.mul(self.sub(g, self.mul(normalised(c, mask), second_mean)), inverse)
                add("v_bias", c, grad, mask)
                grad = self.mul(grad, scale)
                self.write(grad, self.at("%grad_y", start, c), mask)
                self.put(product, self.fma(grad, self.read_row("y", start, c, mask), self.get(product)))

            self.columns(gradients, begin, end)
            dot = self.op(f"fneg {self.real} {self.total(self.get(product))}")
            self.put_number(dot, self.at("%dots", (row, "%heads"), head))
            dot = self.splat(dot)

            def keys(c, mask, dot=dot):
                add("total", c, self.mul(dot, self.read_row("queries", start, c, mask)), mask)

            self.columns(keys, begin, end)


class _Sigmoids(_Rows):
    """Back through the sigmoids, where the gradients lie: what the denominators give is added first."""

    name = "sigmoids"
    tensors = ("keys", "queries", "grad_k", "grad_q", "total", "grad_total", "dots", "sums")

    def __init__(self, dtype: torch.dtype, shared: bool):
        super().__init__(dtype)
        self.shared = shared

    def row(self, row: str, start: str) -> None:
        for head, first, last in self.each_head():
            dot = self.broadcast(self.at("%dots", (row, "%heads"), head))

            def gradients(c, mask, dot=dot):
                grad_k = self.add(self.read_row("grad_k", start, c, mask), self.read_row("grad_total", 0, c, mask))
                total = self.read_row("total", 0, c, mask)
                if self.shared:
                    finish("grad_k", 0, "keys", c, self.fma(dot, total, grad_k), mask)
                else:
                    finish("grad_k", 0, "keys", c, grad_k, mask)
                    finish("grad_q", 1, "queries", c, self.fma(dot, total, self.read_row("grad_q", start, c, mask)), mask)

            def finish(name, which, of, c, grad, mask):
                sigma = self.read_row(of, start, c, mask)
                grad = self.mul(grad, self.mul(sigma, self.sub(self.constant(1.0), sigma)))
                self.write(grad, self.at(f"%{name}", start, c), mask)
                self.add_sum(row, which, 2, c, grad, mask)

            self.columns(gradients, first, last)
