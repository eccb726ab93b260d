"""Order of channels, resets and checks."""

import pytest
import torch
from torch import nn

from gt_models.polynormer.parts import Resets, check, check_choice, head_first


def test_channels_head_last_become_head_first():
    x = torch.arange(2 * 6).view(2, 6)  # channel c of head h is c * 3 + h
    assert head_first(x, -1, 3)[0].tolist() == [0, 3, 1, 4, 2, 5]
    assert torch.equal(head_first(x, 1, 1), x)
    assert torch.equal(head_first(x.T, 0, 3), head_first(x, 1, 3).T)


def test_parts_are_drawn_anew_in_order():
    class Two(Resets):
        def __init__(self):
            super().__init__()
            self.layers, self.last = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), nn.Linear(2, 1)

    torch.manual_seed(0)
    model = Two()
    drawn = [p.clone() for p in model.parameters()]
    model.reset_parameters()
    assert not any(torch.equal(a, b) for a, b in zip(drawn, model.parameters(), strict=True))
    torch.manual_seed(0)
    model.reset_parameters()
    assert all(torch.equal(a, b) for a, b in zip(drawn, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"level": "pair"}, "level='pair' is unknown; known: node, graph"),
        ({"local_layer": "sage"}, "known: gat, gcn, random-walk"),
        ({"hidden_dim": 9}, "multiple of num_heads"),
        ({"num_local_layers": 0}, "at least one layer"),
        ({"num_global_layers": 0}, "at least one layer"),
    ],
)
def test_what_cannot_be_says_what_can(changed, message):
    fits = {"level": "node", "attention": "local-to-global", "version": "v1", "local_layer": "gat", "norm": "layer"}
    fits |= {"hidden_dim": 8, "num_heads": 2, "num_local_layers": 1, "num_global_layers": 1}
    check(**fits)
    with pytest.raises(ValueError, match=message):
        check(**(fits | changed))
    with pytest.raises(ValueError, match="known: a, b"):
        check_choice("name", "c", ("a", "b"))
