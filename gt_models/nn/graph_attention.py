"""Attention over neighbours (GAT, Velickovic et al. 2018) and fixed neighbour sums (GCN, Kipf & Welling 2017) as sparse matrix products.

torch_geometric's GATConv holds a message [E, H, C] per edge, several times over. Here the scores [E, H] are the values of a sparse
matrix, the sum over neighbours is one product with it, and the backward pass needs its transpose and one sampled product: nothing of
size E * H * C is ever stored. Equal to GATConv to 1e-10 (tests/gt_models/test_polynormer.py); benchmarks/polynormer.py measures both.
On the CPU attention is compiled (graph_attention_cpu.py); the sparse products serve other devices.
"""

import warnings
from typing import Literal

import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.nn.graph_attention_cpu import graph_attention
from gt_models.nn.neighbourhood import Neighbourhood, neighbourhood


class GraphAttention(nn.Module):
    """out_i = sum_j a_ij W x_j per head, a_ij = softmax_j leaky_relu(<W x_j, att_source> + <W x_i, att_target>), heads concatenated.

    `forward(x [N, in_dim], batch) -> [N, out_dim]`. Each node attends over its incoming edges and itself, exactly once, whatever self-loops
    the graph stores; parallel edges each count. No bias, as in Polynormer. Raises ValueError for an odd head split.
    """

    def __init__(self, in_dim: int, out_dim: int, num_heads: int = 1, negative_slope: float = 0.2):
        super().__init__()
        if out_dim % num_heads:
            raise ValueError(f"width {out_dim} cannot be split into {num_heads} heads: choose hidden_dim as a multiple of num_heads")
        self.num_heads, self.negative_slope = num_heads, negative_slope
        self.linear = nn.Linear(in_dim, out_dim, bias=False)
        self.att_source = nn.Parameter(torch.empty(num_heads, out_dim // num_heads))
        self.att_target = nn.Parameter(torch.empty(num_heads, out_dim // num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (self.linear.weight, self.att_source, self.att_target):
            nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        return self.attend(self.linear(x), self.pattern(batch))

    def pattern(self, batch: GraphBatch) -> Neighbourhood:
        """The edges in the form that `attend` reads: the same for every layer of one kind and head count."""
        return neighbourhood(batch, 1 if attention_form(batch.edge_index.device) == "compiled" else self.num_heads)

    def attend(self, value: Tensor, pattern: Neighbourhood) -> Tensor:
        """The sum over neighbours of projected nodes [N, out_dim]."""
        return attend(value, self.att_source, self.att_target, pattern, self.negative_slope)


class GraphConvolution(nn.Module):
    """out_i = sum_j w_ij W x_j + b with fixed weights.

    `kind`: "gcn", w_ij = (d_i d_j)^-1/2 over neighbours and the node itself, d counting that self-loop, with bias; "random-walk",
    w_ij = 1/d_j over the edges as stored (A D^-1 of Polynormer's Appendix K), without bias.
    `forward(x [N, in_dim], batch) -> [N, out_dim]`.
    """

    def __init__(self, in_dim: int, out_dim: int, kind: str = "gcn"):
        super().__init__()
        if kind not in ("gcn", "random-walk"):
            raise ValueError(f"unknown graph convolution {kind!r}; known: gcn, random-walk")
        self.kind = kind
        self.linear = nn.Linear(in_dim, out_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_dim)) if kind == "gcn" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.linear.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        return self.attend(self.linear(x), self.pattern(batch))

    def pattern(self, batch: GraphBatch) -> Neighbourhood:
        """The edges in the form that `attend` reads: the same for every layer of one kind."""
        return neighbourhood(batch, 1, self_loops=self.kind == "gcn")

    def attend(self, value: Tensor, pattern: Neighbourhood) -> Tensor:
        """The sum over neighbours of projected nodes [N, out_dim]."""
        if self.kind == "gcn":
            scale = pattern.in_degree.to(value.dtype).rsqrt()  # at least one each: the self-loop
            weight = scale[pattern.row] * scale[pattern.col]
        else:
            weight = pattern.out_degree.to(value.dtype)[pattern.col].reciprocal()
        out = weighted_sum(value, weight, pattern)
        return out if self.bias is None else out + self.bias


def attention_form(device: torch.device) -> Literal["compiled", "sparse"]:
    """Which form `attend` takes: compiled rows of all heads, or sparse products, whose pattern has a block for each head."""
    return "compiled" if device.type == "cpu" else "sparse"


def attend(value: Tensor, att_source: Tensor, att_target: Tensor, pattern: Neighbourhood, negative_slope: float = 0.2) -> Tensor:
    """GAT's attention. value [N, H * C], head-major; att_source and att_target [H, C] -> [N, H * C]. `pattern`: `GraphAttention.pattern`.

    A node with no incoming edge gets zeros. Under bf16 autocast scores, softmax and sum stay in float32. First derivatives only.
    """
    full = torch.float64 if value.dtype == torch.float64 else torch.float32
    with torch.autocast(value.device.type, enabled=False):
        if attention_form(value.device) == "compiled":
            edges = (pattern.ptr, pattern.col, pattern.ptr_t, pattern.col_t, pattern.perm_t)
            return graph_attention(value.to(full), att_source.to(full), att_target.to(full), *edges, negative_slope)[0]
        # both scores of all heads as one matrix product, with a block-diagonal [H * C, 2 * H]
        blocks = [torch.diag_embed(att.to(full).t()).transpose(0, 1).flatten(0, 1) for att in (att_source, att_target)]
        weight = torch.cat(blocks, 1)
        out, *_ = _attend(
            value.to(full).contiguous(), weight, pattern.row, pattern.ptr, pattern.col, pattern.ptr_t, pattern.col_t, pattern.perm_t,
            negative_slope,
        )  # fmt: skip
    return out


def weighted_sum(value: Tensor, weight: Tensor, pattern: Neighbourhood) -> Tensor:
    """sum_j w_ij value_j over the pattern (one head). value [N, C], weight [E] without gradient -> [N, C]."""
    full = torch.float64 if value.dtype == torch.float64 else torch.float32
    with torch.autocast(value.device.type, enabled=False):
        return _weighted_sum(
            value.to(full).contiguous(), weight.to(full), pattern.ptr, pattern.col, pattern.ptr_t, pattern.col_t, pattern.perm_t
        )


with warnings.catch_warnings():  # torch says once per process that compressed rows are beta; hear it here, not in a training log
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 0]), torch.tensor([], dtype=torch.long), torch.tensor([]), size=(1, 1))


def _product(ptr: Tensor, col: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """Sparse times dense, [R, R] @ [R, C], for dense [N, H * C] with N * H = R, and in that shape.

    With `out` torch neither clears nor copies the result: twice as fast at C = 64.
    """
    out = torch.empty_like(dense)
    rows = ptr.numel() - 1
    shape = (rows, dense.numel() // max(rows, 1))
    flat = out.view(shape)  # the same object twice, else torch copies it first
    torch.addmm(flat, _matrix(ptr, col, values), dense.view(shape), beta=0, out=flat)
    return out


def _matrix(ptr: Tensor, col: Tensor, values: Tensor) -> Tensor:
    rows = ptr.numel() - 1
    return torch.sparse_csr_tensor(ptr, col, values, size=(rows, rows), check_invariants=False)


@torch.library.custom_op("gt_models::graph_attention", mutates_args=())
def _attend(
    value: Tensor, weight: Tensor, row: Tensor, ptr: Tensor, col: Tensor, ptr_t: Tensor, col_t: Tensor, perm_t: Tensor,
    negative_slope: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    rows = ptr.numel() - 1  # N * H
    source, target = (value @ weight).chunk(2, 1)  # [N, H] each
    score = source.flatten().index_select(0, col) + target.flatten().index_select(0, row)  # [E * H]
    positive = score > 0
    score = torch.nn.functional.leaky_relu_(score, negative_slope)
    peak = torch.segment_reduce(score, "max", offsets=ptr.long(), unsafe=True)
    score = score.sub_(peak.index_select(0, row)).exp_()
    total = score.new_zeros(rows).index_add_(0, row, score)
    alpha = score.div_(total.index_select(0, row))  # softmax over each node's incoming edges
    return _product(ptr, col, alpha, value), alpha, positive


@_attend.register_fake
def _(value, weight, row, ptr, col, ptr_t, col_t, perm_t, negative_slope):
    return torch.empty_like(value), value.new_empty(col.shape), col.new_empty(col.shape, dtype=torch.bool)


@torch.library.custom_op("gt_models::graph_attention_backward", mutates_args=())
def _attend_backward(
    grad: Tensor, alpha: Tensor, positive: Tensor, value: Tensor, weight: Tensor, row: Tensor, ptr: Tensor, col: Tensor,
    ptr_t: Tensor, col_t: Tensor, perm_t: Tensor, negative_slope: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    rows, heads = ptr.numel() - 1, weight.size(1) // 2
    grad_value = _product(ptr_t, col_t, alpha.index_select(0, perm_t), grad)
    # d loss / d alpha_e = <grad of its target, value of its source>, at the stored entries only
    sampled = _matrix(ptr, col, torch.zeros_like(alpha))
    grad, neighbour = (part.view(rows, value.size(1) // heads) for part in (grad, value))  # [N * H, C]
    grad_alpha = torch.sparse.sampled_addmm(sampled, grad, neighbour.t(), out=sampled).values().mul_(alpha)
    mean = alpha.new_zeros(rows).index_add_(0, row, grad_alpha)
    grad_score = grad_alpha.addcmul_(alpha, mean.index_select(0, row), value=-1)  # softmax
    grad_score = torch.where(positive, grad_score, negative_slope * grad_score)
    grad_source = alpha.new_zeros(rows).index_add_(0, col, grad_score).view(-1, heads)
    grad_target = alpha.new_zeros(rows).index_add_(0, row, grad_score).view(-1, heads)
    grad_both = torch.cat([grad_source, grad_target], 1)  # [N, 2 * H]
    return grad_value.addmm_(grad_both, weight.t()), value.t() @ grad_both


@_attend_backward.register_fake
def _(grad, alpha, positive, value, weight, row, ptr, col, ptr_t, col_t, perm_t, negative_slope):
    return torch.empty_like(value), torch.empty_like(weight)


def _attend_context(ctx, inputs, output):
    value, weight, row, ptr, col, ptr_t, col_t, perm_t, ctx.negative_slope = inputs
    _, alpha, positive = output
    ctx.save_for_backward(alpha, positive, value, weight, row, ptr, col, ptr_t, col_t, perm_t)


def _attend_gradient(ctx, grad, grad_alpha, grad_positive):
    alpha, *others = ctx.saved_tensors
    with torch.autocast(grad.device.type, enabled=False):  # backward may be called inside autocast
        grads = _attend_backward(grad.to(alpha.dtype).contiguous(), alpha, *others, ctx.negative_slope)
    return *grads, None, None, None, None, None, None, None


_attend.register_autograd(_attend_gradient, setup_context=_attend_context)


@torch.library.custom_op("gt_models::weighted_sum", mutates_args=())
def _weighted_sum(value: Tensor, weight: Tensor, ptr: Tensor, col: Tensor, ptr_t: Tensor, col_t: Tensor, perm_t: Tensor) -> Tensor:
    return _product(ptr, col, weight, value)


@_weighted_sum.register_fake
def _(value, weight, ptr, col, ptr_t, col_t, perm_t):
    return torch.empty_like(value)


def _weighted_sum_context(ctx, inputs, output):
    _, *saved = inputs
    ctx.save_for_backward(*saved)


def _weighted_sum_gradient(ctx, grad):
    weight, ptr, col, ptr_t, col_t, perm_t = ctx.saved_tensors
    # the transposed product is the same operation on the transposed pattern
    inverse = torch.empty_like(perm_t)
    inverse[perm_t.long()] = torch.arange(perm_t.numel(), dtype=perm_t.dtype, device=perm_t.device)
    with torch.autocast(grad.device.type, enabled=False):  # backward may be called inside autocast
        back = _weighted_sum(grad.to(weight.dtype).contiguous(), weight.index_select(0, perm_t), ptr_t, col_t, ptr, col, inverse)
    return back, None, None, None, None, None, None


_weighted_sum.register_autograd(_weighted_sum_gradient, setup_context=_weighted_sum_context)
