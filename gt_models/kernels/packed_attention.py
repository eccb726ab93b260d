"""Fast forms of softmax attention among the tokens of each graph (`gt_models.layers.softmax_attention`).

On a CPU the form "numba" reads the packed tokens without padding. On a GPU the form "fused" pads graphs of similar
length and calls torch's fused operator with a mask of the keys: no tensor of weights, exact gradients, float32 and half
precision, dropout inside, and sizes that do not depend on data. Operators that need no padding were not taken:

- `torch.nn.attention.varlen.varlen_attn` (torch 2.13) runs FlashAttention only, hence half precision, without dropout.
- Nested tensors (`torch.nested`, layout jagged) run the same two fused operators. They would save the padding, and need
  the length of the longest graph on the host, which synchronises, and a reference path of their own on a CPU.
"""

from functools import partial

import torch
from torch import Tensor

from gt_models.kernels.dispatch import Form, Operation
from gt_models.layers.packing import Packing
from gt_models.layers.softmax_attention import drop_weights, fused_attention, softmax_attention


def reference(
    query: Tensor | None, tokens: Tensor, packing: Packing, num_heads: int, dropout: float, seed: Tensor
) -> Tensor:
    """Queries, keys and values -> what each query receives, [T, d] or [B, d].

    Args:
        query: see `softmax_attention`.
        tokens: see `softmax_attention`.
        packing: see `softmax_attention`.
        num_heads: see `softmax_attention`.
        dropout: rate at which weights are dropped. The others are scaled by 1 / (1 - dropout).
        seed: long [1] on the CPU, by which weights are dropped. The form "fused" draws from the device's generator
            instead.
    """
    drop = partial(drop_weights, seed=seed, rate=dropout) if dropout else lambda weights, _: weights
    return softmax_attention(query, tokens, packing, num_heads, drop)


def fused(
    query: Tensor | None, tokens: Tensor, packing: Packing, num_heads: int, dropout: float, seed: Tensor
) -> Tensor:
    """`reference` by torch's fused operator."""
    return fused_attention(query, tokens, packing, num_heads, dropout)


def _why_not_fused(query: Tensor | None, tokens: Tensor, *_: object) -> str | None:
    return None if tokens.is_cuda else f"runs on cuda, not on {tokens.device.type}"


def _example(
    query: Tensor | None, tokens: Tensor, packing: Packing, num_heads: int, dropout: float, seed: Tensor
) -> tuple[tuple, dict]:
    """Graphs of 19, 3 and 1 tokens: more than one tile of queries, and parts of one.

    On a GPU without dropout, where forms draw differently.
    """
    counts, parts = torch.tensor([3, 19, 1], device=tokens.device), 3 if query is None else 2

    def draw(rows: int, width: int) -> Tensor:
        return torch.randn(rows, width, dtype=tokens.dtype).to(tokens.device).requires_grad_()

    queries = None if query is None else draw(3, query.size(1))
    rate = 0.0 if tokens.is_cuda else dropout
    return (queries, draw(23, tokens.size(1) // parts * parts), Packing.of(counts), num_heads, rate, seed), {}


def _numba():
    from gt_models.kernels.packed_attention_numba import packed_attention

    return packed_attention


packed_attention = Operation(
    "packed_attention",
    reference,
    [
        Form("numba", _numba),
        Form(
            "fused",
            lambda: fused,
            _why_not_fused,
            ("cuda", "cpu"),  # the seed is on the CPU
            (torch.float32, torch.float64, torch.bfloat16, torch.float16),
        ),
    ],
    _example,
)
