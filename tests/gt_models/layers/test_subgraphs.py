"""Node2Subgraph compared with networkx: nodes by hop, the size limit, induced edges with features, random draws."""

import networkx as nx
import numpy as np
import pytest
import torch

from gt_models import GraphBatch
from gt_models.layers.subgraphs import Subgraphs


def large(n=60, m=90, seed=0):
    rng = np.random.default_rng(seed)
    edges = torch.from_numpy(rng.integers(0, n, (2, m)))  # directed, with self-loops and repeats
    attr = torch.arange(m, dtype=torch.float64)[:, None]
    return GraphBatch(
        torch.arange(n, dtype=torch.float64)[:, None], edges, torch.tensor([0, n]), attr, y=torch.arange(n) * 10
    )


@pytest.mark.parametrize(("hops", "limit"), [(0, 5), (1, 100), (3, 100), (4, 12), (15, 7), (2, 1)])
def test_members_and_edges(hops, limit):
    graph, targets = large(), torch.tensor([3, 17, 3, 59, 0])
    out = Subgraphs(graph, hops, limit).around(targets)
    undirected = nx.Graph()
    undirected.add_nodes_from(range(60))
    undirected.add_edges_from(graph.edge_index.T.tolist())
    assert out.num_graphs == 5
    assert out.y.tolist() == [30, 170, 30, 590, 0]
    for b, centre in enumerate(targets.tolist()):
        part = slice(int(out.ptr[b]), int(out.ptr[b + 1]))
        nodes = out.extras["nodes"][part].tolist()
        assert nodes[0] == centre
        assert len(set(nodes)) == len(nodes) <= limit
        assert out.x[part, 0].tolist() == nodes
        assert out.encodings["target"][part, 0].tolist() == [1.0] + [0.0] * (len(nodes) - 1)
        distance = nx.single_source_shortest_path_length(undirected, centre, cutoff=hops)
        within = {d: {v for v, e in distance.items() if e <= d} for d in range(hops + 1)}
        whole = max(d for d in within if len(within[d]) <= limit)
        assert within[whole] <= set(nodes)
        if len(within[hops]) <= limit:
            assert set(nodes) == within[hops]
        else:  # nodes of the next hop are added up to the limit
            assert len(nodes) == limit
            assert set(nodes) <= within[whole + 1]
        mine = (out.edge_index[0] >= part.start) & (out.edge_index[0] < part.stop)
        got = sorted(
            (nodes[s - part.start], nodes[t - part.start], a)
            for s, t, a in zip(*out.edge_index[:, mine].tolist(), out.edge_attr[mine, 0].tolist(), strict=True)
        )
        expected = sorted(
            (s, t, float(e)) for e, (s, t) in enumerate(graph.edge_index.T.tolist()) if s in nodes and t in nodes
        )
        assert got == expected


def test_a_draw_depends_on_seed_and_target_alone():
    graph = large(m=200)
    one = Subgraphs(graph, 3, 8, seed=1).around(torch.tensor([5]))
    among = Subgraphs(graph, 3, 8, seed=1).around(torch.tensor([2, 9, 5]))
    assert torch.equal(one.extras["nodes"], among.extras["nodes"][among.ptr[2] :])
    draws = {tuple(Subgraphs(graph, 3, 8, seed=s).around(torch.tensor([5])).extras["nodes"].tolist()) for s in range(5)}
    assert len(draws) > 1


def test_bad_input():
    for targets, *sizes, text in [
        (torch.tensor([60]), 1, 5, "node 60"),
        (torch.tensor([0]), -1, 5, "num_hops=-1"),
        (torch.tensor([0]), 1, 0, "max_nodes=0"),
    ]:
        with pytest.raises(ValueError, match=text):
            Subgraphs(large(), *sizes).around(targets)
    assert Subgraphs(large(), 2, 5).around(torch.zeros(0, dtype=torch.long)).num_graphs == 0
