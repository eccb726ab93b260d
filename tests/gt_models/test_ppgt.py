"""PPGT: its equations in loops, stored numbers of the authors' implementation, printed counts, symmetries, forms, bad input."""

import math

import pytest
import torch

from gt_models import GraphBatch, MissingEncoding, create_model
from gt_models.kernels import use
from gt_models.nn.norms import AdaRMSNorm
from gt_models.nn.pe_stem import sinusoids
from tests.gt_models.checks import assert_gradients_reach, assert_sound, collate, random_graphs
from tests.gt_models.reference import ppgt as reference

SMALL = {
    "in_dim": 4,
    "out_dim": 2,
    "edge_dim": 3,
    "hidden_dim": 8,
    "num_layers": 2,
    "num_heads": 2,
    "rrwp_dim": 5,
    "stem_dim": 6,
    "num_stem_ffn": 1,
}


def small(**changes):
    """A small model in float64 whose every weight matters (biases, norms and gates redrawn)."""
    model = create_model("ppgt", **(SMALL | changes)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5 if parameter.dim() == 1 else 0.7 * parameter.size(-1) ** -0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_()
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 2.0)
    return model.eval()


def graphs(sizes=(4, 1, 5), **kinds):
    return random_graphs(sizes, pair_encodings=(("rrwp", 6),), **kinds)


def directed_graph() -> GraphBatch:
    """Edges in one direction, or with other features in the other, a self-loop, and one edge twice."""
    edges = torch.tensor([[0, 1, 2, 3, 2, 0], [1, 2, 1, 0, 2, 1]])
    x, attr, rrwp = (torch.randn(*shape, dtype=torch.float64) for shape in ((4, 4), (6, 3), (16, 6)))
    return GraphBatch(x, edges, torch.tensor([0, 4]), attr, encodings={"rrwp": rrwp})


VARIANTS = [
    {},
    {"attention": "sdp", "norm": "rms", "urpe": "none", "num_frequencies": 0},
    {"norm": "batch", "urpe": "one-plus", "scale_queries": False},
    {"norm": "layer"},
    {"urpe": "one-plus", "attention": "sdp"},
    {"urpe": "none", "scale_queries": False},
    {"degree": "neighbours", "query_end": "target"},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda c: "-".join(str(v) for v in c.values()) or "paper")
@pytest.mark.parametrize("level", ["graph", "node"])
def test_equations_in_loops(changes, level):
    model = small(level=level, **changes)
    settings = {"num_layers": 2, "num_heads": 2, "num_frequencies": 3, "attention": "sl2", "scale_queries": True, "urpe": "linear"}
    settings |= {"norm": "adarms", "num_ffn": 1} | changes
    w, singles = model.state_dict(), [*graphs(), directed_graph()]
    expected = []
    for g in singles:
        n = g.num_nodes
        edges = [tuple(e) for e in g.edge_index.T.tolist()]
        h = reference.ppgt_nodes(w, g.x, edges, g.edge_attr, g.encodings["rrwp"].view(n, n, -1)[..., :5], settings)
        expected += [reference.head(w, v, 3) for v in ([sum(h)] if level == "graph" else h)]
    with torch.no_grad():
        out = model(collate(singles))
    torch.testing.assert_close(out, torch.stack(expected), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "changes",
    [
        {"position_dim": 2, "target_marker": True},
        {"edge_vector": True, "edge_dim": None, "node_order": False, "pair_degree": False},
        {"edge_vector": True, "node_degree": False, "pair_order": False, "pair_dim": 4},
        {"stem_norm": True, "layer_scale": 0.5, "pooling": "mean"},
        {"stem_layer_scale": 0.5, "num_stem_ffn": 2},
        {"stem_norm": True, "norm": "layer", "hidden_dim": 9, "num_heads": 3, "head": "constant", "head_layers": 1},
    ],
    ids=lambda c: "-".join(c),
)
def test_inputs_and_stems_in_loops(changes):
    """What joins nodes and pairs, and the norms and scales around, on directed graphs."""
    singles = random_graphs((4, 1), pair_encodings=(("rrwp", 6),), node_encodings=(("position", 2),))
    rng = torch.Generator().manual_seed(2)
    singles.append(directed_graph())
    singles[-1].encodings["position"] = torch.randn(4, 2, dtype=torch.float64, generator=rng)
    for number, g in enumerate(singles):
        g.encodings["target"] = (torch.arange(g.num_nodes) == number % g.num_nodes).double()[:, None]
    model = small(**changes)
    s = {"num_layers": 2, "num_heads": 2, "num_frequencies": 3, "attention": "sl2", "scale_queries": True, "urpe": "linear"}
    s |= {"norm": "adarms", "num_ffn": changes.get("num_stem_ffn", 1)} | changes
    w, expected = model.state_dict(), []
    for number, g in enumerate(singles):
        n = g.num_nodes
        h = reference.ppgt_nodes(
            w, g.x, [tuple(e) for e in g.edge_index.T.tolist()], g.edge_attr, g.encodings["rrwp"].view(n, n, -1)[..., :5], s,
            g.encodings["position"] if "position_dim" in changes else None, number % n if "target_marker" in changes else None,
        )  # fmt: skip
        expected.append(reference.head(w, sum(h) / (n if changes.get("pooling") == "mean" else 1), changes.get("head_layers", 3)))
    torch.testing.assert_close(model(collate(singles)), torch.stack(expected), rtol=1e-10, atol=1e-10)


def test_class_attention_in_loops():
    model = small(pooling="class-attention", norm="rms")
    settings = {"num_layers": 2, "num_heads": 2, "num_frequencies": 3, "attention": "sl2", "scale_queries": True, "urpe": "linear"}
    settings |= {"norm": "rms", "num_ffn": 1}
    w, singles, expected = model.state_dict(), graphs((4, 2)), []
    for g in singles:
        edges = [tuple(e) for e in g.edge_index.T.tolist()]
        rrwp = g.encodings["rrwp"].view(g.num_nodes, g.num_nodes, -1)[..., :5]
        h = reference.ppgt_nodes(w, g.x, edges, g.edge_attr, rrwp, settings)
        expected.append(reference.head(w, reference.class_attention(w, h, settings, 2), 3))
    torch.testing.assert_close(model(collate(singles)), torch.stack(expected), rtol=1e-10, atol=1e-10)


def test_stored_numbers_of_the_authors_implementation(parity):
    case = parity("ppgt_model")
    model = create_model(
        "ppgt", in_dim=[6], out_dim=1, edge_dim=[4], hidden_dim=8, num_layers=2, num_heads=2, rrwp_dim=5, stem_dim=16, num_frequencies=2,
        scale_queries=False, urpe="one-plus", head="constant",
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
    rrwp[start + (query - ptr[case["in.batch"][query]]) * size + key - ptr[case["in.batch"][key]]] = case["in.rrwp_attr"]
    batch = GraphBatch(case["in.x"][:, None], case["in.edge_index"], ptr, case["in.edge_attr"][:, None], encodings={"rrwp": rrwp})
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
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-10, atol=1e-10, msg=lambda m, ours=ours: f"{ours}: {m}")


def _last_norm(case, w):
    x, a, b = case["out.x_layer1"], w["post.alpha"], w["post.beta"]
    root = lambda u: (u.square().mean(-1, keepdim=True) + 1e-6).sqrt()  # noqa: E731
    return x / root(x) * root(a * x + b)


def _qkv(q, kv):
    return torch.cat([q, kv])


def _parity_names() -> dict[str, str]:
    """Our state dict's names -> theirs (queries, keys and values apart)."""
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
            names[f"layers.{i}.linear1.{end}"], names[f"layers.{i}.linear2.{end}"] = f"layers.{i}.FFN.0.{end}", f"layers.{i}.FFN.4.{end}"
        for i in range(3):
            names[f"head.{i}.{end}"] = f"head.{3 * i}.{end}"
    for end in ("alpha", "beta"):
        names |= {f"norm.{end}": f"post.{end}", f"stem.norm.{end}": f"edge_pe.1.post_backbone_norm.{end}"}
        for i in range(2):
            names[f"stem.blocks.{i}.norm.{end}"] = f"edge_pe.1.mlp.{i}.pre_mlp_norm.{end}"
            names[f"layers.{i}.norm1.{end}"], names[f"layers.{i}.norm2.{end}"] = f"layers.{i}.norm1_h.{end}", f"layers.{i}.norm2_h.{end}"
    return names


def _parity_columns(channels: int, frequencies: int) -> list[int]:
    """Their columns [raw, then per channel and frequency sin, cos] in our order [raw, then per frequency all sin, all cos]."""
    order = list(range(channels))
    for f in range(frequencies):
        for part in range(2):
            order += [channels + c * 2 * frequencies + 2 * f + part for c in range(channels)]
    return order


ZINC = {"in_dim": [21], "edge_dim": [4], "out_dim": 1, "hidden_dim": 64, "num_layers": 12, "num_heads": 8, "rrwp_dim": 25, "stem_dim": 128}
BREC = {
    "in_dim": [1], "out_dim": 16, "hidden_dim": 96, "num_layers": 6, "num_heads": 16, "rrwp_dim": 33, "stem_dim": 192,
    "num_stem_ffn": 4, "num_frequencies": 15, "out_norm": True, "head": "constant",
}  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "count", "printed"),
    [(ZINC | {"head": "constant"}, 493_185, None), (ZINC, 487_425, 487), (BREC, 874_032, 874)],
    ids=["zinc-constant", "zinc-halving", "brec"],
)
def test_parameter_counts_printed(settings, count, printed):
    """Tables 7 and 10. The released head keeps its width; ZINC's printed count is that of a halving head, BREC's of a constant one."""
    assert sum(p.numel() for p in create_model("ppgt", **settings).parameters()) == count
    assert printed is None or round(count / 1000) == printed


@pytest.mark.parametrize(
    "changes",
    [
        *VARIANTS,
        *({"level": "node"} | v for v in VARIANTS[:5]),
        {"pooling": "mean", "layer_scale": 0.1, "stem_norm": True, "head": "constant"},
        {"pooling": "class-attention"},
        {"stem_layer_scale": 0.1, "degree": "neighbours", "query_end": "target", "stem_chunk": 16},
        {"pair_dim": 4, "edge_dim": None, "edge_vector": True, "node_order": False, "pair_degree": False},
        {"position_dim": 2, "target_marker": True, "stem_chunk": 16},
    ],
    ids=lambda c: "-".join(str(v) for v in c.values()) or "paper",
)
def test_sound(changes):
    settings = SMALL | {"level": "graph"} | changes
    data = random_graphs((5, 3, 6), pair_encodings=(("rrwp", 5),), node_encodings=(("position", 2), ("target", 1)))
    # without a gate the bias of theta adds the same number to all keys of a query, which softmax takes away: its gradient is rounding alone
    shifts = tuple(f"layers.{i}.attention.pair_linear.bias" for i in range(settings["num_layers"]))
    except_for = shifts if settings.get("urpe") == "none" else ()
    assert_sound(lambda: create_model("ppgt", **settings).double(), data, settings["level"], ("rrwp",), except_for)


def test_batch_norms_of_the_head():
    """Pooled and output batch norm: gradients reach (a batch in training), singles agree in evaluation."""
    model = create_model("ppgt", **(SMALL | {"pool_norm": True, "out_norm": True, "head": "constant"})).double()
    data = graphs((4, 3, 5))
    assert_gradients_reach(model, collate(data), except_for=("head.2.bias",))  # batch norm takes the last bias away
    model.eval()
    torch.testing.assert_close(model(collate(data)), torch.cat([model(g) for g in data]), rtol=1e-10, atol=1e-10)


def _loss_and_grads(model, batch):
    model.zero_grad()
    out = model(batch)
    (out * torch.arange(out.numel(), dtype=out.dtype).view_as(out).cos()).sum().backward()
    return [out.detach(), *[p.grad.clone() for p in model.parameters() if p.grad is not None]]


def test_recomputed_chunks_change_nothing():
    whole, chunked = small(stem_chunk=None), small(stem_chunk=7)
    chunked.load_state_dict(whole.state_dict())
    batch = collate(graphs((4, 1, 6)))
    for a, b in zip(_loss_and_grads(whole, batch), _loss_and_grads(chunked, batch), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("changes", [{}, {"attention": "sdp", "urpe": "none"}, {"attn_dropout": 0.3, "hidden_dim": 40}], ids=str)
def test_forms_of_attention_change_nothing(changes):
    """In training, dropout drawn alike."""
    model, results = small(level="node", **changes).train(), []
    batch = collate(graphs((4, 1, 6, 19)))
    for form in ("reference", "numba"):
        torch.manual_seed(3)
        with use(gated_attention=form):
            results.append(_loss_and_grads(model, batch))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_adarms_gradient_and_limits():
    norm = AdaRMSNorm(5).double()
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(norm(x), x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * math.sqrt(1 + 1e-6))  # as RMSNorm at first
    with torch.no_grad():
        norm.alpha.fill_(1.0), norm.beta.zero_()
    torch.testing.assert_close(norm(x), x)  # the identity it can become
    with torch.no_grad():
        norm.alpha.normal_(), norm.beta.normal_()
    assert torch.autograd.gradcheck(
        lambda x, a, b: torch.func.functional_call(norm, {"alpha": a, "beta": b}, x), (x, norm.alpha, norm.beta)
    )
    zero = torch.zeros(1, 5, dtype=torch.float64, requires_grad=True)
    norm(zero).sum().backward()
    assert zero.grad.isfinite().all()
    assert norm.float()(torch.randn(3, 5, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_sinusoids():
    p = torch.rand(3, 2, dtype=torch.float64)
    expected = [p, (math.pi * p).sin(), (math.pi * p).cos(), (2 * math.pi * p).sin(), (2 * math.pi * p).cos()]
    torch.testing.assert_close(sinusoids(p, 2), torch.cat(expected, 1))


def test_initialisation():
    """Appendix B.2."""
    model = create_model("ppgt", **ZINC)
    for linear in (model.layers[0].attention.qkv, model.layers[3].linear1, model.head[0], model.layers[5].attention.pair_linear):
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert linear.bias.abs().max() == 0
    for linear, a in [
        (model.stem.linear1, 0.0),
        (model.stem.linear2, 1.0),
        (model.stem.blocks[0].linear1, 0.0),
        (model.diagonal_encoder, 1.0),
    ]:
        bound = math.sqrt(6 / (1 + a * a) / linear.in_features)
        assert bound * 0.98 < linear.weight.abs().max().item() <= bound
    assert model.node_encoder.embedding.weight.std().item() == pytest.approx(1.0, rel=0.1)
    assert model.norm.alpha.abs().max() == 0
    assert (model.norm.beta == 1).all()


def test_initialisation_of_the_authors_implementation():
    """What its stems leave at the backbone's start, and the scales and learnt vectors of Node2Subgraph."""
    released = {"stem_ffn_init": "truncated", "stem_layer_scale": 1e-5, "layer_scale": 1e-4, "target_marker": True, "edge_vector": True}
    model = create_model("ppgt", **(ZINC | released | {"pooling": "class-attention", "hidden_dim": 256, "pair_dim": 64}))
    small = [linear.weight for block in model.stem.blocks for linear in (block.linear1, block.linear2)]
    small += [model.class_attention.token, model.target_vector, model.class_attention.order1.weight, model.class_attention.order2.weight]
    for weight in small:
        assert weight.std().item() == pytest.approx(0.02, rel=0.15)
    assert model.stem.linear1.weight.std().item() == pytest.approx((2 / model.stem.linear1.in_features) ** 0.5, rel=0.1)
    assert model.edge_vector.std().item() == pytest.approx(1.0, rel=0.3)
    assert all((block.scale == 1e-5).all() for block in model.stem.blocks)
    assert all((layer.residual1.scale == 1e-4).all() for layer in (*model.layers, *model.class_attention.layers))
    model.stem.blocks[0].scale.data.fill_(3.0)
    model.reset_parameters()
    assert (model.stem.blocks[0].scale == 1e-5).all()


def test_stochastic_depth_of_the_stem_is_drawn_for_each_block():
    """Each branch stays (doubled) or goes for a graph as a whole, whatever the other block's does; in chunks as at once."""
    model = small(num_stem_ffn=2, stem_drop_path=0.5, stem_chunk=None).train()
    batch, asked = collate(graphs((3, 4) * 40)), []
    rows = model.stem.rows
    model.stem.rows = lambda raw, edge, keep: asked.append(keep) or rows(raw, edge, keep)
    torch.manual_seed(0)
    whole = model(batch)
    keep = asked[0]
    first = keep[batch.pair_ptr[:-1]]  # [graphs, 2]
    torch.testing.assert_close(keep, first.repeat_interleave(batch.sizes**2, 0))
    assert sorted(map(tuple, first.unique(dim=0).tolist())) == [(0, 0), (0, 2), (2, 0), (2, 2)]
    model.stem.chunk = 100
    torch.manual_seed(0)
    torch.testing.assert_close(model(batch), whole, rtol=1e-10, atol=1e-10)
    assert len(asked) > 2


def test_stochastic_depth_is_per_graph_and_alike_in_every_layer():
    model = create_model("ppgt", **(SMALL | {"drop_path": 0.25, "num_layers": 3}))
    assert {r.drop_path.rate for layer in model.layers for r in (layer.residual1, layer.residual2)} == {0.25}
    model.train()
    residual = model.layers[0].residual1
    out = residual(torch.zeros(200, 8), torch.ones(200, 8), torch.arange(40).repeat_interleave(5), 40).view(40, 40)
    assert (out == out[:, :1]).all()  # a graph's branch stays or goes as a whole
    torch.testing.assert_close(out[:, 0].unique(), torch.tensor([0.0, 1 / 0.75]))


def test_scales_start_where_they_are_asked_to():
    model = create_model("ppgt", **(SMALL | {"layer_scale": 1e-5}))
    scales = [r.scale for layer in model.layers for r in (layer.residual1, layer.residual2)]
    assert all(torch.equal(scale, torch.full((8,), 1e-5)) for scale in scales)


def test_node_masks_draw_in_training_only():
    model = create_model("ppgt", **(SMALL | {"node_mask_rate": 0.5})).double()
    batch = collate(graphs((6, 6)))
    model.train()
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))


def test_order_and_degree_reach_their_places():
    """Log degree and order join nodes, reciprocals join pairs; switched off they leave no weights."""
    off = create_model("ppgt", **(SMALL | {"node_degree": False, "node_order": False, "pair_degree": False, "pair_order": False}))
    on = create_model("ppgt", **SMALL)
    assert on.stem.linear1.in_features - off.stem.linear1.in_features == 3 * 7
    assert off.degree_encoder is None
    assert off.order_encoder is None


def test_odd_graphs_work():
    """One node, no edges, isolated nodes (1/degree is 1), self-loops, edges stored twice, two components: finite numbers and gradients."""
    one = random_graphs((1,), pair_encodings=(("rrwp", 5),))[0]
    bare = random_graphs((3,), density=0.0, pair_encodings=(("rrwp", 5),))[0]
    rng = torch.Generator().manual_seed(1)
    loops = torch.tensor([[0, 0, 0, 1, 2, 3], [0, 1, 1, 0, 3, 2]])  # a self-loop, (0, 1) twice, two components
    x, attr, rrwp = (torch.randn(*shape, dtype=torch.float64, generator=rng) for shape in ((4, 4), (6, 3), (16, 5)))
    odd = GraphBatch(x, loops, torch.tensor([0, 4]), attr, encodings={"rrwp": rrwp})
    for result in _loss_and_grads(small(level="node"), collate([one, bare, odd])):
        assert result.isfinite().all()
    # edges stored twice add up
    model = small()
    merged = GraphBatch(
        odd.x, loops[:, [0, 1, 3, 4, 5]], odd.ptr, torch.stack([odd.edge_attr[0], odd.edge_attr[1] + odd.edge_attr[2], *odd.edge_attr[3:]])
    )
    merged.encodings = odd.encodings
    first, second = (model.encode_edges(g, None) for g in (odd, merged))
    torch.testing.assert_close(first[1] + first[2] - model.edge_encoder.linear.bias, second[1])


def test_an_empty_graph_among_others_disturbs_nobody():
    model = small()
    data = graphs((4, 3))
    both = collate(data)
    with_empty = GraphBatch(both.x, both.edge_index, torch.tensor([0, 4, 4, 7]), both.edge_attr, encodings=both.encodings)
    torch.testing.assert_close(model(with_empty)[[0, 2]], model(both), rtol=1e-12, atol=1e-12)


def test_bad_input_says_what_to_do():
    with pytest.raises(ValueError, match="num_heads=3 does not divide hidden_dim=8"):
        create_model("ppgt", **(SMALL | {"num_heads": 3}))
    with pytest.raises(ValueError, match="unknown urpe 'x'; known: linear, one-plus, none"):
        create_model("ppgt", **(SMALL | {"urpe": "x"}))
    with pytest.raises(ValueError, match="cannot halve 2 times"):
        create_model("ppgt", **(SMALL | {"hidden_dim": 2}))
    with pytest.raises(ValueError, match="unknown norm"):
        create_model("ppgt", **(SMALL | {"norm": "none"}))
    model = small()
    with pytest.raises(MissingEncoding, match="'rrwp'"):
        model(random_graphs((3,))[0])
    with pytest.raises(MissingEncoding, match="4 channels and the model was built for 5"):
        model(random_graphs((3,), pair_encodings=(("rrwp", 4),))[0])
    with pytest.raises(ValueError, match="no nodes"):
        model(
            GraphBatch(torch.zeros(0, 4), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 0]), encodings={"rrwp": torch.zeros(0, 5)})
        )
    graph = graphs((3,))[0]
    with pytest.raises(ValueError, match="no edge_attr"):
        model(GraphBatch(graph.x, graph.edge_index, graph.ptr, encodings=graph.encodings))
    with pytest.raises(ValueError, match="one per ordered pair"):
        model(GraphBatch(graph.x, graph.edge_index, graph.ptr, graph.edge_attr, encodings={"rrwp": torch.zeros(8, 5)}))


def test_torch_geometric_data_and_safetensors(tmp_path):
    from safetensors.torch import load_file, save_file
    from torch_geometric.data import Batch, Data

    model, data = small(), graphs((4, 3))
    listed = [Data(x=g.x, edge_index=g.edge_index, edge_attr=g.edge_attr, rrwp=g.encodings["rrwp"]) for g in data]
    expected = model(collate(data))
    torch.testing.assert_close(model(Batch.from_data_list(listed)), expected, rtol=1e-12, atol=1e-12)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    again = small()
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(again(collate(data)), expected)


@pytest.mark.parametrize("urpe", ["linear", "none"])
def test_bf16_autocast_stays_close(urpe):
    model = create_model("ppgt", **(SMALL | {"urpe": urpe}))
    batch = collate(random_graphs((5, 3), dtype=torch.float32, pair_encodings=(("rrwp", 5),)))
    full = model(batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = model(batch)
        half.float().sum().backward()
    torch.testing.assert_close(half.float(), full, rtol=0.1, atol=0.02)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_compiles():
    """torch.compile gives the same numbers and gradients (the compiler's own form of attention and stem)."""
    model, batch = small(num_layers=1, num_stem_ffn=0), collate(graphs((4, 3)))
    expected = _loss_and_grads(model, batch)
    compiled = torch.compile(model, backend="aot_eager")
    model.zero_grad()
    out = compiled(batch)
    (out * torch.arange(out.numel(), dtype=out.dtype).view_as(out).cos()).sum().backward()
    for a, b in zip(expected, [out.detach(), *[p.grad for p in model.parameters()]], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    torch._dynamo.reset()
