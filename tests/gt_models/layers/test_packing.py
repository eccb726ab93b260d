"""Positions of the tokens of graphs of different sizes, and groups of graphs that are padded together."""

import torch

from gt_models.layers.packing import Packing, by_groups


def test_packing():
    packing = Packing.of(torch.tensor([2, 0, 5, 2]))
    assert (packing.num_graphs, packing.num_tokens) == (4, 9)
    assert packing.ptr.tolist() == [0, 5, 7, 9, 9]
    assert packing.rank.tolist() == [1, 3, 0, 2]
    assert packing.start.tolist() == [5, 9, 0, 7]
    assert packing.graph.tolist() == [0] * 5 + [1] * 2 + [2] * 2
    assert [(g.num_graphs, g.length, g.num_tokens, g.place) for g in packing.groups] == [
        (1, 5, 5, None),
        (2, 2, 4, None),
    ]
    (one,) = Packing.of(torch.tensor([2, 0, 5, 2]), 9, longest=6).groups
    assert (one.num_graphs, one.length, one.num_tokens) == (4, 6, 9)
    assert one.place.tolist() == [0, 1, 2, 3, 4, 6, 7, 12, 13]
    assert one.mask.flatten(1).sum(1).tolist() == [5, 2, 2, 0]


def test_groups_see_their_graphs_and_padding_of_zeros():
    packing, seen = Packing.of(torch.tensor([2, 1, 4]), max_padding=0.5), []
    tokens = torch.arange(1.0, 8.0)[:, None].expand(7, 3).contiguous()

    def attend(q, k, v, group, first):
        seen.append((k[:, 0, :, 0].tolist(), first))
        return v

    out = by_groups(None, tokens, packing, 1, attend)
    assert seen == [([[1, 2, 3, 4], [5, 6, 0, 0]], 0), ([[7]], 6)]
    assert torch.equal(out, tokens[:, :1])
