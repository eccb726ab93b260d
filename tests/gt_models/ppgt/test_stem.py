"""The stem of pair encodings."""

import math

import torch

from gt_models.ppgt.stem import PairStem


def test_sinusoids_in_loops():
    """Equation 9: channels, then their sines and cosines at doubling frequencies."""
    stem, raw = PairStem(2, 4, 4, 1, 2, 3, "adarms"), torch.tensor([[0.25, -0.5]], dtype=torch.float64)
    expected = [0.25, -0.5]
    for frequency in (1, 2, 4):
        for function in (math.sin, math.cos):
            expected += [function(frequency * math.pi * value) for value in (0.25, -0.5)]
    torch.testing.assert_close(stem.enhance(raw)[0], torch.tensor(expected, dtype=torch.float64))
    assert PairStem(2, 4, 4, 1, 2, 0, "adarms").enhance(raw) is not None
    torch.testing.assert_close(PairStem(2, 4, 4, 1, 2, 0, "adarms").enhance(raw), raw)


def test_half_precision_computes_sinusoids_in_single_precision():
    """In bfloat16 the angle of the highest frequency has steps of a quarter turn and more."""
    stem, raw = PairStem(1, 4, 4, 1, 2, 8, "adarms"), torch.linspace(0, 1, 33)[:, None].bfloat16()
    found = stem.enhance(raw)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, stem.enhance(raw.double()).float(), rtol=1e-4, atol=1e-4)


def test_branches_that_are_not_dropped():
    stem = PairStem(2, 4, 4, 2, 2, 1, "adarms")
    raw, edge = torch.randn(5, 2), torch.randn(5, 4)
    torch.testing.assert_close(stem(raw, edge, torch.ones(5, 2)), stem(raw, edge))
    dropped = stem(raw, edge, torch.zeros(5, 2))
    torch.testing.assert_close(dropped, stem.norm(stem.embed(raw, edge)))
