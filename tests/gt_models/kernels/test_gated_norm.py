"""The closing step of a Polynormer layer: the reference against loops, the Numba form against the reference."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from gt_models.kernels import use
from gt_models.kernels.dropout import kept
from gt_models.kernels.gated_norm import gated_norm
from tests.gt_models.checks import assert_threads_change_no_bit

SEED = torch.tensor([3])
ROWS = ("h", "a", "skip", "total")
VECTORS = ("h_bias", "skip_bias", "b", "weight", "bias")


def tensors(rows: int, width: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    torch.manual_seed(0)
    shapes = dict.fromkeys(ROWS, (rows, width)) | dict.fromkeys(VECTORS, (width,))
    return {name: torch.randn(shape, dtype=dtype, requires_grad=True) for name, shape in shapes.items()}


def step(form: str, given: dict[str, Tensor | None], relu: bool, rate: float = 0.0) -> list[Tensor]:
    """x, total + x and the gradients of all that is given."""
    with use(gated_norm=form):
        x, summed = gated_norm(*given.values(), 1e-5, relu, SEED if rate else None, rate)
    leaves = [t for t in given.values() if t is not None]
    return [x, summed, *torch.autograd.grad(x.sin().sum() + summed.cos().sum(), leaves)]


def test_the_reference_against_loops():
    t, rate = tensors(3, 4), 0.4
    keep = kept(SEED, 12, rate).view(3, 4).tolist()
    value = {name: tensor.tolist() for name, tensor in t.items()}
    expected = torch.zeros(3, 4, dtype=torch.float64)
    for i in range(3):
        h = [max(0.0, value["h"][i][c] + value["h_bias"][c]) for c in range(4)]
        a = [max(0.0, value["a"][i][c] + value["skip"][i][c] + value["skip_bias"][c]) for c in range(4)]
        a = [a[c] / (1 - rate) if keep[i][c] else 0.0 for c in range(4)]
        u = [h[c] * a[c] for c in range(4)]
        mean = sum(u) / 4
        deviation = math.sqrt(sum((v - mean) ** 2 for v in u) / 4 + 1e-5)
        for c in range(4):
            b, normed = value["b"][c], (u[c] - mean) / deviation * value["weight"][c] + value["bias"][c]
            expected[i, c] = (1 - b) * normed + b * a[c]
    x, summed, *_ = step("reference", t, True, rate)
    torch.testing.assert_close(x, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(summed, expected + t["total"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("rows", "width"), [(1, 8), (600, 21), (3, 64), (0, 5)])  # more rows than a block; odd widths; no row
def test_numba_agrees_with_the_reference(rows, width):
    for relu, rate, with_skip, with_total in itertools.product((False, True), (0.0, 0.4), (False, True), (False, True)):
        given = tensors(rows, width)
        given |= {"skip": given["skip"] if with_skip else None, "total": given["total"] if with_total else None}
        given |= {"skip_bias": given["skip_bias"] if with_skip else None}
        results = [step(form, given, relu, rate) for form in ("reference", "numba")]
        for expected, found in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("relu", [False, True])
def test_gradients_are_those_of_differences(relu):
    def form(*leaves):
        return gated_norm(*leaves, 1e-5, relu, SEED, 0.4)

    assert torch.autograd.gradcheck(form, tuple(tensors(5, 9).values()))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_comes_out_where_the_reference_lets_it_out(bad, relu):
    given = tensors(6, 5)
    given["h"].data[1, 2] = given["a"].data[3, 4] = bad
    expected, found = (step(form, given, relu) for form in ("reference", "numba"))
    assert expected[0][1].isnan().any() or (relu and bad < 0)  # NaN does not become 0 in a ReLU
    for e, f in zip(expected[:4], found[:4], strict=True):
        assert torch.equal(e.isnan(), f.isnan())


def test_threads_do_not_change_a_bit():
    given = tensors(1500, 24, torch.float32)
    assert_threads_change_no_bit(lambda: step("numba", given, True, 0.3))


def test_only_the_sum_is_asked_for():
    given = tensors(4, 5)
    _, summed = gated_norm(*given.values(), 1e-5, False, None, 0.0)
    x, _ = gated_norm(*(given | {"total": None}).values(), 1e-5, False, None, 0.0)
    torch.testing.assert_close(*(torch.autograd.grad(out.sin().sum(), given["h"])[0] for out in (summed, x + given["total"])))


def test_a_b_for_each_node_is_left_to_the_reference():
    given = tensors(4, 5) | {"b": torch.randn(4, 5, dtype=torch.float64, requires_grad=True)}
    with pytest.raises(ValueError, match="from node to node"):
        step("numba", given, False)
