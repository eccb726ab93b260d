"""Sizes follow from data on the CPU alone, and never in a compiled graph."""

import torch

from gt_models.layers.static_shapes import needs_static_shapes


def test_on_a_device_and_under_a_compiler():
    assert not needs_static_shapes(torch.ones(1))
    assert needs_static_shapes(torch.ones(1, device="meta"))
    compiled = torch.compile(lambda x: x + float(needs_static_shapes(x)), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(1)).item() == 1.0
