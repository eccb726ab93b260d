"""GIN: its equations, what it distinguishes, and categorical features."""

import pytest
import torch

from gt_models.batch import GraphBatch
from tests.gt_models.baselines.message_passing_cases import build, by_equations, graphs
from tests.gt_models.reference import message_passing as reference


@pytest.mark.parametrize(("edge_dim", "eps", "readout"), [(None, 0.0, "last"), (3, 0.0, "all"), (3, 0.7, "last")])
def test_gin_is_its_equations(edge_dim, eps, readout):
    arguments = {"edge_dim": edge_dim, "train_eps": eps > 0, "readout": readout}
    graph, model = graphs((6,))[0], build("gin", mlp_norm=False, normalisation="none", **arguments)
    for conv in model.convs:
        conv.eps.data.fill_(eps)
    expected = by_equations(model, graph, lambda w, _, x, __, edges: reference.gin(w, x, graph.edge_index, edges, eps))
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)


def test_gin_counts_where_gat_averages():
    """Attention and means do not distinguish one neighbour from two equal ones, sums do (Xu et al. 2019, Section 5)."""
    one = GraphBatch(torch.ones(2, 4, dtype=torch.float64), torch.tensor([[1], [0]]), torch.tensor([0, 2]))
    two = GraphBatch(torch.ones(3, 4, dtype=torch.float64), torch.tensor([[1, 2], [0, 0]]), torch.tensor([0, 3]))
    for name, same in (("gat", True), ("sage", True), ("gin", False)):
        model = build(name).eval()
        assert torch.allclose(model(one)[0], model(two)[0]) is same


def test_categorical_features():
    model = build("gin", "graph", in_dim=[5, 2], edge_dim=[4])
    graph = graphs((5,))[0]
    graph.x, graph.edge_attr = torch.tensor([[4, 1]] * 5), torch.zeros(graph.num_edges, 1, dtype=torch.long)
    assert model(graph).shape == (1, 2)
