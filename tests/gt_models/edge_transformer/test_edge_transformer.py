"""Edge Transformer: its equations, the authors' outputs and parameter counts, and its expressivity."""

import itertools

import networkx as nx
import pytest
import torch
from torch import nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import oracles
from tests.gt_models.edge_transformer.cases import (
    RELEASED,
    build,
    directed_graph,
    embeddings,
    graphs,
    redraw,
    tells_apart,
)
from tests.gt_models.reference import edge_transformer as reference

RRWP = {"rrwp_dim": 3, "rrwp_hidden_dim": 4}
VARIANTS = {"paper": {}, "released": RELEASED, "paper, rrwp": RRWP, "released, rrwp": RELEASED | RRWP}


def literal(model: nn.Module, graph: GraphBatch, level: str, arguments: dict, act) -> torch.Tensor:
    """The output of the whole model for one graph, by the reference."""
    w, n = model.state_dict(), graph.num_nodes
    authors = "name" in arguments
    features = reference.linear(graph.x, w, "tokens.node_encoder.linear")
    if graph.edge_attr is not None and "tokens.edge_encoder.linear.weight" in w:
        values = reference.linear(graph.edge_attr, w, "tokens.edge_encoder.linear")
    else:
        values = [w["tokens.edge_token"]] * graph.num_edges
    edges = {(int(a), int(b)): value for (a, b), value in zip(graph.edge_index.T, values, strict=True)}
    rrwp = graph.encodings["rrwp"].view(n, n, -1) if "rrwp_dim" in arguments else None
    x = reference.tokens(features, edges, rrwp, reference.part(w, "tokens."), act, authors)
    for i in range(len(model.layers)):
        x = reference.layer(x, reference.part(w, f"layers.{i}."), 2, act, authors)
    x = x.flatten(0, 1) if level == "pair" else reference.readout(x, reference.part(w, "readout."), act, authors)
    if level == "graph":
        how = arguments.get("pooling", "sum")
        x = {
            "sum": lambda: x.sum(0),
            "mean": lambda: x.mean(0),
            "set2set": lambda: reference.set2set(x, reference.part(w, "pooling."), 6),
        }[how]()
        x = x[None]
    for i in (0, 3):
        x = act(reference.linear(x, w, f"head.{i}"))
    return reference.linear(x, w, "head.6")


@pytest.mark.parametrize("level", ["graph", "node", "pair"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_the_equations(variant, level):
    model = redraw(build(level, **VARIANTS[variant])).eval()
    for graph in (*graphs((4, 2)), directed_graph([(0, 1), (1, 2), (2, 1), (3, 0), (2, 2)])):
        torch.testing.assert_close(
            model(graph), literal(model, graph, level, VARIANTS[variant], reference.gelu), rtol=1e-10, atol=1e-10
        )


@pytest.mark.parametrize(
    "arguments",
    [
        {"pooling": "mean"},
        {"pooling": "set2set", "head": "constant"},
        {"edge_dim": None},
        RELEASED | {"edge_dim": None},
    ],
)
def test_options_equal_the_equations(arguments):
    model = redraw(build(activation="relu", **arguments)).eval()
    graph = graphs((4,))[0]
    torch.testing.assert_close(
        model(graph), literal(model, graph, "graph", arguments, reference.relu), rtol=1e-10, atol=1e-10
    )


def test_widths_of_the_head():
    halving, constant = (
        [m.out_features for m in build(head=head).head if hasattr(m, "out_features")]
        for head in ("halving", "constant")
    )
    assert (halving, constant) == ([4, 2, 3], [8, 8, 3])
    with pytest.raises(ValueError, match="unknown head 'wide'; known: halving, constant"):
        build(head="wide")


# -- expressivity


def model_for_structure(**arguments) -> nn.Module:
    return build(in_dim=1, edge_dim=None, hidden_dim=16, num_heads=4, num_layers=3, **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{}, {"ffn_residual": True}, RELEASED])
def test_separates_what_2_fwl_separates(arguments):
    pairs = [oracles.twins(), (oracles.skip_cycle(11, 2), oracles.skip_cycle(11, 3)), oracles.rook_and_shrikhande()]
    for pair in pairs:
        assert not oracles.separates(oracles.one_wl(pair))
        assert tells_apart(model_for_structure(**arguments), pair) == oracles.separates(oracles.two_fwl(pair))


@pytest.mark.slow
def test_separates_all_skips_of_csl():
    skips = [oracles.skip_cycle(41, skip) for skip in (2, 3, 4, 5, 6, 9, 11, 12, 13, 16)]
    model = build(in_dim=1, edge_dim=None, hidden_dim=16, num_heads=4, num_layers=4)
    with torch.no_grad():  # sharper attention than in a new model, which is almost a mean
        for layer in model.layers:
            layer.attention.projections.weight.mul_(3)
            layer.attention.out.weight.mul_(3)
    out = embeddings(model, skips)
    gaps = torch.stack([(out[a] - out[b]).abs().max() for a, b in itertools.combinations(range(10), 2)])
    assert gaps.min() / out.abs().max() > 1e-9


@pytest.mark.slow
def test_agrees_with_2_fwl_on_all_pairs_of_small_graphs():
    small = [oracles.from_networkx(g) for g in nx.graph_atlas_g() if g.number_of_nodes() == 5]
    out = embeddings(model_for_structure(), small)
    gaps = torch.stack([(out[a] - out[b]).abs().max() for a, b in itertools.combinations(range(len(small)), 2)])
    assert gaps.min() / out.abs().max() > 1e-7  # 2-FWL distinguishes all of them: tests/gt_models/test_oracles.py


def test_does_not_separate_sr25(mirror):
    regular = [oracles.from_networkx(g) for g in nx.read_graph6(mirror / "sr25" / "sr251256.g6")]
    assert len(regular) == 15
    assert not oracles.separates(oracles.two_fwl(regular[:2]))
    for model in (
        model_for_structure(),
        create_model("edge-transformer-brec-released", output_norm=False, num_layers=2).double(),
    ):
        out = embeddings(model, regular)
        assert (out - out[0]).abs().max() / out.abs().max() < 1e-9


# -- unusual and invalid input


def test_self_loops_and_duplicate_edges():
    x, attr = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 3, dtype=torch.float64)
    plain = GraphBatch(x, torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 3]), attr[:2])
    model = build("pair").eval()
    # the feature of a self-loop is used in its diagonal pair
    loop = GraphBatch(x, torch.tensor([[0, 1, 2], [1, 0, 2]]), torch.tensor([0, 3]), attr)
    tokens = model.tokens(loop) - model.tokens(plain)
    assert tokens.abs().amax(1).nonzero().flatten().tolist() == [8]
    # features of parallel edges add up
    twice = GraphBatch(x, torch.tensor([[0, 1, 0], [1, 0, 1]]), torch.tensor([0, 3]), attr)
    encoded = model.tokens.edge_encoder(attr)
    merged = GraphBatch(x, plain.edge_index, plain.ptr, attr[:2])
    model.tokens.edge_encoder.forward = lambda a: (
        encoded[: len(a)] if len(a) == 3 else torch.stack([encoded[0] + encoded[2], encoded[1]])
    )
    torch.testing.assert_close(model(twice), model(merged))
    # without features only the presence of an edge counts, not how often it is stored
    bare = build("pair", edge_dim=None).eval()
    assert torch.equal(bare(twice), bare(plain))
    assert not torch.equal(bare(loop), bare(plain))
