"""Sizes follow from data on the CPU alone, and never in a compiled graph."""

import torch

from gt_models.nn.fixed_sizes import fixed_sizes


def test_on_a_device_and_under_a_compiler():
    assert not fixed_sizes(torch.ones(1))
    assert fixed_sizes(torch.ones(1, device="meta"))
    compiled = torch.compile(lambda x: x + float(fixed_sizes(x)), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(1)).item() == 1.0
