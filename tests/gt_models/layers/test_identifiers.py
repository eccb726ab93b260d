"""Orthonormal and random node identifiers."""

import pytest
import torch

from tests.gt_models import checks
from tests.gt_models.tokengt_cases import build, graphs, orthonormal


def test_orf_is_orthonormal_in_each_graph():
    model, batch = build(node_identifiers="orf", node_id_dim=8), checks.collate(graphs())
    p = model.draw_identifiers(batch)
    for start, end in zip(batch.ptr, batch.ptr[1:], strict=False):
        assert orthonormal(p[start:end])
        assert (p[start:end, end - start :] == 0).all()
    assert not torch.equal(p, model.draw_identifiers(batch))


def test_orf_beyond_its_width_has_orthonormal_columns():
    model, batch = build(node_identifiers="orf", node_id_dim=4), checks.collate(graphs((9, 3)))
    p = model.draw_identifiers(batch)
    assert orthonormal(p[:9].T)
    assert orthonormal(p[9:])


def test_near_orf_and_random():
    batch = checks.collate(graphs((300,), density=0.01))
    near = build(node_identifiers="near-orf", node_id_dim=64).draw_identifiers(batch)
    assert set(near.unique().tolist()) == {-1 / 64, 1 / 64}
    products = (near @ near.T * 64).fill_diagonal_(0)
    assert products.abs().max() < 0.65  # 5 standard deviations of a mean of 64 coin tosses
    drawn = build(node_identifiers="random", node_id_dim=64).draw_identifiers(batch)
    torch.testing.assert_close(drawn.norm(dim=1), torch.ones(300, dtype=drawn.dtype))


@pytest.mark.parametrize("kind", ["orf-first-order", "random-first-order"])
def test_first_order_identifiers_belong_to_tokens(kind):
    model = build(node_identifiers=kind, node_id_dim=40).eval()
    batch = checks.collate(graphs((4, 3)))
    assert model.identifier_encoder.in_features == 40
    caught = []
    model.identifier_encoder.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    assert model(batch).shape == (2, 2)
    p = caught[0]
    assert p.shape == (batch.num_nodes + batch.num_edges, 40)
    if kind == "orf-first-order":
        owner = torch.cat([batch.batch, batch.batch[batch.edge_index[0]]])
        assert orthonormal(p[owner == 0])
        assert orthonormal(p[owner == 1])
