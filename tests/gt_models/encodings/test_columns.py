"""Encodings that are columns of the features."""

import pytest
import torch

from gt_models.encodings import EncodingError, compute
from tests.gt_models.checks import collate, random_graphs


def test_positions_are_columns_of_the_features():
    batch = collate(random_graphs((4, 2), density=0.5))
    batch.x = torch.arange(18.0).view(6, 3)
    torch.testing.assert_close(compute("position", batch, count=2)["position"], batch.x[:, 1:])
    with pytest.raises(EncodingError, match="last 4 columns; the node features have 3"):
        compute("position", batch, count=4)
