"""Attention over neighbours (GAT, Velickovic et al. 2018, Eqs. 1 to 4), https://arxiv.org/abs/1710.10903.

s_e = <a_source, v_j> + <a_target, v_i>     w = softmax over the edges e = (j -> i) of i of leaky(s)     out_i = sum_e
w_e v_j    per head
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gt_models.kernels.dispatch import Form, Operation
from gt_models.layers.csr import csr_of, rows_of


def reference(
    value: Tensor,
    att_source: Tensor,
    att_target: Tensor,
    ptr: Tensor,
    col: Tensor,
    ptr_t: Tensor,
    col_t: Tensor,
    perm_t: Tensor,
    negative_slope: float,
) -> Tensor:
    """Projected nodes -> the weighted sum of their sources, both [N, H * C] with the channels of a head side by side.

    Args:
        value: W x, [N, H * C], of one dtype with the attention vectors.
        att_source: [H, C].
        att_target: [H, C].
        ptr: offsets of the edges of each target in `col`, [N + 1].
        col: source of each edge, [E].
        ptr_t: offsets of the edges of each source in `col_t`, [N + 1].
        col_t: target of each edge, [E].
        perm_t: place in `col` of each edge of `col_t`, [E].
        negative_slope: of the leaky ReLU.

    A node without an incoming edge gets zeros. It allocates an [E, H, C] tensor.
    """
    num_nodes, heads = value.size(0), att_source.size(0)
    v = value.view(num_nodes, heads, -1)  # [N, H, C]
    row, col = rows_of(ptr, col.numel()), col.long()  # [E]
    score = F.leaky_relu(
        (v * att_source).sum(-1)[col] + (v * att_target).sum(-1)[row.clamp(max=num_nodes - 1)], negative_slope
    )  # [E, H]
    index = row[:, None].expand_as(score)
    peak = score.new_full((num_nodes + 1, heads), -torch.inf).scatter_reduce(0, index, score.detach(), "amax")
    weight = (score - peak[row]).exp()
    weight = weight / torch.zeros_like(peak).index_add(0, row, weight)[row]
    out = v.new_zeros(num_nodes + 1, *v.shape[1:]).index_add(0, row, weight[..., None] * v[col])
    return out[:-1].reshape(value.shape)


def _example(value: Tensor, att_source: Tensor, *_, negative_slope: float | None = None) -> tuple[tuple, dict]:
    edges, num_nodes = small_edges(value.device)
    heads, width = att_source.shape
    draw = lambda *shape: torch.randn(*shape, dtype=value.dtype).to(value.device).requires_grad_()  # noqa: E731
    return (draw(num_nodes, heads * width), draw(heads, width), draw(heads, width), *edges, 0.2), {}


def small_edges(device: torch.device) -> tuple[tuple[Tensor, ...], int]:
    """For self-checks: seven nodes, the last without an edge; two parallel edges and a self-loop.

    As (`csr_of`, number of nodes).
    """
    source, target = torch.tensor([[1, 2, 2, 0, 3, 4, 5, 5, 0], [0, 0, 0, 1, 3, 2, 4, 0, 5]], device=device)
    return csr_of(source, target, 7), 7


def _numba():
    from gt_models.kernels.graph_attention_numba import graph_attention

    return graph_attention


def _triton():
    from gt_models.kernels.graph_attention_triton import graph_attention

    return graph_attention


graph_attention = Operation(
    "graph_attention", reference, [Form("numba", _numba), Form("triton", _triton, devices=("cuda",))], _example
)
