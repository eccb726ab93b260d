"""Sums over neighbours, out_i = sum of value_j over the edges j -> i, as a product with a sparse matrix."""

import functools
import warnings

import torch
from torch import Tensor

from gt_models.kernels.autocast import without_autocast
from gt_models.kernels.dispatch import Form, Operation
from gt_models.kernels.graph_attention import small_edges
from gt_models.kernels.once_differentiable import once_differentiable
from gt_models.layers.csr import rows_of


def reference(
    value: Tensor, weight: Tensor, ptr: Tensor, col: Tensor, ptr_t: Tensor, col_t: Tensor, perm_t: Tensor
) -> Tensor:
    """out_i = sum_e weight_e value_j, [N, C] -> [N, C].

    Weight [E] has no gradient, edges as in `gt_models.kernels.graph_attention`.

    Holds an [E, C] tensor.
    """
    out = value.new_zeros(len(value) + 1, value.size(1)).index_add(
        0, rows_of(ptr, col.numel()), weight[:, None] * value[col.long()]
    )
    return out[:-1]


class _Sparse(torch.autograd.Function):
    """As the product with a sparse matrix: nothing of size E * C is held."""

    @staticmethod
    def forward(ctx, value, weight, ptr, col, ptr_t, col_t, perm_t) -> Tensor:
        ctx.save_for_backward(weight, ptr_t, col_t, perm_t)
        return _product(ptr, col, weight, value)

    @staticmethod
    @once_differentiable
    @without_autocast
    def backward(ctx, grad: Tensor):
        weight, ptr_t, col_t, perm_t = ctx.saved_tensors
        return _product(ptr_t, col_t, weight.index_select(0, perm_t), grad), None, None, None, None, None, None


def _product(ptr: Tensor, col: Tensor, weight: Tensor, dense: Tensor) -> Tensor:
    dense, out, n = dense.contiguous(), torch.empty_like(dense, memory_format=torch.contiguous_format), len(dense)
    _take_beta_warning()
    matrix = torch.sparse_csr_tensor(ptr, col, weight, size=(n, n), check_invariants=False)
    # the same object twice, else torch copies it first; with `out` it neither clears nor copies the result
    return torch.addmm(out, matrix, dense, beta=0, out=out)


@functools.cache
def _take_beta_warning() -> None:
    """Trigger torch's warning that sparse CSR is in beta, which it gives once per process, and hide it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), size=(1, 1))


def _why_not(value: Tensor, *_) -> str | None:
    return "autocast is on" if torch.is_autocast_enabled(value.device.type) else None


def _example(value: Tensor, *_) -> tuple[tuple, dict]:
    edges, num_nodes = small_edges(value.device)
    small, weight = value.new_empty(num_nodes, value.size(1)), value.new_empty(edges[1].numel())
    return (torch.randn_like(small).requires_grad_(), torch.rand_like(weight), *edges), {}


neighbour_sum = Operation(
    "neighbour_sum", reference, [Form("sparse", lambda: _Sparse.apply, _why_not, devices=("cpu", "cuda"))], _example
)
