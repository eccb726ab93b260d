"""Pooling of nodes to graphs."""

import torch
from torch_geometric.nn.aggr import Set2Set

from gt_models.edge_transformer import GraphPooling
from tests.gt_models import checks
from tests.gt_models.edge_transformer.cases import graphs


def test_set2set_is_torch_geometrics():
    batch, x = checks.collate(graphs()), torch.randn(14, 4, dtype=torch.float64)
    ours, theirs = GraphPooling(4, "set2set").double(), Set2Set(4, processing_steps=6).double()
    theirs.lstm.load_state_dict({f"{name}_l0": value for name, value in ours.lstm.state_dict().items()})
    torch.testing.assert_close(ours(x, batch), theirs(x, batch.batch), rtol=1e-10, atol=1e-10)
