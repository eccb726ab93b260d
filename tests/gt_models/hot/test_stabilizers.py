"""What keys are stabilised by: it cancels in attention, and its gradient is the derivative."""

import types

import pytest
import torch

from gt_models.hot import HigherOrderAttention
from gt_models.hot.support import Support
from gt_models.layers.performer import RandomFeatures
from gt_models.released.hot import ReleasedAttention
from tests.gt_models import checks
from tests.gt_models.hot.test_hot import _float64  # noqa: F401


def test_stabilizer_does_not_change_the_kernel():
    """With eps 0 it cancels: per graph, for the whole call, or none at all give one result."""
    batch = checks.collate(checks.random_graphs())
    support, features = Support.sparse(batch), RandomFeatures(2, 5, None, "softmax", eps=0.0)
    layer = HigherOrderAttention(2, 2, 4, 4, 4, 2, attention="kernel")
    values = torch.randn(len(support.sets[2]), 4)
    per_graph = layer(values, support, features)
    layer.stabilizers = types.MethodType(ReleasedAttention.stabilizers, layer)
    torch.testing.assert_close(layer(values, support, features), per_graph, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", [HigherOrderAttention, ReleasedAttention])
def test_gradient_of_the_softmax_kernel_is_the_derivative(form):
    batch = checks.collate(checks.random_graphs(sizes=(4, 3)))
    support, features = Support.sparse(batch), RandomFeatures(2, 3, None, "softmax", eps=0.1)
    layer = form(2, 2, 4, 4, 4, 2, attention="kernel")
    values = torch.randn(len(support.sets[2]), 4, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: layer(v, support, features), values)
