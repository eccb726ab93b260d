"""Arguments of operations."""

import torch
from torch import Tensor

from gt_models import GraphBatch
from gt_models.layers.csr import csr_of


def graph_attention_case(num_nodes: int, num_edges: int, heads: int, width: int, dtype: torch.dtype = torch.float64):
    """Random edges with parallel edges and self-loops; the last node has no edge."""
    torch.manual_seed(0)
    source, target = torch.randint(0, max(1, num_nodes - 1), (2, num_edges))
    value = torch.randn(num_nodes, heads * width, dtype=dtype, requires_grad=True)
    vectors = [torch.randn(heads, width, dtype=dtype, requires_grad=True) for _ in range(2)]
    return (value, *vectors, *csr_of(source, target, num_nodes), 0.2), list(
        zip(source.tolist(), target.tolist(), strict=True)
    )


def gated_attention_case(
    sizes: tuple[int, ...],
    heads: int,
    width: int,
    dropout: float = 0.0,
    gated: bool = True,
    dtype: torch.dtype = torch.float64,
):
    torch.manual_seed(0)
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    batch = GraphBatch(torch.zeros(sum(sizes), 1), torch.zeros(2, 0, dtype=torch.long), ptr)
    qkv = torch.randn(sum(sizes), 3 * heads * width, dtype=dtype, requires_grad=True)
    pairs = torch.randn(batch.num_pairs, heads * (2 if gated else 1), dtype=dtype, requires_grad=True)
    return qkv, pairs, heads, batch, 0.7, -0.3, dropout, torch.tensor([11]) if dropout else None


SEED = torch.tensor([3])

ROWS = ("h", "a")

VECTORS = ("b", "weight", "bias")


def gated_norm_tensors(rows: int, width: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    torch.manual_seed(0)
    shapes = dict.fromkeys(ROWS, (rows, width)) | dict.fromkeys(VECTORS, (width,))
    return {name: torch.randn(shape, dtype=dtype, requires_grad=True) for name, shape in shapes.items()}


def ada_rms_case(*shape: int, dtype: torch.dtype = torch.float64) -> tuple:
    """Arguments of `ada_rms`: x of the given shape, alpha, beta and eps; the first three need gradients."""
    torch.manual_seed(0)
    draws = torch.randn(shape, dtype=dtype), torch.randn(shape[-1], dtype=dtype), torch.randn(shape[-1], dtype=dtype)
    return (*(t.requires_grad_() for t in draws), 1e-6)
