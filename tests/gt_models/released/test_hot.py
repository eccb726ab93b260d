"""The released form of HOT equals stored outputs and counts of the authors' code, and each layer equals loops."""

import pytest
import torch

from gt_models import create_model
from gt_models.hot import HigherOrderAttention
from gt_models.hot.equivalence_classes import light_classes
from gt_models.layers.performer import RandomFeatures
from gt_models.released.hot import ReleasedAttention
from tests.gt_models.hot.cases import _float64, build, one_way_graph, parity_support, to_rows  # noqa: F401

CLASSES = {
    1: ((0,), (1, 2, 3)),
    2: ((0, 2, 3), (1,)),
    3: ((0,), (1, 3), (2,)),
    4: ((0, 2), (1,), (3,)),
    5: ((0, 3), (1,), (2,)),
    6: ((0,), (1, 2), (3,)),
    7: ((0, 1), (2, 3)),
    8: ((0,), (1,), (2, 3)),
    9: ((0, 1), (2,), (3,)),
    10: ((0,), (1,), (2,), (3,)),
}

LIGHT_2_TO_2 = [((0, 1, 2, 3),), ((0, 2), (1, 3)), ((0, 3), (1, 2)), ((0, 1, 2), (3,)), ((0, 1, 3), (2,))]

QUERIES = {
    1: ("1", 0),
    2: ("1", 1),
    3: ("2", 0),
    5: ("2", 1),
    4: ("2", 2),
    6: ("2", 3),
    7: ("1", 2),
    8: ("1", 3),
    9: ("2", 4),
    10: ("2", 5),
}

KERNEL_KEYS = {
    1: ("1", 0),
    2: ("1", 1),
    3: ("1", 2),
    5: ("1", 3),
    4: ("1", 4),
    6: ("1", 5),
    7: ("1", 6),
    8: ("2", 0),
    9: ("1", 7),
    10: ("2", 1),
}

SOFTMAX_KEYS = {
    1: ("1", 0),
    2: ("1", 1),
    7: ("1", 2),
    3: ("1", 3),
    5: ("1", 4),
    4: ("1", 5),
    6: ("1", 6),
    9: ("1", 7),
    8: ("2", 0),
    10: ("2", 1),
}

VALUES = {1: 0, 2: 1, 3: 2, 5: 3, 4: 4, 6: 5, 7: 6, 8: 7, 9: 8, 10: 9}

OUTPUTS = {number: number - 1 for number in range(1, 11)}


def load_authors(layer: ReleasedAttention, case, keys) -> None:
    """Convert the authors' weights: their slots in their order, ours plan by plan."""
    number = {blocks: n for n, blocks in CLASSES.items()}
    fc = {
        "1": case["w.fc_1.weight.weight"].reshape(1, 8, 48),
        "2": case["w.fc_2.weight.weight"].reshape(5, 8, 40),
    }
    bias = {
        "1": case["w.fc_1.bias.bias.0"][None],
        "2": torch.stack([case["w.fc_2.bias.bias.1"], case["w.fc_2.bias.bias.0"]]),
    }
    with torch.no_grad():
        for name, mine in layer.maps.items():
            theirs = fc[name] if name == "1" else fc[name][[LIGHT_2_TO_2.index(c.blocks) for c in mine.classes]]
            columns = []
            first_key = 4 if name == "1" else 6
            for slots, where, offset in ((layer.query_slots, QUERIES, 0), (layer.key_slots, keys, first_key)):
                for c in slots[int(name)]:
                    order, slot = where[number[c.blocks]]
                    assert order == name
                    columns += range((slot + offset) * 4, (slot + offset) * 4 + 4)
            if name == "2":
                columns += range(32, 40)
            mine.weight.copy_(theirs[:, :, columns].flatten(0, 1))
            mine.bias.copy_(bias[name][:, columns])
        v = [
            s for c in layer.value_order for s in range(VALUES[number[c.blocks]] * 4, VALUES[number[c.blocks]] * 4 + 4)
        ]
        layer.value.weight.copy_(case["w.fc_v.weight"][v])
        layer.value.bias.copy_(case["w.fc_v.bias"][v])
        o = [s for c in layer.classes for s in range(OUTPUTS[number[c.blocks]] * 4, OUTPUTS[number[c.blocks]] * 4 + 4)]
        layer.output.weight.copy_(case["w.fc_o.weight"][:, o])
        layer.output.bias.copy_(case["w.fc_o.bias"])


@pytest.mark.parametrize(
    ("name", "keys"), [("kernelattn_2to2_softmaxkernel", KERNEL_KEYS), ("selfattn_softmax_2to2", SOFTMAX_KEYS)]
)
def test_parity_with_the_authors_attention(parity, name, keys):
    case = parity(f"hot_{name}")
    support = parity_support(case)
    kernel = name.startswith("kernel")
    layer = ReleasedAttention(2, 2, 8, 4, 4, 2, attention="kernel" if kernel else "softmax")
    load_authors(layer, case, keys)
    features = None
    if kernel:
        features = RandomFeatures(2, 1, None, "softmax")
        features.projection.copy_(case["w.feature_map.feature_map.projection_matrix"])
    out = layer(to_rows(case, "in.values"), support, features)
    torch.testing.assert_close(out, to_rows(case, "out.y"), rtol=1e-10, atol=1e-10)
    (out * to_rows(case, "in.loss_weight")).sum().backward()
    gradients = ReleasedAttention(2, 2, 8, 4, 4, 2, attention=layer.attention)
    load_authors(gradients, {"w" + name[1:]: value for name, value in case.items() if name.startswith("g.")}, keys)
    for (name, mine), (_, theirs) in zip(layer.named_parameters(), gradients.named_parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs, rtol=1e-10, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")


def parameters(model) -> int:
    return sum(p.numel() for p in model.parameters())


def test_parameter_counts_of_the_authors_models():
    """The model of the runtime study exactly; the others to their known digits (computed from the released code)."""
    torch.set_default_dtype(torch.float32)
    runtime = create_model("hot-released", in_dim=16, out_dim=32, edge_dim=16, hidden_dim=32, num_layers=4, num_heads=4)
    assert parameters(runtime) == 387_840
    jets = create_model(
        "hot-released", in_dim=10, out_dim=1, level="pair", hidden_dim=128, num_layers=4, num_heads=4, head_dims=[256]
    )
    assert round(parameters(jets) / 1e6, 3) == 0.895
    delaunay = create_model(
        "hot-released", in_dim=2, out_dim=1, level="pair", hidden_dim=256, num_layers=5, head_dims=[256, 256],
        head_diagonal=True,
    )  # fmt: skip
    assert round(parameters(delaunay) / 1e6, 2) == 4.15
    with torch.device("meta"):
        pcqm = create_model(
            "hot-released", in_dim=[512] * 9, edge_dim=[512] * 3, out_dim=1, hidden_dim=512, num_layers=8, qk_dim=64,
            v_dim=64,
            readout_dim=256, readout_heads=16, head_dims=[], degree_embeddings=512,
        )  # fmt: skip
    assert round(parameters(pcqm) / 1e6, 1) == 59.8


def test_settings_reach_every_layer():
    """The layers as the reference reads them."""
    paper, authors = (
        build("graph", num_layers=2),
        build("graph", "hot-released", num_layers=2, qk_dim=4, v_dim=6, redraw_interval=None),
    )
    for model, widths, settings in (
        (paper, (8, 8), (HigherOrderAttention, False)),
        (authors, (4, 6), (ReleasedAttention, True)),
    ):
        for number, layer in enumerate(model.layers):
            attend = layer.attention
            assert (attend.k, attend.l) == (2, 0 if number == 2 else 2)
            assert (attend.qk_dim, attend.v_dim) == widths
            normalize = {m.normalize for m in attend.maps.values()}
            assert (type(attend), *normalize) == settings
            assert attend.attention == ("softmax" if number == 2 else "kernel")
            assert layer.ffn_in.classes == layer.ffn_out.classes == light_classes(attend.l, attend.l)
    assert (paper.features.kernel, authors.features.kernel) == ("softmax", "relu")
    assert (paper.features.redraw_interval, authors.features.redraw_interval) == (1, None)
