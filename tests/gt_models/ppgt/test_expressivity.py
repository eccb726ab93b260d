"""PPGT distinguishes the same graphs as GD-WL with RRWP as distance (Section 3.5, Appendix E.1)."""

import networkx as nx
import numpy as np
import pytest
import torch

from gt_models import GraphBatch, create_model
from gt_models.encodings.random_walk import rrwp

STEPS = 8


def graph(g: nx.Graph) -> GraphBatch:
    """Graphs with equal nodes and edges, and RRWP in float64."""
    edges = torch.tensor(list(nx.convert_node_labels_to_integers(g).to_directed().edges), dtype=torch.long).T.reshape(
        2, -1
    )
    n = g.number_of_nodes()
    batch = GraphBatch(torch.zeros(n, 1, dtype=torch.long), edges, torch.tensor([0, n]))
    batch.encodings = rrwp(batch, steps=STEPS, dtype=torch.float64)
    return batch


def gd_wl_colours(batches: list[GraphBatch], rounds: int = 6) -> list[tuple]:
    """Eq. 13 with d = RRWP vectors and common colours: one sorted tuple of node colours for each graph."""
    palettes: list[dict] = [{} for _ in range(rounds)]
    results = []
    for b in batches:
        n = b.num_nodes
        distance = np.round(b.encodings["rrwp"].view(n, n, -1).numpy(), 9)
        colours = [0] * n
        for palette in palettes:
            keys = [tuple(sorted((tuple(distance[v, u]), colours[u]) for u in range(n))) for v in range(n)]
            colours = [palette.setdefault(key, len(palette)) for key in keys]
        results.append(tuple(sorted(colours)))
    return results


def one_wl_colours(batches: list[GraphBatch], rounds: int = 6) -> list[tuple]:
    palettes: list[dict] = [{} for _ in range(rounds)]
    results = []
    for b in batches:
        colours = [0] * b.num_nodes
        for palette in palettes:
            keys = [
                (colours[v], tuple(sorted(colours[u] for u in b.edge_index[1][b.edge_index[0] == v].tolist())))
                for v in range(b.num_nodes)
            ]
            colours = [palette.setdefault(key, len(palette)) for key in keys]
        results.append(tuple(sorted(colours)))
    return results


def assert_separates_as_the_oracle(batches: list[GraphBatch], **settings) -> list[tuple]:
    """Check that outputs of a random model differ for exactly the pairs whose GD-WL colours differ.

    Returns:
        The colours.
    """
    torch.manual_seed(5)
    model = create_model(
        settings.pop("name", "ppgt"),
        in_dim=[1],
        out_dim=8,
        edge_vector=True,
        hidden_dim=16,
        num_layers=3,
        num_heads=4,
        rrwp_dim=STEPS + 1,
        stem_dim=32,
        **settings,
    )
    model.double().eval()
    for parameter in model.parameters():  # with the initial 0.02, differences would be smaller than rounding
        torch.nn.init.normal_(parameter, std=0.5 if parameter.dim() == 1 else parameter.size(-1) ** -0.5)
    with torch.no_grad():
        outputs = torch.cat([model(b) for b in batches])
    outputs = outputs / outputs.abs().max()
    colours = gd_wl_colours(batches)
    for i in range(len(batches)):
        for j in range(i):
            gap = (outputs[i] - outputs[j]).abs().max().item()
            assert (gap > 1e-6) if colours[i] != colours[j] else (gap < 1e-10), (i, j, gap, colours[i] == colours[j])
    return colours


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"name": "ppgt-released"}], ids=["paper", "released"])
def test_one_wl_twins_are_separated(settings):
    decalin = nx.Graph([(i, (i + 1) % 10) for i in range(10)] + [(0, 5)])
    bicyclopentyl = nx.Graph(
        [(i, (i + 1) % 5) for i in range(5)] + [(5 + i, 5 + (i + 1) % 5) for i in range(5)] + [(0, 5)]
    )
    pairs = [(nx.cycle_graph(6), nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))), (decalin, bicyclopentyl)]
    for pair in pairs:
        batches = [graph(g) for g in pair]
        assert len(set(one_wl_colours(batches))) == 1
        assert len(set(assert_separates_as_the_oracle(batches, **settings))) == 2


def test_circular_skip_links_are_separated(mirror):
    """One graph of each of the 10 classes of the stored CSL file, all 1-WL equivalent."""
    with np.load(mirror / "csl" / "csl_plain.npz") as data:
        ends = np.cumsum(data["num_edges"].astype(int))
        edges, classes = data["edge_index"].astype(np.int64), data["y"]
        chosen = [int(np.flatnonzero(classes == c)[0]) for c in range(10)]
        graphs = [edges[:, ends[i] - int(data["num_edges"][i]) : ends[i]] for i in chosen]
    batches = [graph(nx.Graph(list(map(tuple, (e - e.min()).T.tolist())))) for e in graphs]
    assert {b.num_nodes for b in batches} == {41}
    assert len(set(one_wl_colours(batches[:3], rounds=3))) == 1
    assert len(set(assert_separates_as_the_oracle(batches))) == 10


def test_strongly_regular_graphs_are_not_separated(mirror):
    """The 15 graphs of SR(25, 12, 5, 6) and the two of SR(16, 6, 2, 2) are beyond GD-WL."""
    lines = (mirror / "sr25" / "sr251256.g6").read_bytes().split()
    batches = [graph(nx.from_graph6_bytes(line)) for line in lines]
    assert len(batches) == 15
    assert len(set(assert_separates_as_the_oracle(batches[:5]))) == 1
    rook = nx.line_graph(nx.complete_bipartite_graph(4, 4))
    steps = [(0, 1), (1, 0), (1, 1)]
    shrikhande = nx.Graph([((a, b), ((a + x) % 4, (b + y) % 4)) for a in range(4) for b in range(4) for x, y in steps])
    assert not nx.is_isomorphic(rook, shrikhande)
    assert len(set(assert_separates_as_the_oracle([graph(rook), graph(shrikhande)]))) == 1


def test_random_graphs_follow_the_oracle():
    rng = np.random.default_rng(0)
    graphs = [nx.gnp_random_graph(5, 0.5, seed=int(s)) for s in rng.integers(0, 1000, 8)]
    assert_separates_as_the_oracle([graph(g) for g in [*graphs, nx.relabel_nodes(graphs[0], {0: 4, 4: 0})]])
