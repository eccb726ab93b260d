"""GAT: its equations."""

import pytest
import torch
from torch import nn

from tests.gt_models.baselines.message_passing_cases import build, by_equations, graphs
from tests.gt_models.reference import message_passing as reference


@pytest.mark.parametrize("edge_dim", [None, 3])
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_gat_is_its_equations(version, edge_dim):
    graph, model = graphs((6,))[0], build("gat", num_heads=2, version=version, edge_dim=edge_dim)
    nn.init.normal_(model.convs[0].bias)
    form = reference.gat if version == "v1" else reference.gatv2
    expected = by_equations(model, graph, lambda w, _, x, __, edges: form(w, x, graph.edge_index, edges, 2))
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)
