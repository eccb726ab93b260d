"""The Edge Transformer as released for BREC equals its equations."""

import pytest
import torch
from torch import nn

from gt_models import create_model
from gt_models.released.edge_transformer_brec import _largest
from tests.gt_models import oracles
from tests.gt_models.edge_transformer.cases import directed_graph, graphs, redraw, tells_apart
from tests.gt_models.reference import edge_transformer as reference


@pytest.mark.parametrize("shared", [True, False])
def test_brec_equals_the_equations(shared):
    model = redraw(
        create_model(
            "edge-transformer-brec-released", hidden_dim=8, num_layers=2, num_heads=2, shared_weights=shared
        ).double()
    ).eval()
    model.output_norm = None
    for graph in (*graphs((4, 3)), directed_graph([(0, 1), (1, 2), (2, 1), (3, 0)])):
        adjacency = 2 * torch.eye(graph.num_nodes, dtype=torch.float64)
        adjacency[graph.edge_index[0], graph.edge_index[1]] = 1.0
        expected = reference.brec(adjacency, model.state_dict(), 2, 2, shared)
        torch.testing.assert_close(model(graph)[0], expected, rtol=1e-10, atol=1e-10)


def test_brec_readout_is_the_largest_entry_and_its_gradient():
    x = torch.tensor([[1.0], [0.0], [0.0], [-2.0], [5.0], [3.0]], requires_grad=True)
    at, owner = torch.tensor([False, True, False, True, False, True]), torch.tensor([0, 0, 0, 0, 1, 2])
    largest = _largest(x, at, owner, 3)  # of 0 and -2; of nothing; of 3
    assert largest.flatten().tolist() == [0.0, 0.0, 3.0]
    largest.sum().backward()
    assert x.grad.flatten().tolist() == [0.0, 1.0, 0.0, 0.0, 0.0, 1.0]


def test_brec_initialisation():
    model = create_model("edge-transformer-brec-released", hidden_dim=64)
    for linear in (m for m in model.modules() if isinstance(m, nn.Linear) and m.in_features > 1):
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert (linear.bias == 0).all()


def test_brec_separates_twins_and_has_the_released_size():
    model = create_model("edge-transformer-brec-released").double()
    model.output_norm = None
    assert tells_apart(model, oracles.twins())
    # first layer 1 -> 32: Linear 64, head norm 16, Linear 33 x 32 + 32, norm 64; four layers 32 -> 32;
    # five readouts 64 x 16 + 16
    assert sum(p.numel() for p in model.parameters()) == (64 + 16 + 1088 + 64) + 4 * (1056 + 16 + 2080 + 64) + 5 * 1040
