"""S2G and S2G+: their forms, and checks of every model."""

import pytest
import torch

from gt_models import create_model
from gt_models.hot.equivariant_linear import EquivariantLinear
from gt_models.hot.support import Support
from tests.gt_models import checks
from tests.gt_models.reference import hot as reference


def build(level="pair", **arguments):
    return create_model(
        "s2g", in_dim=4, out_dim=2, level=level, **({"set_dims": (6, 5), "pair_dims": (7,)} | arguments)
    ).double()


@pytest.mark.parametrize("arguments", [{}, {"unit_norm": True, "broadcast_activation": True}, {"normalize_sums": True}])
@pytest.mark.parametrize("plus", [False, True])
@pytest.mark.parametrize("level", ["pair", "hyperedge"])
def test_model_is_its_layers_one_after_the_other(level, plus, arguments):
    graph = checks.random_graphs(sizes=(4,))[0]
    graph.extras["hyperedge_index"] = torch.tensor([[0, 1, 3], [3, 2, 0]])
    model = build(level, plus=plus, pair_dims=(7, 3), **arguments).eval()
    support = (
        Support.complete(graph, 2)
        if level == "pair"
        else Support(graph).add_hyperedges(graph.extras["hyperedge_index"])
    )
    tuples, x = reference.tuples_of(support), graph.x
    for layer in model.layers:
        x = reference.run_linear(layer, x, tuples).relu()
        x = torch.stack([row / row.norm() if row.norm() > 0 else row for row in x]) if "unit_norm" in arguments else x
    wanted = [(i, j) for i in range(4) for j in range(4)] if level == "pair" else tuples[3]
    if plus:
        values = reference.run_linear(model.broadcast, x, tuples)
        values = torch.stack([values[tuples[model.order].index(t)] for t in wanted])
    else:
        values = torch.stack([torch.cat([x[node] for node in t]) for t in wanted])
    values = values.relu() if "broadcast_activation" in arguments else values
    for linear in (m for m in model.head if isinstance(m, torch.nn.Linear)):
        values = (values if linear is model.head[0] else values.relu()) @ linear.weight.T + linear.bias
    torch.testing.assert_close(model(graph), values, rtol=1e-10, atol=1e-10)


def test_plus_contains_s2g():
    """Concatenation and a Linear equal L_{1->2} without its sums: row and column weights, their sum on the diagonal."""
    graph = checks.random_graphs(sizes=(5,))[0]
    model = build(pair_dims=()).eval()
    features = model.forward_features(graph)  # [25, 2 x 5]
    support_model = build(plus=True).eval()
    layer = EquivariantLinear(1, 2, 5, 2).double()
    row, column = model.head[0].weight.T.split(5)
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(model.head[0].bias.expand(2, -1))
        places = {((0, 1, 2),): row + column, ((0, 1), (2,)): row, ((0, 2), (1,)): column}
        for a, c in enumerate(layer.classes):
            if c.blocks in places:
                layer.weight[a * 5 : a * 5 + 5] = places[c.blocks]
    x = features.view(5, 5, 10)[:, 0, :5]
    support = Support.complete(graph, 2)
    torch.testing.assert_close(layer(x, support)[support.flat_rows[2]], model(graph))
    assert support_model.broadcast.classes == layer.classes
