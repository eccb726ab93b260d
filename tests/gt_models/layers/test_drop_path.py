"""Branches are dropped for whole graphs, and scaled so that their mean does not change."""

import pytest
import torch

from gt_models.layers.drop_path import DropPath


def test_whole_graphs_are_dropped_alike_in_both_forms():
    drop, graph = DropPath(0.5), torch.arange(1000).repeat_interleave(3)
    torch.manual_seed(0)
    flat = drop(torch.ones(3000, 2), graph, 1000).view(1000, 3, 2)
    torch.manual_seed(0)
    assert torch.equal(flat, drop(torch.ones(1000, 3, 2)))
    assert torch.equal(flat, flat[:, :1, :1].expand_as(flat))
    assert set(flat.unique().tolist()) == {0.0, 2.0}
    assert flat.mean().item() == pytest.approx(1.0, abs=0.1)


def test_evaluation_and_rate_zero_change_nothing():
    x = torch.randn(4, 2)
    assert torch.equal(DropPath(0.5).eval()(x), x)
    assert torch.equal(DropPath(0.0)(x), x)
    with pytest.raises(ValueError, match="outside"):
        DropPath(1.0)
