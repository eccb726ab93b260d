"""Dropout for large CPU tensors: torch draws one Bernoulli number per entry, on one thread, which costs more than the layer around it."""

from functools import cache

import torch
from torch import Tensor, nn

from gt_models.nn.llvm import Emitter, Library, in_threads


class Dropout(nn.Module):
    """Zeroes entries with probability `rate` while training and scales the others by 1 / (1 - rate).

    On the CPU, in float32 and float64, an entry's fate is a hash of its position and of one seed from torch's generator: nothing is kept
    for the backward pass and the result does not depend on the number of threads. Elsewhere it is torch's dropout.
    """

    def __init__(self, rate: float = 0.0):
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"dropout {rate} is outside [0, 1)")
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
            return nn.functional.dropout(x, self.rate)
        return drop(x, torch.randint(2**31 - 1, (1,)), self.rate)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


@torch.library.custom_op("gt_models::drop", mutates_args=())
def drop(x: Tensor, seed: Tensor, rate: float) -> Tensor:
    """x with entries dropped by `seed`, long [1]; the same seed drops the same entries."""
    x = x.contiguous()
    out, count = torch.empty_like(x), x.numel()
    num_threads = max(1, min(torch.get_num_threads(), count // 2**14))
    bounds = [count * t // num_threads // 64 * 64 for t in range(num_threads)] + [count]
    function, numbers = _library(x.dtype)["drop"], (int(seed), int(rate * 2**32), 1 / (1 - rate))
    if num_threads == 1:  # handing a small tensor to another thread takes longer than the work
        function(x.data_ptr(), out.data_ptr(), 0, count, *numbers)
    else:
        in_threads(lambda t: function(x.data_ptr(), out.data_ptr(), bounds[t], bounds[t + 1], *numbers), num_threads)
    return out


@drop.register_fake
def _(x, seed, rate):
    return x.new_empty(x.shape)


def _save(ctx, inputs, output):
    _, seed, ctx.rate = inputs
    ctx.save_for_backward(seed)


drop.register_autograd(lambda ctx, grad: (drop(grad, ctx.saved_tensors[0], ctx.rate), None, None), setup_context=_save)


@cache
def _library(dtype: torch.dtype) -> Library:
    return Library([_Drop(dtype)])


class _Drop(Emitter):
    """Entries begin .. end - 1."""

    name = "drop"

    @property
    def arguments(self) -> list[tuple[str, str]]:
        numbers = [("i64", name) for name in ("begin", "end", "seed", "threshold")]
        return [("ptr", "x"), ("ptr", "out"), *numbers, (self.real, "scale")]

    def body(self) -> None:
        v, w = self.vec(None, "i32"), self.lanes
        seed = self.hash32(self.op("trunc i64 %seed to i32"), "i32")
        limit = self.splat(self.op("trunc i64 %threshold to i32"), kind="i32")
        scale = self.splat("%scale")
        offsets = f"<{', '.join(f'i32 {i * 0x9E3779B9 & 0xFFFFFFFF}' for i in range(w))}>"
        with self.loop("%begin", "%end", w) as i:
            step = self.op(f"mul i32 {self.op(f'trunc i64 {i} to i32')}, {0x9E3779B9}")
            start = self.splat(self.op(f"add i32 {seed}, {step}"), kind="i32")
            keep = self.op(f"icmp uge {v} {self.hash32(self.op(f'add {v} {start}, {offsets}'), v)}, {limit}")
            mask = self.first_lanes(self.integer("sub", "%end", i), w)
            scaled = self.mul(self.masked_load(self.at("%x", i), mask, w, "zeroinitializer"), scale)
            kept = self.op(f"select <{w} x i1> {keep}, {self.vec()} {scaled}, {self.vec()} zeroinitializer")
            self.masked_store(kept, self.at("%out", i), mask, w)
