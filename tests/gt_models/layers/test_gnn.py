"""The common parts of message-passing baselines."""

import torch

from tests.gt_models import checks
from tests.gt_models.baselines.cases import build, graphs


def test_laplacian_signs_are_flipped_in_training_only():
    batch = checks.collate(graphs())
    model = build(laplacian_dim=3)
    assert any(not torch.equal(model(batch), model(batch)) for _ in range(5))
    model.eval()
    assert torch.equal(model(batch), model(batch))
