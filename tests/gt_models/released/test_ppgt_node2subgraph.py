"""PPGT with Node2Subgraph as released."""

import torch

from tests.gt_models.checks import collate, random_graphs
from tests.gt_models.ppgt.cases import (
    SUBGRAPHS,
    described,
    expected_outputs,
    small_subgraphs,
    with_encodings,
)


def test_node2subgraph_in_loops():
    model, singles = small_subgraphs(), with_encodings()
    for g in singles:
        del g.encodings["position"]
    settings = described(SUBGRAPHS, degree=False, num_ffn=2, stem_scales=True)
    expected = expected_outputs(model, singles, settings, "class-attention", head_layers=1)
    torch.testing.assert_close(model(collate(singles)), expected, rtol=1e-10, atol=1e-10)


def test_node_masks_draw_in_training_only():
    model = small_subgraphs(node_mask_rate=0.5)
    batch = collate(random_graphs((6, 6), pair_encodings=(("rrwp", 5),), node_encodings=(("target", 1),)))
    model.train()
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))
