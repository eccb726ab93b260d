"""GRIT: the authors' outputs, the published parameter count."""

import pytest
import torch
from torch import nn

from gt_models import create_model
from gt_models.baselines.grit import signed_sqrt
from gt_models.batch import GraphBatch
from gt_models.encodings import compute
from tests.gt_models import checks

pytestmark = pytest.mark.slow

ZINC = {"in_dim": [21], "out_dim": 1, "edge_dim": [4]}


def graphs(sizes=(5, 3, 6)) -> list[GraphBatch]:
    return checks.random_graphs(sizes, pair_encodings=(("rrwp", 4),))


def build(level: str = "graph", **arguments) -> nn.Module:
    small = {"in_dim": 4, "out_dim": 2, "edge_dim": 3, "hidden_dim": 8, "num_layers": 2, "num_heads": 2, "rrwp_dim": 4}
    return create_model("grit", **small | {"level": level} | arguments).double()


def test_encoding_is_the_authors(parity):
    case = parity("grit_rrwp")
    for name in ("g0", "g1"):
        n, edges = int(case[f"in.{name}.n"]), case[f"in.{name}.edge_index"]
        graph = GraphBatch(torch.ones(n, 1, dtype=torch.float64), edges, torch.tensor([0, n]))
        rrwp = compute("rrwp", graph, steps=int(case["meta.walk_length"]) - 1, dtype=torch.float64)["rrwp"].view(
            n, n, -1
        )
        key, query = case[f"out.{name}.rrwp_index"]
        torch.testing.assert_close(rrwp[query, key], case[f"out.{name}.rrwp_val"], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(rrwp[range(n), range(n)], case[f"out.{name}.rrwp"], rtol=1e-10, atol=1e-10)
        degree = torch.bincount(edges[0], minlength=n).double()
        torch.testing.assert_close(degree.log1p(), case[f"out.{name}.log_deg"], rtol=1e-10, atol=1e-10)


def from_authors(name: str, value: torch.Tensor) -> dict[str, torch.Tensor]:
    """A weight of the authors by the name and layout of this library."""
    if name.startswith("layers."):
        _, i, rest = name.split(".", 2)
        head = {
            "attention.Aw": ("attention.logit", (1, 0)),
            "attention.VeRow": ("attention.pair_value", (1, 0, 2)),
            "deg_coef": ("degree_scale", (1, 0)),
        }
        if rest in head:
            new, order = head[rest]
            value = value.squeeze(-1) if rest == "attention.Aw" else value.squeeze(0) if rest == "deg_coef" else value
            return {f"layers.{i}.{new}": value.permute(order).contiguous()}
        for old, new in {
            "attention.Q": "attention.query", "attention.K": "attention.key", "attention.V": "attention.value",
            "attention.E": "attention.pair",
            "O_h": "node_out", "O_e": "pair_out", "batch_norm1_h": "attn_norm", "batch_norm1_e": "pair_norm",
            "batch_norm2_h": "ffn_norm",
            "FFN_h_layer1": "ffn_in", "FFN_h_layer2": "ffn_out",
        }.items():  # fmt: skip
            if rest.startswith(old + "."):
                return {f"layers.{i}.{new}{rest.removeprefix(old)}": value}
    names = {
        "node_emb": "node_encoder.embedding",
        "edge_emb": "edge_encoder.embedding",
        "rrwp_abs.fc": "node_rrwp",
        "rrwp_rel.fc": "pair_rrwp",
    }
    old, _, end = name.rpartition(".")
    return {f"{names[old]}.{end}": value} if old in names else {}


def test_equals_the_authors(parity):
    case = parity("grit_layers")
    weights = {
        k: v for name, value in case.items() if name.startswith("w.") for k, v in from_authors(name[2:], value).items()
    }
    vocabulary = [len(weights[f"{kind}_encoder.embedding.weight"]) for kind in ("node", "edge")]
    model = build("node", in_dim=vocabulary[:1], edge_dim=vocabulary[1:], rrwp_dim=5, build_unused=True).eval()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert all(name.startswith("head.") for name in missing)
    batch = case["in.batch"]
    ptr = torch.cat([batch.new_zeros(1), batch.bincount().cumsum(0)])
    graph = GraphBatch(case["in.x"][:, None], case["in.edge_index"], ptr, case["in.edge_attr"][:, None])
    slots = {pair: i for i, pair in enumerate(zip(*(side.tolist() for side in graph.pair_nodes), strict=True))}

    def flat(index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Their rows of (key, query) in our order (query, key)."""
        out = values.new_zeros(len(slots), values.size(1))
        out[[slots[q, k] for k, q in index.T.tolist()]] = values
        return out

    graph.encodings["rrwp"] = flat(case["in.rrwp_index"], case["in.rrwp_val"])
    x, pairs = model.encode(graph)
    torch.testing.assert_close(x, case["out.x_enc"], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(pairs, flat(case["out.pair_index"], case["out.pair_enc"]), rtol=1e-10, atol=1e-10)
    for i, layer in enumerate(model.layers):
        x, pairs = layer(x, pairs, case["in.log_deg"][:, None], graph)
        torch.testing.assert_close(x, case[f"out.x_layer{i}"], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(
            pairs, flat(case["out.pair_index"], case[f"out.pair_layer{i}"]), rtol=1e-10, atol=1e-10
        )
    features = model.forward_features(graph)
    torch.testing.assert_close(features, x, rtol=1e-10, atol=1e-10)
    loss = (features * case["in.loss_weight"]).sum()
    torch.testing.assert_close(loss, case["out.loss"], rtol=1e-10, atol=1e-10)
    loss.backward()
    grads = {
        k: v for name, value in case.items() if name.startswith("g.") for k, v in from_authors(name[2:], value).items()
    }
    own = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert own.keys() == grads.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(own[name], grad, rtol=1e-9, atol=1e-10)


def test_parameter_count():
    """473,473 for ZINC (10 layers, width 64, 8 heads, K = 21), of which 4,288 are the unused last update of pairs."""
    assert sum(p.numel() for p in create_model("grit", **ZINC, build_unused=True).parameters()) == 473_473
    assert sum(p.numel() for p in create_model("grit", **ZINC).parameters()) == 473_473 - 4_288


def test_a_step_in_float32_is_products_of_the_widest_vectors_and_learns_as_the_definition_does():
    """The tensors of pairs: Ew and Eb of both layers, the output of the first; then q, k and v.

    Two layers of 64 channels on graphs of 16 nodes.
    """
    torch.manual_seed(0)
    model = build(hidden_dim=64, num_heads=8, attn_dropout=0.2, clamp=None).float()
    with torch.no_grad():
        for layer in model.layers:  # roots of about 16: near zero the slope would amplify rounding
            layer.attention.query.bias.fill_(4.0)
            layer.attention.pair.bias.view(8, 2, 8)[:, 0] = 4.0
    batch = checks.collate(checks.random_graphs((16,) * 33, pair_encodings=(("rrwp", 4),))).to("cpu", torch.float32)
    # rounding may change the sign of a ReLU's input
    taken = checks.assert_learns_as_the_definition(model, batch, tol=1e-3, grad_tol=0.01)
    assert taken["multi_linear"] == {"onednn": 2}


def test_signed_sqrt():
    x = torch.tensor([-4.0, 0.0, 9.0, 1e-30], dtype=torch.float64, requires_grad=True)
    y = signed_sqrt(x)
    y.sum().backward()
    torch.testing.assert_close(y.detach(), torch.tensor([-2.0, 0.0, 3.0, 1e-15], dtype=torch.float64))
    torch.testing.assert_close(x.grad, torch.tensor([0.25, 0.0, 1 / 6, 5e14], dtype=torch.float64))
