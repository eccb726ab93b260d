"""The released form of the Edge Transformer equals stored outputs and counts of the authors' code.

tests/gt_models/edge_transformer tests the parts that it has in common with the paper's form.
"""

import pytest
import torch

from gt_models import create_model
from gt_models.released.edge_transformer import ReleasedLayer
from tests.gt_models import checks


def test_layer_parity(parity):
    case = parity("et_layer")
    names = {
        "norm": "norm", "ffn.hidden": "ffn.mlp.0", "ffn.out": "ffn.mlp.3", "ffn_norm": "ffn.norm",
        "attention_norm": "ffn.norm_aggregate",
    }  # fmt: skip
    layer = ReleasedLayer(8, int(case["meta.heads"]), 0.0, 0.0, "gelu").double()

    def weights(prefix: str) -> dict:
        found = {
            f"{ours}.{kind}": case[f"{prefix}.{theirs}.{kind}"]
            for ours, theirs in names.items()
            for kind in ("weight", "bias")
        }
        linears = [case[f"{prefix}.attention.linears.{i}.weight"] for i in range(5)]
        return found | {"attention.projections.weight": torch.cat(linears[:4]), "attention.out.weight": linears[4]}

    layer.load_state_dict(weights("w"))
    real = case["in.node_mask"]
    pairs = real[:, :, None] & real[:, None, :]
    out = layer(case["in.x"][pairs], checks.collate(checks.random_graphs(real.sum(1).tolist())))
    torch.testing.assert_close(out, case["out.y"][pairs], rtol=1e-12, atol=1e-12)
    (out * case["in.loss_weight"][pairs]).sum().backward()
    grads = dict(layer.named_parameters())
    for name, expected in weights("g").items():
        torch.testing.assert_close(grads[name].grad, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("num_layers", "expected"), [(10, 420_737), (6, 270_977)])
def test_parameter_counts_of_the_zinc_settings(num_layers, expected):
    model = create_model(
        "edge-transformer-released",
        in_dim=[28],
        out_dim=1,
        level="graph",
        edge_dim=[4],
        hidden_dim=64,
        num_layers=num_layers,
        num_heads=8,
    )
    assert sum(p.numel() for p in model.parameters()) == expected
