"""Softmax over the keys of a class, and no others."""

import torch

from gt_models.hot import HigherOrderAttention
from gt_models.hot.equivariant_linear import EquivariantLinear
from gt_models.hot.support import Support
from tests.gt_models import checks
from tests.gt_models.hot.cases import _float64  # noqa: F401


def test_softmax_without_queries_is_the_mean_layer():
    """With equal scores, softmax is the mean over the keys of a class, as in the normalised linear layer."""
    graph = checks.random_graphs(sizes=(6,))[0]
    support = Support.sparse(graph)
    attend = HigherOrderAttention(2, 2, 4, 4, 4, 1, attention="softmax")
    linear = EquivariantLinear(2, 2, 4, 4, normalize=True, bias=False)
    own = attend.maps["2"]
    with torch.no_grad():
        for layer in attend.maps.values():
            torch.nn.init.zeros_(layer.weight[:, : layer.out_dim - 4 * (layer is own)])
        for a, c in enumerate(linear.classes):
            if c in own.classes:
                at = own.classes.index(c)
                linear.weight[a * 4 : a * 4 + 4] = own.weight[at * 4 : at * 4 + 4, -4:]
            else:
                v, o = (order.index(c) * 4 for order in (attend.value_order, attend.classes))
                linear.weight[a * 4 : a * 4 + 4] = (
                    attend.value.weight[v : v + 4].T @ attend.output.weight[:, o : o + 4].T
                )
    values = torch.randn(len(support.sets[2]), 4)
    torch.testing.assert_close(attend(values, support), linear(values, support), rtol=1e-10, atol=1e-10)
