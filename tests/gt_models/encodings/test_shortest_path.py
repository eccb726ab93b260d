"""Distances and paths."""

import networkx as nx
import pytest
import torch

from gt_models.encodings import compute, shortest_path
from tests.gt_models.checks import collate
from tests.gt_models.encodings.graphs import of_networkx


def paths(batch, **arguments):
    out = compute("shortest-path", batch, **arguments)
    return out["shortest_path_distance"][:, 0], out["shortest_path_edges"]


@pytest.mark.parametrize("search_size", [256, 2])
@pytest.mark.parametrize("chunk", [2**23, 7])
def test_distances_and_paths_against_networkx(monkeypatch, search_size, chunk):
    monkeypatch.setattr(shortest_path, "_SEARCH_SIZE", search_size)
    monkeypatch.setattr(shortest_path, "_CHUNK", chunk)
    originals = [nx.gnp_random_graph(n, 0.25, seed=n, directed=n % 2 == 0) for n in (6, 9, 12, 1)]
    batch = collate([of_networkx(g) for g in originals])
    distance, edges = paths(batch, path_length=20)
    for b, graph in enumerate(originals):
        n = len(graph)
        expected = dict(nx.all_pairs_shortest_path_length(graph))
        for i in range(n):
            for j in range(n):
                row = int(batch.pair_ptr[b]) + i * n + j
                hops = expected[i].get(j, -1)
                assert distance[row] == hops
                taken = edges[row][edges[row] >= 0]
                assert len(taken) == max(hops, 0)
                if hops > 0:
                    walked = batch.edge_index[:, taken] - batch.ptr[b]
                    assert walked[0, 0] == i
                    assert walked[1, -1] == j
                    assert torch.equal(walked[1, :-1], walked[0, 1:])


def test_long_distances_are_cut_and_paths_keep_their_start():
    distance, edges = paths(of_networkx(nx.path_graph(8, create_using=nx.DiGraph)), max_distance=4, path_length=3)
    assert distance.view(8, 8)[0].tolist() == [0, 1, 2, 3, 4, 4, 4, 4]
    assert distance.view(8, 8)[7].tolist() == [-1] * 7 + [0]
    assert edges.view(8, 8, 3)[1, 7].tolist() == [1, 2, 3]
    assert edges.view(8, 8, 3)[0, 2].tolist() == [0, 1, -1]
