"""Continuous and categorical features by loops."""

import pytest
import torch

from gt_models.nn.features import FeatureEncoder


def test_categories_are_rows_of_one_table_added_up():
    encoder, x = FeatureEncoder([5, 3], 4), torch.tensor([[0, 2], [4, 0]])
    table = encoder.embedding.weight
    torch.testing.assert_close(encoder(x), torch.stack([table[0] + table[5 + 2], table[4] + table[5 + 0]]))


@pytest.mark.parametrize("bias", [True, False])
def test_continuous_features_go_through_a_linear(bias):
    encoder, x = FeatureEncoder(3, 4, bias), torch.randn(5, 3)
    torch.testing.assert_close(encoder(x), x @ encoder.linear.weight.T + (encoder.linear.bias if bias else 0.0))


def test_other_widths_are_refused():
    for encoder in (FeatureEncoder(3, 4), FeatureEncoder([5, 3, 2], 4)):
        with pytest.raises(ValueError, match="3 columns"):
            encoder(torch.zeros(2, 2))
