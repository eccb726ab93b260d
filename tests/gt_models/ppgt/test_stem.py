"""The stem of pair encodings."""

import math

import torch

from gt_models.ppgt.stem import sinusoids
from tests.gt_models.checks import collate
from tests.gt_models.ppgt.test_ppgt import _loss_and_grads, graphs, small


def test_sinusoids():
    p = torch.rand(3, 2, dtype=torch.float64)
    expected = [p, (math.pi * p).sin(), (math.pi * p).cos(), (2 * math.pi * p).sin(), (2 * math.pi * p).cos()]
    torch.testing.assert_close(sinusoids(p, 2), torch.cat(expected, 1))


def test_recomputed_chunks_change_nothing():
    whole, chunked = small(), small()
    chunked.stem.chunk = 7
    chunked.load_state_dict(whole.state_dict())
    batch = collate(graphs((4, 1, 6)))
    for a, b in zip(_loss_and_grads(whole, batch), _loss_and_grads(chunked, batch), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
