"""The MLP on node features alone."""

import torch
from torch_geometric.nn import MLP as TorchGeometricMLP

from gt_models.batch import GraphBatch
from tests.gt_models.baselines.cases import build, graphs


def test_mlp_is_torch_geometrics():
    graph, model = graphs((6,))[0], build("mlp", num_layers=2).eval()
    theirs = TorchGeometricMLP([4, 8, 8, 2], norm=None).double().eval()
    for i, ours in enumerate((model.encoder.linear, model.mlp[0], model.head)):
        theirs.lins[i].load_state_dict(ours.state_dict())
    torch.testing.assert_close(model(graph), theirs(graph.x))


def test_mlp_ignores_edges():
    graph, model = graphs((6,))[0], build("mlp")
    without = GraphBatch(graph.x, graph.edge_index[:, :0], graph.ptr)
    assert torch.equal(model(graph), model(without))
