"""S2G and S2G+: their forms, and what every model must satisfy."""

import pytest
import torch

from gt_models import create_model
from gt_models.nn.equivariant_linear import EquivariantLinear
from gt_models.nn.tuples import Support
from tests.gt_models import checks


def build(level="pair", **arguments):
    return create_model("s2g", in_dim=4, out_dim=2, level=level, **({"set_dims": (6, 5), "pair_dims": (7,)} | arguments)).double()


@pytest.mark.parametrize("arguments", [{}, {"plus": True}, {"plus": True, "normalize_sums": True, "unit_norm": True}])
def test_sound_on_pairs(arguments):
    checks.assert_sound(lambda: build(**arguments), checks.random_graphs(), "pair")


@pytest.mark.parametrize("plus", [False, True])
def test_hyperedges(plus):
    graphs = checks.random_graphs(sizes=(5, 4))
    graphs[0].extras["hyperedge_index"] = torch.tensor([[0, 1, 2], [4, 3, 0]])
    graphs[1].extras["hyperedge_index"] = torch.tensor([[3, 0, 1]])
    both = checks.collate(graphs)
    both.extras["hyperedge_index"][2] += 5
    checks.assert_gradients_reach(build("hyperedge", plus=plus), both)
    model = build("hyperedge", plus=plus).eval()
    assert plus == (model.broadcast is not None)
    torch.testing.assert_close(model(both), torch.cat([model(g) for g in graphs]), rtol=1e-10, atol=1e-10)
    assert model.broadcast is None or len(model.broadcast.classes) == 4


def test_plus_contains_s2g():
    """Side by side and then a Linear is L_{1->2} without its sums: row and column weights, and their sum on the diagonal."""
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


@pytest.mark.parametrize(("arguments", "message"), [({"level": "graph"}, "pair, hyperedge"), ({"set_dims": ()}, "at least one width")])
def test_settings_that_cannot_be_say_what_can(arguments, message):
    with pytest.raises(ValueError, match=message):
        build(**arguments)
