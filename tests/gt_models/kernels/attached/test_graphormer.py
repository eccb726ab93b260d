"""The fast form of Graphormer's attention against its equations."""

import pytest
import torch

from gt_models import create_model
from gt_models.encodings import compute
from gt_models.kernels import forms_taken
from tests.gt_models import checks

pytestmark = pytest.mark.slow  # compiles kernels of several widths


def model_and_batch(**arguments):
    torch.manual_seed(0)
    model = create_model(
        "graphormer", in_dim=4, out_dim=2, hidden_dim=8, num_layers=2, num_heads=2, max_distance=4, **arguments
    ).double()
    batch = checks.collate(checks.random_graphs((5, 1, 7)))
    batch.encodings.update(compute("shortest-path", batch, max_distance=4))
    return model, batch


def test_attention_takes_its_form_and_agrees_with_the_equations():
    model, batch = model_and_batch(attn_dropout=0.3, activation_dropout=0.2)
    taken = checks.assert_learns_as_the_definition(model, batch, tol=1e-9, grad_tol=1e-7)
    assert taken["graphormer_attention"] == {"by graph": 2}


def test_a_hook_on_a_child_leaves_the_equations():
    model, batch = model_and_batch()
    expected, seen = model.eval()(batch), []
    model.layers[0].attention.qkv.register_forward_hook(lambda *_: seen.append(1))
    with forms_taken() as taken:
        torch.testing.assert_close(model(batch), expected, rtol=1e-10, atol=1e-10)
    assert seen == [1]
    assert taken["graphormer_attention"] == {"reference": 1, "by graph": 1}
