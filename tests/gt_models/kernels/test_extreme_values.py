"""Fast forms with infinite, NaN and extreme values: NaN in the reference is NaN in every form."""

import math

import pytest
import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.kernels import use
from gt_models.kernels.dropout import drop
from gt_models.kernels.gated_attention import gated_attention
from gt_models.kernels.graph_attention import graph_attention, small_edges
from gt_models.kernels.grit_attention import grit_attention
from gt_models.kernels.packed_attention import packed_attention
from gt_models.kernels.sparse_linear import sparse_linear
from gt_models.kernels.triangular_attention import triangular_attention
from gt_models.kernels.walk_powers import walk_powers
from gt_models.layers.packing import Packing

FOUR = GraphBatch(torch.zeros(4, 1), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 4]))
PAIR = torch.tensor([3, 2])


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


# widths that other tests compile, too: each is a compilation of seconds
CALLS = {
    "dropout": (drop, lambda: (draw(5, 7), torch.tensor([3]), 0.5)),
    "gated attention": (gated_attention, lambda: (draw(4, 24), draw(16, 4), 2, FOUR, 0.5, 0.0, 0.0, None)),
    "gated attention by distance": (
        gated_attention,
        lambda: (draw(4, 24), draw(16, 4), 2, FOUR, 0.5, -0.3, 0.5, torch.tensor([3])),
    ),
    "graph attention": (
        graph_attention,
        lambda: (draw(7, 8), draw(2, 4), draw(2, 4), *small_edges(torch.device("cpu"))[0], 0.2),
    ),
    "GRIT's attention": (
        grit_attention,
        lambda: (draw(4, 2, 4), draw(4, 2, 4), draw(4, 2, 4), draw(16, 2, 2, 4), draw(2, 4), FOUR, 5.0, 0.0, None),
    ),
    "GRIT's attention with dropout": (
        grit_attention,
        lambda: (
            draw(4, 2, 4),
            draw(4, 2, 4),
            draw(4, 2, 4),
            draw(16, 2, 2, 4),
            draw(2, 4),
            FOUR,
            5.0,
            0.5,
            torch.tensor([3]),
        ),
    ),
    "packed attention": (packed_attention, lambda: (None, draw(5, 24), Packing.of(PAIR), 2, 0.0, torch.tensor([3]))),
    "packed attention, one key": (
        packed_attention,
        lambda: (None, draw(1, 24), Packing.of(PAIR[:1] - 2), 2, 0.0, torch.tensor([3])),
    ),
    "packed attention with dropout": (
        packed_attention,
        lambda: (None, draw(5, 24), Packing.of(PAIR), 2, 0.5, torch.tensor([3])),
    ),
    "sparse linear": (
        sparse_linear,
        lambda: (torch.ones(2), torch.tensor([0, 1, 2]), torch.tensor([0, 2]), draw(4, 5), draw(4)),
    ),
    "triangular attention": (triangular_attention, lambda: (draw(16, 4, 2, 4), FOUR, torch.tensor([5]), 0.0)),
    "triangular attention with dropout": (
        triangular_attention,
        lambda: (draw(16, 4, 2, 4), FOUR, torch.tensor([5]), 0.5),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e20])
@pytest.mark.parametrize("name", CALLS)
def test_no_fast_form_hides_a_nan(name, value):
    operation, make = CALLS[name]
    torch.manual_seed(0)
    example = make()
    for place, tensor in enumerate(example):
        if not (isinstance(tensor, Tensor) and tensor.is_floating_point()):
            continue
        for spot in range(0, tensor.numel(), max(1, tensor.numel() // 12)):
            found = []
            for form in ("reference", "numba"):
                arguments = [
                    t.detach().clone().requires_grad_(t.requires_grad) if isinstance(t, Tensor) else t for t in example
                ]
                arguments[place].data.view(-1)[spot] = value
                with use(form):
                    outs = operation(*arguments)
                outs = outs if isinstance(outs, tuple) else (outs,)
                wanted = [t for t in arguments if isinstance(t, Tensor) and t.requires_grad]
                total = sum(out.sum() for out in outs)
                gradients = torch.autograd.grad(total, wanted, materialize_grads=True, allow_unused=True)
                found.append(([out.detach() for out in outs], gradients))
            (outs, gradients), (fast_outs, fast_gradients) = found
            for expected, out in zip(outs, fast_outs, strict=True):
                assert torch.equal(expected.isnan(), out.isnan()), f"output, {value} at {spot} of argument {place}"
            for expected, gradient in zip(gradients, fast_gradients, strict=True):
                assert not (expected.isnan() & ~gradient.isnan()).any(), (
                    f"gradient, {value} at {spot} of argument {place}"
                )


def test_a_gradient_that_is_nan_reaches_every_column_of_a_sparse_linear_map():
    for form in ("reference", "numba"):
        weight = torch.ones(4, 5, requires_grad=True)
        with use(form):
            out = sparse_linear(torch.ones(2), torch.tensor([0, 1, 2]), torch.tensor([0, 2]), weight, None)
        out.backward(torch.ones(2, 4).index_fill(1, torch.tensor([1]), math.nan))
        assert weight.grad.isnan().sum(1).tolist() == [0, 5, 0, 0]


@pytest.mark.slow
def test_large_keys_of_scaled_dot_products_stay_finite():
    qkv, pairs = draw(4, 24), draw(16, 4)
    qkv.data[:, :8] *= 1e-20
    qkv.data[2, 9] = 1e20  # its square is infinite
    outs = []
    for form in ("reference", "numba"):
        with use(form):
            outs.append(gated_attention(qkv, pairs, 2, FOUR, 0.5, 0.0, 0.0, None))
    torch.testing.assert_close(*outs)
    assert torch.autograd.grad(outs[1].sum(), qkv)[0].isfinite().all()


def test_negative_weights_of_a_walk_are_preserved():
    outs = []
    for form in ("reference", "numba"):
        with use(form):
            weight = torch.tensor([-1.0, -0.5, 0.5, -2.0])
            csr = torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1]), weight
            outs.append(walk_powers(torch.zeros(9, 4), torch.tensor([0, 3]), *csr, 0, 3, True))
    torch.testing.assert_close(*outs)
    assert outs[1].min() < 0


@pytest.mark.parametrize("columns", [1, 2, 3, 300])
def test_the_self_check_of_a_sparse_linear_map_passes_for_any_number_of_columns(columns):
    sparse_linear._failed.clear()
    with use(sparse_linear="numba"):
        sparse_linear(torch.ones(1), torch.tensor([0, 1]), torch.tensor([0]), torch.ones(4, columns), None)
    assert list(sparse_linear._failed.values()) == [None]
