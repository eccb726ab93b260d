"""Calls of all operations: CASES[name](dtype) are the arguments of one; the name begins with that of the operation.

Few widths occur, since each is compiled anew. Calls whose name ends in "long" have work for several threads.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.kernels import Operation, all_operations
from gt_models.kernels.grouped import Attention, Grouped, Groups
from gt_models.layers.csr import csr_of
from gt_models.layers.packing import Packing

SEED = torch.tensor([11])
DOUBLE, SINGLE = torch.float64, torch.float32
# more than one tile of tokens, exactly one, parts of one, single tokens
COUNTS = (37, 17, 16, 9, 9, 8, 2, 1, 1)


def batch_of(*sizes: int) -> GraphBatch:
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    return GraphBatch(torch.zeros(sum(sizes), 1), torch.zeros(2, 0, dtype=torch.long), ptr)


def draw(dtype: torch.dtype, *shape: int, scale: float = 1.0) -> Tensor:
    return (scale * torch.randn(*shape, dtype=dtype)).requires_grad_()


def edges(num_nodes: int, num_edges: int) -> tuple[Tensor, ...]:
    """Random edges with parallel edges and self-loops; the last node has none."""
    return csr_of(*torch.randint(0, max(1, num_nodes - 1), (2, num_edges)), num_nodes)


def ada_rms(*shape: int) -> Callable[[torch.dtype], tuple]:
    return lambda t: (draw(t, *shape), draw(t, shape[-1]), draw(t, shape[-1]), 1e-6)


def gated_attention(sizes, heads, width, rate=0.0, gated=True, key_scale=-0.3) -> Callable[[torch.dtype], tuple]:
    def make(t: torch.dtype) -> tuple:
        batch = batch_of(*sizes)
        pairs = draw(t, batch.num_pairs, heads * (2 if gated else 1))
        seed = SEED if rate else None
        return draw(t, batch.num_nodes, 3 * heads * width), pairs, heads, batch, 0.7, key_scale, rate, seed

    return make


def gated_norm(rows: int, width: int, relu: bool, rate: float) -> Callable[[torch.dtype], tuple]:
    return lambda t: (
        draw(t, rows, width), draw(t, rows, width), draw(t, width), draw(t, width), draw(t, width),
        1e-5, relu, SEED if rate else None, rate,
    )  # fmt: skip


def graph_attention(num_nodes: int, num_edges: int, heads: int, width: int) -> Callable[[torch.dtype], tuple]:
    return lambda t: (
        draw(t, num_nodes, heads * width), draw(t, heads, width), draw(t, heads, width),
        *edges(num_nodes, num_edges), 0.2,
    )  # fmt: skip


def grit_attention(sizes, heads, width, clamp=0.5, rate=0.4) -> Callable[[torch.dtype], tuple]:
    def make(t: torch.dtype) -> tuple:
        batch = batch_of(*sizes)
        nodes = [draw(t, batch.num_nodes, heads, width) for _ in range(3)]
        pair, seed = draw(t, batch.num_pairs, 2, heads, width), SEED if rate else None
        return *nodes, pair, draw(t, heads, width), batch, clamp, rate, seed

    return make


def kernel_attention(entries, queries, groups, heads, width, channels, shared=False) -> Callable[[torch.dtype], tuple]:
    """Two attentions in random groups: the last has no entry, the one before it no query.

    Queries of both are columns of one matrix. If `shared`, entries of the first attention share three keys.
    """

    def make(t: torch.dtype) -> tuple:
        of_entry, of_query = (torch.randint(0, max(1, n), (m,)) for n, m in ((groups - 1, entries), (groups, queries)))
        of_query[of_query == groups - 2] = groups - 1
        of = Grouped(of_entry, groups), Grouped(of_query, groups)
        keys = Grouped(torch.randint(0, 3, (entries,)), 3) if shared else None
        size = heads * width
        attentions = [
            Attention((0, 0), (1, 0), (3, 0), Groups(*of, keys), 0),
            Attention((0, size + 2), (2, 1), (4, 0), Groups(*of), 0),
        ]
        shapes = (queries, 2 * size + 3), (3 if shared else entries, size), (entries, size + 1)
        matrices = [draw(t, *shape) for shape in (*shapes, *[(entries, heads * channels)] * 2)]
        return attentions, heads, channels, torch.randn(2 * width + 1, width, dtype=t), 1e-3, *matrices

    return make


def linear(rows: int, inputs: int, outputs: tuple[int, ...], biases: tuple[bool, ...]) -> Callable:
    return lambda t: (
        draw(t, rows, inputs), *(draw(t, o, inputs) for o in outputs),
        *(draw(t, o) if b else None for o, b in zip(outputs, biases, strict=True)),
    )  # fmt: skip


def gelu_mlp(rows: int, inputs: int, hidden: int, outputs: int) -> Callable[[torch.dtype], tuple]:
    return lambda t: (
        draw(t, rows, inputs), draw(t, hidden, inputs, scale=inputs**-0.5), draw(t, hidden),
        draw(t, outputs, hidden, scale=hidden**-0.5), draw(t, outputs),
    )  # fmt: skip


def neighbour_sum(num_nodes: int, num_edges: int, width: int) -> Callable[[torch.dtype], tuple]:
    return lambda t: (
        draw(t, num_nodes, width), torch.randn(num_edges, dtype=t), *edges(num_nodes, num_edges),
    )  # fmt: skip


def packed_attention(heads, width, counts=COUNTS, queries=False, rate=0.0) -> Callable[[torch.dtype], tuple]:
    def make(t: torch.dtype) -> tuple:
        query = draw(t, len(counts), heads * width) if queries else None
        tokens = draw(t, sum(counts), (2 if queries else 3) * heads * width)
        return query, tokens, Packing.of(torch.tensor(counts, dtype=torch.long)), heads, rate, SEED

    return make


def sparse_linear(rows: int, columns: int, width: int, bias: bool) -> Callable[[torch.dtype], tuple]:
    def make(t: torch.dtype) -> tuple:
        x = torch.randn(rows, columns, dtype=t) * (torch.rand(rows, columns) < 0.1)
        x[-1] = 0
        csr = x.to_sparse_csr()
        parameters = draw(t, width, columns), draw(t, width) if bias else None
        return csr.values(), csr.crow_indices(), csr.col_indices(), *parameters

    return make


def triangular_attention(sizes, heads: int, width: int, rate: float = 0.0) -> Callable[[torch.dtype], tuple]:
    return lambda t: (draw(t, sum(n * n for n in sizes), 4, heads, width), batch_of(*sizes), SEED, rate)


def walk_powers(sizes, steps: int = 4, identity: bool = True) -> Callable[[torch.dtype], tuple]:
    """Random weights, some of them negative, on random edges, into the middle of a larger array."""

    def make(t: torch.dtype) -> tuple:
        blocks = [torch.randn(n, n, dtype=t) * (torch.rand(n, n) < 0.2) / 3 for n in sizes]
        whole = torch.block_diag(*blocks) if blocks else torch.zeros(0, 0, dtype=t)
        row, col = whole.nonzero(as_tuple=True)
        row_ptr = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(row, minlength=len(whole)).cumsum(0)])
        out = torch.full((sum(n * n for n in sizes), steps + 3), -1.0, dtype=t)
        return out, torch.tensor([0, *sizes]).cumsum(0), row_ptr, col, whole[row, col], 1, steps, identity

    return make


SIZES = (6, 1, 0, 20)  # few nodes, one, none, many
CASES: dict[str, Callable[[torch.dtype], tuple]] = {
    "ada_rms": ada_rms(7, 21),
    "ada_rms: three dimensions": ada_rms(2, 3, 21),
    "ada_rms: no row": ada_rms(0, 21),
    "ada_rms: long": ada_rms(1000, 21),
    "dropout": lambda t: (draw(t, 33, 12), SEED, 0.3),
    "dropout: no row": lambda t: (draw(t, 0, 4), SEED, 0.3),
    "dropout: long": lambda t: (draw(t, 400, 300), SEED, 0.5),
    "gated_attention": gated_attention(SIZES, 3, 5),
    "gated_attention: dropout": gated_attention(SIZES, 3, 5, 0.4),
    "gated_attention: no gate": gated_attention(SIZES, 3, 5, 0.4, gated=False),
    "gated_attention: dot products": gated_attention((6, 18), 3, 5, key_scale=0.0),
    "gated_attention: no graph": gated_attention((), 3, 5),
    "gated_attention: eight heads": gated_attention((9, 20), 8, 8, 0.2),
    "gated_attention: long": gated_attention((5, 30, 1, 17, 22), 3, 5, 0.2),
    "gated_norm": gated_norm(7, 21, relu=False, rate=0.0),
    "gated_norm: dropout": gated_norm(7, 21, relu=True, rate=0.4),
    "gated_norm: no row": gated_norm(0, 21, relu=True, rate=0.4),
    "graph_attention": graph_attention(40, 150, 3, 5),
    "graph_attention: one edge": graph_attention(1, 1, 3, 5),
    "graph_attention: no edge": graph_attention(9, 0, 3, 5),
    "graph_attention: wide": graph_attention(20, 200, 2, 40),
    "graph_attention: long": graph_attention(2500, 6000, 3, 5),
    "grit_attention": grit_attention((5, 1, 17), 2, 4),
    "grit_attention: no clamp": grit_attention((3, 4), 2, 4, torch.inf, 0.0),
    "grit_attention: wide": grit_attention((4, 4), 3, 21, 5.0),
    "grit_attention: long": grit_attention((9, 4, 12, 7), 2, 4),
    "kernel_attention": kernel_attention(40, 30, 7, 2, 3, 5),
    "kernel_attention: shared keys": kernel_attention(40, 30, 7, 2, 3, 5, shared=True),
    "kernel_attention: wide": kernel_attention(60, 50, 9, 1, 8, 17),
    "kernel_attention: no entry": kernel_attention(0, 4, 3, 2, 3, 5),
    "kernel_attention: no query": kernel_attention(5, 0, 2, 2, 3, 5),
    "kernel_attention: one key": kernel_attention(40, 30, 40, 2, 3, 5),
    "kernel_attention: large groups": kernel_attention(1300, 1200, 3, 2, 3, 5),
    "kernel_attention: long": kernel_attention(4000, 3000, 900, 2, 3, 5, shared=True),
    "gelu_mlp": gelu_mlp(900, 64, 128, 64),
    "gelu_mlp: narrow": gelu_mlp(2000, 196, 12, 8),
    "gelu_mlp: long": gelu_mlp(5000, 64, 64, 64),
    "multi_linear": linear(7, 5, (3, 4, 1), (True, False, True)),
    "multi_linear: no row": linear(0, 5, (3, 4), (False, False)),
    "multi_linear: onednn": linear(1000, 70, (64, 33), (True, False)),
    "multi_linear: onednn, wide": linear(1000, 300, (64, 32), (False, True)),
    "neighbour_sum": neighbour_sum(40, 150, 3),
    "neighbour_sum: no edge": neighbour_sum(9, 0, 4),
    "neighbour_sum: no node": neighbour_sum(0, 0, 4),
    "packed_attention": packed_attention(3, 5),
    "packed_attention: queries": packed_attention(3, 24, queries=True, rate=0.3),
    "packed_attention: dropout": packed_attention(3, 16, rate=0.3),
    "packed_attention: one channel": packed_attention(3, 1),
    "packed_attention: wide": packed_attention(2, 40, (70, 5), rate=0.3),
    "packed_attention: no token": packed_attention(2, 2, ()),
    "packed_attention: long": packed_attention(4, 8, (37, 30, 60, 9, 1, 50), rate=0.3),
    "sparse_linear": sparse_linear(50, 300, 7, bias=True),
    "sparse_linear: no bias": sparse_linear(3, 20, 7, bias=False),
    "sparse_linear: wide": sparse_linear(3, 20, 130, bias=True),
    "sparse_linear: long": sparse_linear(500, 300, 16, bias=False),
    "triangular_attention": triangular_attention((5, 1, 9, 0, 3), 2, 4),
    "triangular_attention: dropout": triangular_attention((5, 1, 9, 0, 3), 2, 4, 0.4),
    "triangular_attention: wide": triangular_attention((38, 2), 1, 15, 0.4),
    "triangular_attention: long": triangular_attention((33, 20, 7), 3, 4, 0.2),
    "walk_powers": walk_powers((5, 1, 0, 70, 16)),
    "walk_powers: no identity": walk_powers((5, 1, 0, 16), identity=False),
    "walk_powers: no graph": walk_powers(()),
    "walk_powers: long": walk_powers((40, 90, 12, 70), 9),
}


def case(name: str, dtype: torch.dtype = DOUBLE, seed: int = 0) -> tuple[Operation, tuple[Any, ...]]:
    """The operation and the arguments of a call."""
    torch.manual_seed(seed)
    return all_operations()[name.partition(":")[0]], CASES[name](dtype)


def results(function: Callable, args: tuple) -> list[Tensor]:
    """Outputs, and gradients of their weighted sum by all leaves among the arguments."""
    leaves = [t for t in args if isinstance(t, Tensor) and t.requires_grad]
    outs = function(*args)
    outs = outs if isinstance(outs, tuple) else (outs,)
    weights = (torch.arange(o.numel(), dtype=DOUBLE).cos().view(o.shape).to(o) for o in outs)
    total = sum((out * weight).sum() for out, weight in zip(outs, weights, strict=True))
    if not (leaves and total.requires_grad):  # nothing was computed
        return [*(o.detach() for o in outs), *(torch.zeros_like(t) for t in leaves)]
    gradients = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    return [*(o.detach() for o in outs), *gradients]
