"""Continuous and categorical features, compared with loops."""

import pytest
import torch

from gt_models.layers.features import FeatureEncoder


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


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ([3, 0], "categorical feature 0 of row 1 is 3; .* 3 categories, 0 to 2"),
        ([0, -1], "feature 1 of row 1 is -1; .* 5 categories, 0 to 4"),
    ],
)
def test_a_category_outside_its_vocabulary_is_refused(row, says):
    with pytest.raises(ValueError, match=says):
        FeatureEncoder([3, 5], 8)(torch.tensor([[2, 4], row]))


@pytest.mark.parametrize("value", [0.5, float("nan"), float("inf")])
def test_a_category_that_is_no_integer_is_refused(value):
    encoder, x = FeatureEncoder([3, 5], 8), torch.tensor([[2.0, 4.0], [1.0, value]])
    with pytest.raises(ValueError, match=f"categorical feature 1 of row 1 is {value}; .* 5 categories, 0 to 4"):
        encoder(x)
    torch.testing.assert_close(encoder(x[:1]), encoder(torch.tensor([[2, 4]])))


@pytest.mark.slow
@pytest.mark.parametrize("row", [[3, 0], [0, -1]])
def test_a_category_outside_its_vocabulary_fails_where_no_value_may_be_read(row):
    """In a compiled graph, as on a GPU, an invalid value must not select a row of another column."""
    torch._dynamo.reset()
    compiled = torch.compile(FeatureEncoder([3, 5], 8), fullgraph=True, backend="aot_eager")
    x = torch.tensor([[2, 4], [0, 1]])
    torch.testing.assert_close(compiled(x), compiled._orig_mod(x))
    with pytest.raises(IndexError):
        compiled(torch.tensor([[2, 4], row]))
    torch._dynamo.reset()


def test_to_empty_leaves_nothing_undefined():
    encoder = FeatureEncoder([3, 5], 8)
    empty = FeatureEncoder([3, 5], 8).to_empty(device="cpu")
    empty.load_state_dict(encoder.state_dict())
    x = torch.tensor([[2, 4], [0, 1]])
    assert torch.equal(empty(x), encoder(x))
