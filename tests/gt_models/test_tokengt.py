"""TokenGT: its equations and stored outputs, symmetries, identifiers, Performer, hyperedges and invalid input."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gt_models import GraphBatch
from gt_models.layers.identifiers import node_tuples
from gt_models.layers.performer import load_softmax_state
from gt_models.released.tokengt import TokenGTReleased
from gt_models.tokengt import TokenGT
from tests.gt_models import checks
from tests.gt_models.reference import tokengt as reference
from tests.gt_models.tokengt_cases import TINY, build, graphs


def transcribed(model: TokenGT, graph: GraphBatch, p: Tensor | None) -> Tensor:
    w = model.state_dict()
    if model.hyperedges:
        tuples, features = [tuple(t) for t in graph.extras["hyperedge_index"].tolist()], graph.extras["hyperedge_attr"]
    else:
        tuples, features = [tuple(t) for t in graph.edge_index.T.tolist()], graph.edge_attr
    z = reference.tokens(w, graph.x, tuples, features, p)
    specials = len(z) - graph.num_nodes - len(tuples)
    z = reference.encoder(w, z, TINY["num_heads"], tuples if model.sparse_equivariant_basis else None, specials)
    if model.level == "graph":
        z = z[:1]
    elif model.level == "node":
        z = z[specials : specials + graph.num_nodes]
    else:
        z = z[specials + graph.num_nodes :]
    return torch.stack([reference.output(w, t) for t in z])


VARIANTS = {
    "paper": {},
    "released": {"cls": TokenGTReleased},
    "performer": {"attention": "performer", "num_features": 9},
    "seb": {"attention": "performer", "sparse_equivariant_basis": True},
    "no types": {"type_identifiers": False},
    "no identifiers": {"node_identifiers": "none", "type_identifiers": False},
    "two specials": {"cls": TokenGTReleased, "ffn_dim": 7},
}


@pytest.mark.slow
@pytest.mark.parametrize("level", ["graph", "node", "edge"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_transcription(variant, level):
    model = build(level, **VARIANTS[variant]).eval()
    batch = graphs()
    expected = [
        transcribed(model, g, None if variant == "no identifiers" else g.encodings["laplacian_eigenvectors"])
        for g in batch
    ]
    torch.testing.assert_close(model(checks.collate(batch)), torch.cat(expected), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cls", [TokenGT, TokenGTReleased])
def test_initialisation(cls):
    """As in the implementation: N(0, 0.02) for matrices, embeddings and special tokens, zero biases, norms of one."""
    model = cls(in_dim=[500], edge_dim=[500], out_dim=500, hidden_dim=128, num_heads=4, num_layers=1)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert (parameter == float(name.endswith("weight"))).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        else:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.3), name
            assert abs(parameter.mean().item()) < 0.008, name


# identifiers


@pytest.mark.parametrize("kind", ["orf", "near-orf", "random"])
def test_drawn_identifiers_in_place_of_given_ones(kind):
    model, graph = build("node", node_identifiers=kind).eval(), graphs((6,))[0]
    p = model.draw_identifiers(graph)
    torch.testing.assert_close(model(graph, p), transcribed(model, graph, p), rtol=1e-10, atol=1e-10)
    order = torch.randperm(6)  # equivariant if the identifiers are permuted, too: invariant in distribution
    torch.testing.assert_close(
        model(checks.permute(graph, order), p[order]), model(graph, p)[order], rtol=1e-10, atol=1e-10
    )
    torch.manual_seed(5)
    first = model(graph)
    torch.manual_seed(5)
    assert torch.equal(model(graph), first)
    assert not torch.equal(model(graph), first)


def test_signs_flip_in_training_only_and_per_graph():
    model, batch = build(), checks.collate(graphs())
    stored = batch.encodings["laplacian_eigenvectors"]
    assert torch.equal(model.eval().draw_identifiers(batch), stored)
    ratio = model.train().draw_identifiers(batch) / stored
    assert set(ratio.round().unique().tolist()) == {-1.0, 1.0}
    for start, end in zip(batch.ptr, batch.ptr[1:], strict=False):
        assert (ratio[start:end] == ratio[start]).all()
    assert len({tuple(ratio[s].tolist()) for s in batch.ptr[:-1]}) > 1
    assert torch.equal(build(sign_flip=False).train().draw_identifiers(batch), stored)


def test_eigenvector_dropout():
    batch = checks.collate(graphs((30, 30)))
    stored = batch.encodings["laplacian_eigenvectors"]
    model = build(sign_flip=False, eigenvector_dropout=0.5)
    kept = model.train().draw_identifiers(batch) / stored
    assert set(kept.unique().round().tolist()) == {0.0, 2.0}
    assert (kept[:30] - kept[0]).abs().max() < 1e-12
    assert torch.equal(model.eval().draw_identifiers(batch), stored)


# Performer


def test_fine_tuning_starts_from_softmax_weights(tmp_path):
    softmax, performer = build().eval(), build(attention="performer", num_features=4000).eval()
    save_file(softmax.state_dict(), tmp_path / "w.safetensors")
    for parameter in performer.parameters():
        torch.nn.init.normal_(parameter)
    load_softmax_state(performer, load_file(tmp_path / "w.safetensors"))
    for name, parameter in softmax.named_parameters():
        assert torch.equal(parameter, performer.get_parameter(name))
    state = softmax.state_dict()
    with pytest.raises(ValueError, match=r"missing .*graph_token"):
        load_softmax_state(performer, {k: v for k, v in state.items() if k != "graph_token"})
    with pytest.raises(ValueError, match=r"unknown .*extra"):
        load_softmax_state(performer, {**state, "extra": torch.zeros(1)})
    with pytest.raises(ValueError, match="shapes"):
        load_softmax_state(performer, {**state, "graph_token": torch.zeros(1, 3)})
    with pytest.raises(ValueError, match="softmax attention"):
        load_softmax_state(softmax, state)


def test_large_single_graph_in_linear_memory():
    n = 3000
    edges = torch.randint(0, n, (2, 3 * n))
    graph = GraphBatch(torch.randn(n, 4), edges, torch.tensor([0, n]))
    model = TokenGT(
        in_dim=4,
        out_dim=3,
        level="node",
        hidden_dim=8,
        num_heads=1,
        num_layers=2,
        node_identifiers="near-orf",
        attention="performer",
    )
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            largest = max(largest, out.numel() if isinstance(out, Tensor) else 0)
            return out

    with Watch():
        out = model(graph)
        out.square().sum().backward()
    assert out.shape == (n, 3)
    tokens = n + 3 * n + 1
    assert (
        largest <= tokens * 64
    )  # widest: identifiers of both end nodes, and 24 channels of qkv; the square would have 12,001 per token


# hyperedges


def hypergraph(order: int) -> tuple[GraphBatch, list[GraphBatch]]:
    singles = graphs((5, 4))
    for g, rows in zip(singles, (4, 3), strict=True):
        index = torch.stack([torch.randperm(g.num_nodes)[:order] for _ in range(rows)])
        index[0, 1] = index[0, 0]  # a repeated node: another equality pattern
        g.extras = {"hyperedge_index": index, "hyperedge_attr": torch.randn(rows, 3, dtype=torch.float64)}
    batch = checks.collate(singles)
    batch.extras["hyperedge_index"] = torch.cat(
        [singles[0].extras["hyperedge_index"], singles[1].extras["hyperedge_index"] + 5]
    )
    return batch, singles


@pytest.mark.parametrize("level", ["graph", "node", "hyperedge"])
def test_hyperedges_of_order_three(level):
    batch, singles = hypergraph(3)
    model = build(level, order=3).eval()
    assert model.type_encoder.num_embeddings == 5  # bell(3)
    expected = torch.cat([transcribed(model, g, g.encodings["laplacian_eigenvectors"]) for g in singles])
    torch.testing.assert_close(model(batch), expected, rtol=1e-10, atol=1e-10)


# unusual graphs and invalid input


def test_odd_graphs():
    eigenvectors = torch.randn(6, 5, dtype=torch.float64)
    x = torch.randn(6, 4, dtype=torch.float64)
    # graph 0: one node without edges; 1: no edges; 2: a self-loop, a duplicate edge and an isolated node
    edges = torch.tensor([[3, 3, 4, 3], [3, 4, 3, 4]])
    attr = torch.randn(4, 3, dtype=torch.float64)
    batch = GraphBatch(x, edges, torch.tensor([0, 1, 3, 6]), attr, encodings={"laplacian_eigenvectors": eigenvectors})
    singles = [
        GraphBatch(
            x[:1], edges[:, :0], torch.tensor([0, 1]), attr[:0], encodings={"laplacian_eigenvectors": eigenvectors[:1]}
        ),
        GraphBatch(
            x[1:3],
            edges[:, :0],
            torch.tensor([0, 2]),
            attr[:0],
            encodings={"laplacian_eigenvectors": eigenvectors[1:3]},
        ),
        GraphBatch(
            x[3:], edges - 3, torch.tensor([0, 3]), attr, encodings={"laplacian_eigenvectors": eigenvectors[3:]}
        ),
    ]
    for level in ("graph", "node", "edge"):
        for arguments in ({}, {"attention": "performer"}, {"sparse_equivariant_basis": True}):
            model = build(level, **arguments).eval()
            expected = torch.cat(
                [
                    transcribed(model, g, g.encodings["laplacian_eigenvectors"])
                    for g in singles
                    if g.num_edges or level != "edge"
                ]
            )
            torch.testing.assert_close(model(batch), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cls", [TokenGT, TokenGTReleased])
def test_predictions_are_finer_than_bfloat16(cls):
    model, graph = build(cls=cls).float().eval(), graphs()[0]
    with torch.autocast("cpu", torch.bfloat16):
        features = model.forward_features(graph)
        out = model.forward_head(features, graph)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, model.head(features.float()), rtol=0, atol=0)


def test_stochastic_depth_drops_whole_graphs_and_rises():
    model = build("node", drop_path=0.3)
    assert [layer.drop_path.rate for layer in model.layers] == pytest.approx([0.15, 0.3])
    layer, batch = model.layers[1], checks.collate(graphs())
    packing, _ = model._pack(batch, node_tuples(batch, 2, False))
    layer.drop_path.rate = 0.9
    x = torch.randn(packing.num_tokens, 12, dtype=torch.float64)
    still = (layer.train()(x, packing) == x).all(1)
    for g in range(3):
        assert len(still[packing.graph == g].unique()) == 1


def test_dropout_falls_on_both_branches():
    batch = checks.collate(graphs())
    for silent in ("attn.out", "ffn_out"):
        model = build("node", dropout=0.5)
        layer, (packing, _) = model.layers[0].train(), model._pack(batch, node_tuples(batch, 2, False))
        x = torch.randn(packing.num_tokens, 12, dtype=torch.float64)
        for name, parameter in layer.named_parameters():
            if name.startswith(silent):
                torch.nn.init.zeros_(parameter)
        change = layer(x, packing) - x  # of the other branch
        assert 0.3 < float((change == 0).double().mean()) < 0.7
        assert float((layer.eval()(x, packing) - x == 0).double().mean()) == 0.0
