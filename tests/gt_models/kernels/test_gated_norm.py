"""The last step of a Polynormer layer: the reference equals loops."""

import math

import pytest
import torch
from torch._subclasses import FakeTensorMode

from gt_models.kernels.gated_norm import gated_norm
from gt_models.layers.dropout_hash import kept
from tests.gt_models.kernels.cases import SEED
from tests.gt_models.kernels.cases import gated_norm_tensors as tensors


def test_the_reference_against_loops():
    t, rate = tensors(3, 4), 0.4
    keep = kept(SEED, 12, rate).view(3, 4).tolist()
    value = {name: tensor.tolist() for name, tensor in t.items()}
    expected = torch.zeros(3, 4, dtype=torch.float64)
    for i in range(3):
        h = [max(0.0, v) for v in value["h"][i]]
        a = [max(0.0, v) for v in value["a"][i]]
        a = [a[c] / (1 - rate) if keep[i][c] else 0.0 for c in range(4)]
        u = [h[c] * a[c] for c in range(4)]
        mean = sum(u) / 4
        deviation = math.sqrt(sum((v - mean) ** 2 for v in u) / 4 + 1e-5)
        for c in range(4):
            b, normed = value["b"][c], (u[c] - mean) / deviation * value["weight"][c] + value["bias"][c]
            expected[i, c] = (1 - b) * normed + b * a[c]
    torch.testing.assert_close(gated_norm(*t.values(), 1e-5, True, SEED, rate), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("relu", [False, True])
def test_gradients_are_those_of_differences(relu):
    def form(*leaves):
        return gated_norm(*leaves, 1e-5, relu, SEED, 0.4)

    assert torch.autograd.gradcheck(form, tuple(tensors(5, 9).values()))


def test_the_form_for_a_gpu_is_for_a_gpu():
    given = tensors(4, 5)
    with FakeTensorMode():
        on_a_gpu = [torch.empty(4, 5, device="cuda"), *list(given.values())[1:]]
    (form,) = gated_norm.forms
    assert form.why_not(*on_a_gpu) is None
    assert form.why_not(*given.values()) == "runs on cuda, not on cpu"
