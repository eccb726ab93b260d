"""The class token that reads a graph, compared with loops."""

import pytest
import torch

from tests.gt_models.checks import collate
from tests.gt_models.ppgt.cases import described, expected_outputs, graphs, small


@pytest.mark.slow
def test_class_attention_in_loops():
    model, singles = small(pooling="class-attention", norm="rms"), graphs((4, 2))
    expected = expected_outputs(model, singles, described(norm="rms"), "class-attention")
    torch.testing.assert_close(model(collate(singles)), expected, rtol=1e-10, atol=1e-10)
