"""Edge Transformer: its equations, the authors' outputs and parameter counts, and its expressivity."""

import itertools

import networkx as nx
import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from gt_models import create_model
from gt_models.batch import GraphBatch, MissingEncoding
from tests.gt_models import checks, oracles
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


@pytest.mark.parametrize("level", ["graph", "node", "pair"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_sound(variant, level):
    checks.assert_sound(lambda: build(level, **VARIANTS[variant]), graphs(), level, ("rrwp",))


@pytest.mark.parametrize("arguments", [{"pooling": "mean"}, {"pooling": "set2set"}])
def test_sound_options(arguments):
    checks.assert_sound(lambda: build(**arguments), graphs(), "graph", ("rrwp",))


def test_widths_of_the_head():
    halving, constant = (
        [m.out_features for m in build(head=head).head if hasattr(m, "out_features")]
        for head in ("halving", "constant")
    )
    assert (halving, constant) == ([4, 2, 3], [8, 8, 3])
    with pytest.raises(ValueError, match="unknown head 'wide'; known: halving, constant"):
        build(head="wide")


def test_dropout_acts_in_training_only():
    model, batch = build(dropout=0.5), checks.collate(graphs())
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))


@pytest.mark.parametrize("variant", [{"ffn_residual": True}, RELEASED])
def test_reset_parameters_draws_everything_again(variant):
    model = build(edge_dim=None, pooling="set2set", **RRWP, **variant)
    before = {name: value.clone() for name, value in model.named_parameters()}
    model.reset_parameters()
    drawn = [n for n, v in model.named_parameters() if v.dim() > 1 or n.endswith("token")]
    assert [n for n in drawn if torch.equal(model.get_parameter(n), before[n])] == []


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


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_empty_graph_one_node_isolated_nodes_disconnected(variant):
    def graph(n: int, pairs: list[tuple[int, int]]) -> GraphBatch:
        edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
        return GraphBatch(
            torch.randn(n, 4, dtype=torch.float64),
            edge_index,
            torch.tensor([0, n]),
            torch.randn(len(pairs), 3, dtype=torch.float64),
        )

    unusual = [graph(0, []), graph(1, []), graph(3, []), graph(5, [(0, 1), (1, 0), (3, 4), (4, 3)]), graph(2, [(0, 1)])]
    for level, rows in (("graph", 5), ("node", 11), ("pair", 39)):
        model = build(level, **VARIANTS[variant])
        assert model(checks.collate(unusual)).shape == (rows, 3)
        checks.assert_batch_equals_singles(model, unusual)
        assert model(checks.collate(unusual)).isfinite().all()
    assert build("node")(graph(0, [])).shape == (0, 3)


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


def test_torch_geometric_data_and_batch():
    graph = graphs((4,))[0]
    data = Data(x=graph.x, edge_index=graph.edge_index, edge_attr=graph.edge_attr, rrwp=graph.encodings["rrwp"])
    model = build(rrwp_dim=3, rrwp_hidden_dim=4).eval()
    torch.testing.assert_close(model(data), model(graph))
    torch.testing.assert_close(model(Batch.from_data_list([data, data])), model(graph).repeat(2, 1))


def test_categorical_features():
    graph = graphs((4,))[0]
    graph = GraphBatch(
        torch.randint(0, 5, (4, 2)), graph.edge_index, graph.ptr, torch.randint(0, 3, (graph.num_edges, 1))
    )
    assert build("node", in_dim=[5, 5], edge_dim=[3])(graph).shape == (4, 3)


def test_bad_arguments_and_input():
    with pytest.raises(ValueError, match="does not split into 3 heads"):
        build(num_heads=3)
    with pytest.raises(ValueError, match="cannot predict at level 'hyperedge'"):
        build("hyperedge")
    with pytest.raises(ValueError, match="known: sum, mean, set2set"):
        build(pooling="max")
    with pytest.raises(ValueError, match="must lie between"):
        build(rrwp_dim=3, rrwp_hidden_dim=8)
    with pytest.raises(ValueError, match="unknown activation"):
        build(activation="gelo")
    graph = graphs((4,))[0]
    with pytest.raises(MissingEncoding, match="3 channels and the model was built for 5: compute it wider"):
        build(rrwp_dim=5, rrwp_hidden_dim=4)(graph)
    with pytest.raises(MissingEncoding, match="needs the encoding 'rrwp'"):
        build(rrwp_dim=3, rrwp_hidden_dim=4)(checks.random_graphs((4,))[0])
    with pytest.raises(ValueError, match="no edge_attr"):
        build()(GraphBatch(graph.x, graph.edge_index, graph.ptr))
    with pytest.raises(ValueError, match="leave empty graphs out"):
        create_model("edge-transformer-brec-released")(
            GraphBatch(torch.ones(0, 1), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 0]))
        )
    with pytest.raises(ValueError, match="does not split into 3 heads"):
        create_model("edge-transformer-brec-released", num_heads=3)
