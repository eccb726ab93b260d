"""Theorem 1, initialisation, and the stabilisers of the softmax kernel: they cancel, with correct gradients."""

import types

import pytest
import torch

from gt_models.hot import HigherOrderAttention
from gt_models.hot.equivariant_linear import EquivariantLinear, class_sum
from gt_models.hot.support import Support
from gt_models.layers.performer import RandomFeatures
from gt_models.released.hot import ReleasedAttention
from tests.gt_models import checks
from tests.gt_models.hot.cases import _float64, supports  # noqa: F401
from tests.gt_models.reference import hot as reference


class Ones(HigherOrderAttention):
    """Every coefficient is 1 (proof of Theorem 1)."""

    def softmax_attention(self, queries, keys, values, support):
        return {c: class_sum(v.flatten(1), support, c).unflatten(1, (self.num_heads, -1)) for c, v in values.items()}


@pytest.mark.parametrize(("k", "l"), [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2), (1, 3)])
def test_attention_of_ones_is_the_equivariant_linear_layer(k, l):
    """Theorem 1: alpha = 1 gives L_{k->l} with w_mu = w^V w^O; light classes use the layer's linear path."""
    graph = checks.random_graphs(sizes=(5,))[0]
    support = supports(graph, k, l)
    attend = Ones(k, l, 4, 4, 6, 2)
    torch.nn.init.zeros_(attend.value.bias)
    linear = EquivariantLinear(k, l, 4, 4)
    own = attend.maps[str(l)]
    with torch.no_grad():
        linear.weight.zero_()
        linear.bias.copy_(own.bias[:, -4:] + attend.output.bias)
        for a, c in enumerate(linear.classes):
            if c in own.classes and l > 0:
                at = own.classes.index(c)
                linear.weight[a * 4 : a * 4 + 4] += own.weight[at * 4 : at * 4 + 4, -4:]
            if c in attend.classes:
                v, o = (order.index(c) * 6 for order in (attend.value_order, attend.classes))
                linear.weight[a * 4 : a * 4 + 4] += (
                    attend.value.weight[v : v + 6].T @ attend.output.weight[:, o : o + 6].T
                )
        if l == 0:
            linear.weight += own.weight[:, -4:]
    values = torch.randn(len(support.sets[k]), 4)
    torch.testing.assert_close(attend(values, support), linear(values, support), rtol=1e-10, atol=1e-10)


def test_hyperedge_attention_is_its_definition():
    graph = checks.random_graphs(sizes=(6,))[0]
    support = Support(graph).add_hyperedges(torch.tensor([[0, 3, 5], [5, 1, 2], [0, 3, 5]]))
    layer = HigherOrderAttention(1, 3, 4, 4, 4, 2, attention="softmax", distinct_output=True)
    assert len(layer.classes) == 1  # the only one of the four classes that sums
    assert len(layer.maps["3"].classes) == 3
    values = torch.randn(6, 4)
    torch.testing.assert_close(layer(values, support), reference.attention(layer, values, reference.tuples_of(support)))


def test_initialisation():
    """Weights are Xavier normal over the whole matrix of all classes, or slots; biases are zero."""
    layer = HigherOrderAttention(2, 2, 64, 32, 32, 4)
    for linear in (*layer.maps.values(), EquivariantLinear(2, 2, 48, 40), layer.value, layer.output):
        assert linear.weight.std().item() == pytest.approx((2 / sum(linear.weight.shape)) ** 0.5, rel=0.05)
        assert (linear.bias == 0).all()


def test_stabilizer_does_not_change_the_kernel():
    """With eps = 0 the stabiliser cancels: per graph, per call or without one the result is the same."""
    batch = checks.collate(checks.random_graphs())
    support, features = Support.sparse(batch), RandomFeatures(4, 5, None, "softmax", eps=0.0)
    layer = HigherOrderAttention(2, 2, 4, 8, 8, 2, attention="kernel")
    values = torch.randn(len(support.sets[2]), 4)
    per_graph = layer(values, support, features)
    layer.key_stabilizers = types.MethodType(ReleasedAttention.key_stabilizers, layer)
    torch.testing.assert_close(layer(values, support, features), per_graph, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("form", [HigherOrderAttention, ReleasedAttention])
def test_gradient_of_the_softmax_kernel_is_the_derivative(form):
    batch = checks.collate(checks.random_graphs(sizes=(4, 3)))
    support, features = Support.sparse(batch), RandomFeatures(4, 5, None, "softmax", eps=0.1)
    layer = form(2, 2, 4, 8, 8, 2, attention="kernel")
    values = torch.randn(len(support.sets[2]), 4, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: layer(v, support, features), values)
