"""PPGT as released: stored outputs of the authors' code, encoders in loops, and initialisation."""

import pytest
import torch

from gt_models import GraphBatch, create_model
from tests.gt_models.checks import assert_gradients_reach, collate, random_graphs
from tests.gt_models.ppgt.cases import (
    SMALL,
    SUBGRAPHS,
    ZINC,
    graphs,
    small_subgraphs,
)

NAME = "ppgt-released"


def test_stored_numbers_of_the_authors_implementation(parity):
    case = parity("ppgt_model")
    model = create_model(
        "ppgt-released", in_dim=[6], out_dim=1, edge_dim=[4], hidden_dim=8, num_layers=2, num_heads=2, rrwp_dim=5,
        stem_dim=16, num_frequencies=2,
    ).double()  # fmt: skip
    w = {k[2:]: v for k, v in case.items() if k.startswith("w.")}
    names = _parity_names()
    state = {ours: w[theirs] for ours, theirs in names.items()}
    order = _parity_columns(8, 2)
    state["stem.linear1.weight"] = state["stem.linear1.weight"][:, order]
    for i in range(2):
        theirs = f"layers.{i}.attention"
        for end in ("weight", "bias"):
            state[f"layers.{i}.attention.qkv.{end}"] = _qkv(w[f"{theirs}.Q.{end}"], w[f"{theirs}.KV.{end}"])
    model.load_state_dict(state)
    n = [int(v) for v in case["in.ptr"].diff()]
    ptr, (key, query) = case["in.ptr"], case["in.rrwp_index"]
    rrwp = torch.zeros(sum(v * v for v in n), 5, dtype=torch.float64)
    start = torch.tensor([0, n[0] ** 2])[case["in.batch"][query]]
    size = torch.tensor(n)[case["in.batch"][query]]
    rrwp[start + (query - ptr[case["in.batch"][query]]) * size + key - ptr[case["in.batch"][key]]] = case[
        "in.rrwp_attr"
    ]
    batch = GraphBatch(
        case["in.x"][:, None], case["in.edge_index"], ptr, case["in.edge_attr"][:, None], encodings={"rrwp": rrwp}
    )
    features = model.forward_features(batch)
    torch.testing.assert_close(features, _last_norm(case, w), rtol=1e-10, atol=1e-10)
    y = model.forward_head(features, batch)
    torch.testing.assert_close(y, case["out.y"], rtol=1e-10, atol=1e-10)
    loss = 1.3 * y[0].sum() - 0.7 * y[1].sum()
    torch.testing.assert_close(loss, case["out.loss"], rtol=1e-10, atol=1e-10)
    loss.backward()
    grads = {k[2:]: v for k, v in case.items() if k.startswith("g.")}
    for ours, parameter in model.named_parameters():
        if ".qkv." in ours:
            end = ours.rpartition(".")[2]
            theirs = ours.rpartition(".qkv.")[0]
            expected = _qkv(grads[f"{theirs}.Q.{end}"], grads[f"{theirs}.KV.{end}"])
        else:
            expected = grads[names[ours]]
        if ours == "stem.linear1.weight":
            expected = expected[:, order]
        torch.testing.assert_close(
            parameter.grad, expected, rtol=1e-10, atol=1e-10, msg=lambda m, ours=ours: f"{ours}: {m}"
        )


def _last_norm(case, w):
    x, a, b = case["out.x_layer1"], w["post.alpha"], w["post.beta"]
    root = lambda u: (u.square().mean(-1, keepdim=True) + 1e-6).sqrt()  # noqa: E731
    return x / root(x) * root(a * x + b)


def _qkv(q, kv):
    return torch.cat([q, kv])


def _parity_names() -> dict[str, str]:
    """Names of our state dict -> theirs, where queries, keys and values are separate."""
    names = {"node_encoder.embedding.weight": "node_enc.weight", "edge_encoder.embedding.weight": "edge_enc.weight"}
    for end in ("weight", "bias"):
        for i, ours in enumerate(("diagonal_encoder", "degree_encoder", "order_encoder")):
            names[f"{ours}.{end}"] = f"node_pe.{i}.out_fc.{end}"
        names |= {f"stem.linear1.{end}": f"edge_pe.0.mlp.0.{end}", f"stem.linear2.{end}": f"edge_pe.0.out_fc.{end}"}
        for i in range(2):
            names[f"stem.blocks.{i}.linear1.{end}"] = f"edge_pe.1.mlp.{i}.mlp.0.{end}"
            names[f"stem.blocks.{i}.linear2.{end}"] = f"edge_pe.1.mlp.{i}.mlp.3.{end}"
            names[f"layers.{i}.attention.out.{end}"] = f"layers.{i}.attention.O.{end}"
            names[f"layers.{i}.attention.pair_linear.{end}"] = f"layers.{i}.attention.P.{end}"
            names[f"layers.{i}.linear1.{end}"], names[f"layers.{i}.linear2.{end}"] = (
                f"layers.{i}.FFN.0.{end}",
                f"layers.{i}.FFN.4.{end}",
            )
        for i in range(3):
            names[f"head.{i}.{end}"] = f"head.{3 * i}.{end}"
    for end in ("alpha", "beta"):
        names |= {f"norm.{end}": f"post.{end}", f"stem.norm.{end}": f"edge_pe.1.post_backbone_norm.{end}"}
        for i in range(2):
            names[f"stem.blocks.{i}.norm.{end}"] = f"edge_pe.1.mlp.{i}.pre_mlp_norm.{end}"
            names[f"layers.{i}.norm1.{end}"], names[f"layers.{i}.norm2.{end}"] = (
                f"layers.{i}.norm1_h.{end}",
                f"layers.{i}.norm2_h.{end}",
            )
    return names


def _parity_columns(channels: int, frequencies: int) -> list[int]:
    """Their columns [raw; per channel and frequency sin, cos] in our order [raw; per frequency all sin, all cos]."""
    order = list(range(channels))
    for f in range(frequencies):
        for part in range(2):
            order += [channels + c * 2 * frequencies + 2 * f + part for c in range(channels)]
    return order


def test_batch_norms_of_the_head():
    """With batch norms of pooled features and outputs: gradients in training, no effect of the batch in evaluation."""
    model = create_model(NAME, **(SMALL | {"pool_norm": True, "out_norm": True})).double()
    data = graphs((4, 3, 5))
    assert_gradients_reach(model, collate(data), except_for=("head.2.bias",))  # batch norm removes the last bias
    model.eval()
    torch.testing.assert_close(model(collate(data)), torch.cat([model(g) for g in data]), rtol=1e-10, atol=1e-10)


def test_initialisation():
    """Initialisation of the stems, and the scales and learned vectors of Node2Subgraph."""
    model = create_model(SUBGRAPHS, in_dim=[21], out_dim=1, hidden_dim=256, pair_dim=64, layer_scale=1e-4)
    drawn = [linear.weight for block in model.stem.blocks for linear in (block.linear1, block.linear2)]
    drawn += [
        model.class_attention.token,
        model.target_vector,
        model.class_attention.order1.weight,
        model.class_attention.order2.weight,
    ]
    for weight in drawn:
        assert weight.std().item() == pytest.approx(0.02, rel=0.15)
    assert model.stem.linear1.weight.std().item() == pytest.approx((2 / model.stem.linear1.in_features) ** 0.5, rel=0.1)
    assert all((scale == 1e-5).all() for scale in model.stem.scales)
    assert all((layer.residual1.scale == 1e-4).all() for layer in (*model.layers, *model.class_attention.layers))
    for scale in (model.stem.scales[0], model.layers[0].residual2.scale, model.target_vector):
        scale.data.fill_(3.0)
    model.reset_parameters()
    assert (model.stem.scales[0] == 1e-5).all()
    assert (model.layers[0].residual2.scale == 1e-4).all()
    assert model.target_vector.std().item() == pytest.approx(0.02, rel=0.15)
    assert create_model(NAME, **(ZINC | {"edge_vector": True})).edge_vector.std().item() == pytest.approx(1.0, rel=0.3)


@pytest.mark.parametrize(("init", "std"), [("truncated", 0.02), ("kaiming", (2 / 64) ** 0.5)])
def test_start_of_the_stem(init, std):
    model = create_model(NAME, **(ZINC | {"stem_ffn_init": init}))
    assert model.stem.blocks[0].linear1.weight.std().item() == pytest.approx(std, rel=0.1)
    with pytest.raises(ValueError, match="unknown stem_ffn_init 'x'; known: truncated, kaiming"):
        create_model(NAME, **(ZINC | {"stem_ffn_init": "x"}))


def test_stochastic_depth_of_the_stem_is_drawn_for_each_block():
    """Each branch is doubled or dropped for a whole graph, independently of the other block."""
    model, given = small_subgraphs(stem_drop_path=0.5).train(), []
    batch = collate(random_graphs((3, 4) * 40, pair_encodings=(("rrwp", 5),), node_encodings=(("target", 1),)))
    model.stem.register_forward_pre_hook(lambda _, args: given.append(args[2]))
    torch.manual_seed(0)
    model(batch)
    (keep,) = given
    first = keep[batch.pair_ptr[:-1]]  # [graphs, 2]
    torch.testing.assert_close(keep, first.repeat_interleave(batch.sizes**2, 0))
    assert sorted(map(tuple, first.unique(dim=0).tolist())) == [(0, 0), (0, 2), (2, 0), (2, 2)]


def test_order_and_degree_reach_their_places():
    """Log degree and order are inputs of nodes, reciprocals of pairs; switched off, they have no weights."""
    on, off = create_model(NAME, **SMALL), create_model(NAME, **(SMALL | {"degree": False, "node_order": False}))
    assert on.stem.linear1.in_features - off.stem.linear1.in_features == 2 * 7
    assert {name for name, _ in on.named_children()} - {name for name, _ in off.named_children()} == {
        "degree_encoder",
        "order_encoder",
    }
