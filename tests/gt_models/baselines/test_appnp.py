"""APPNP, and GPR-GNN before training, equal torch_geometric's APPNP."""

import torch
from torch_geometric.nn import APPNP

from tests.gt_models import checks
from tests.gt_models.baselines.gprgnn_cases import NAMES, build, perceptron


def test_begins_as_pagerank_of_torch_geometric():
    graph = checks.random_graphs((7,))[0]
    for name in NAMES:
        model = build(name).eval()
        expected = APPNP(3, 0.2)(perceptron(model, graph.x), graph.edge_index)
        torch.testing.assert_close(model(graph), expected, rtol=1e-7, atol=1e-7)
