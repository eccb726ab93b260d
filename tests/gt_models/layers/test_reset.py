"""Parameters are initialised again."""

import torch
from torch import nn

from gt_models.layers.reset import ResetParameters


def test_children_are_drawn_again_in_order():
    class Two(ResetParameters):
        def __init__(self):
            super().__init__()
            self.layers, self.last = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), nn.Linear(2, 1)
            self.activation = nn.ReLU()  # has no parameters

    torch.manual_seed(0)
    model = Two()
    drawn = [p.clone() for p in model.parameters()]
    model.reset_parameters()
    assert not any(torch.equal(a, b) for a, b in zip(drawn, model.parameters(), strict=True))
    torch.manual_seed(0)
    model.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(drawn, model.parameters(), strict=True))
