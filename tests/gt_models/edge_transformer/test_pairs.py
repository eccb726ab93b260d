"""Edges and nodes among the flat pairs of a batch."""

import torch

from gt_models.edge_transformer.pairs import edge_pairs, node_pairs
from tests.gt_models import checks
from tests.gt_models.edge_transformer.test_edge_transformer import graphs


def test_pairs_are_those_of_the_batch():
    batch = checks.collate(graphs())
    first, second = batch.pair_nodes
    assert torch.equal(torch.stack([first, second])[:, edge_pairs(batch)], batch.edge_index)
    nodes = torch.arange(batch.num_nodes)
    assert torch.equal(torch.stack([first, second])[:, node_pairs(batch)], torch.stack([nodes, nodes]))
