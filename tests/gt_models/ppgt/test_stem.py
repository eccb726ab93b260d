"""The stem of pair encodings."""

import pytest
import torch

from gt_models.ppgt import stem
from tests.gt_models.checks import collate
from tests.gt_models.ppgt.test_ppgt import _loss_and_grads, graphs, small


@pytest.mark.parametrize("kept", [0, 2**15])
def test_chunks_change_nothing_recomputed_or_kept(monkeypatch, kept):
    monkeypatch.setattr(stem, "KEPT", kept)
    whole, chunked = small(), small()
    chunked.stem.chunk = 7
    chunked.load_state_dict(whole.state_dict())
    batch = collate(graphs((4, 1, 6)))
    for a, b in zip(_loss_and_grads(whole, batch), _loss_and_grads(chunked, batch), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
