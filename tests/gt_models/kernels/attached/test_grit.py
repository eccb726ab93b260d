"""Fast forms of GRIT against its equations."""

import pytest
import torch

from gt_models import create_model
from gt_models.kernels import forms_taken
from tests.gt_models import checks


@pytest.mark.slow
def test_attention_and_the_map_of_pairs_take_their_forms_and_agree_with_the_equations():
    torch.manual_seed(0)
    model = create_model(
        "grit", in_dim=4, out_dim=2, hidden_dim=8, num_layers=2, num_heads=2, rrwp_dim=4, norm="layer", attn_dropout=0.3
    ).double()
    batch = checks.collate(checks.random_graphs((5, 1, 7), pair_encodings=(("rrwp", 4),)))
    taken = checks.assert_learns_as_the_definition(model, batch, tol=1e-9, grad_tol=1e-7)
    assert taken["grit_attention_and_maps"] == {"by query": 2}
    assert taken["grit_pair_map"] == {"gradients in one pass": 1}  # the last layer does not update pairs


def test_a_hook_on_a_child_leaves_the_equations():
    model = (
        create_model("grit", in_dim=4, out_dim=2, hidden_dim=8, num_layers=1, num_heads=2, rrwp_dim=4).double().eval()
    )
    batch = checks.collate(checks.random_graphs((5, 3), pair_encodings=(("rrwp", 4),)))
    expected, seen = model(batch), []
    model.layers[0].attention.key.register_forward_hook(lambda *_: seen.append(1))
    with forms_taken() as taken:
        torch.testing.assert_close(model(batch), expected, rtol=1e-10, atol=1e-10)
    assert seen == [1]
    assert taken["grit_attention_and_maps"] == {"reference": 1}
