"""Edges and nodes among the flat pairs of a batch, and the linear map of pair states."""

import torch
from torch import nn

from gt_models.edge_transformer import EdgeTransformerLayer
from gt_models.edge_transformer.pairs import PairLinear, edge_pairs, node_pairs
from gt_models.kernels.dispatch import forms_taken
from tests.gt_models import checks
from tests.gt_models.edge_transformer.test_edge_transformer import graphs


def test_pairs_are_those_of_the_batch():
    batch = checks.collate(graphs())
    first, second = batch.pair_nodes
    assert torch.equal(torch.stack([first, second])[:, edge_pairs(batch)], batch.edge_index)
    nodes = torch.arange(batch.num_nodes)
    assert torch.equal(torch.stack([first, second])[:, node_pairs(batch)], torch.stack([nodes, nodes]))


def test_the_map_of_pair_states_is_linear_with_the_names_and_the_start_of_torchs():
    torch.manual_seed(0)
    part = PairLinear(5, 3)
    torch.manual_seed(0)
    plain, x = nn.Linear(5, 3), torch.randn(7, 5)
    assert part.state_dict().keys() == plain.state_dict().keys()
    assert torch.equal(part.weight, plain.weight)
    torch.testing.assert_close(part(x), plain(x))


def test_all_maps_of_a_layer_are_products_of_the_widest_vectors():
    (batch,) = graphs((25,))
    layer, x = EdgeTransformerLayer(64, 8, 0.0, 0.0, "gelu"), torch.randn(625, 64)
    with forms_taken() as taken:
        layer(x, batch)
    assert dict(taken["pair_linear"]) == {"onednn": 4}  # projections, output, and two of the feed-forward network
