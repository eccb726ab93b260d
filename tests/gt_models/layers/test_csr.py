"""The edges of a batch by target and by source."""

import pytest

from gt_models.layers.csr import csr_edges
from tests.gt_models.polynormer.cases import messy_graph


@pytest.mark.parametrize("self_loops", [True, False])
def test_edges_are_those_of_the_batch_by_target_and_by_source(self_loops):
    graph = messy_graph()
    edges = csr_edges(graph, self_loops)
    ptr, col, ptr_t, col_t, perm_t = (t.tolist() for t in edges.csr)
    found = sorted((j, i) for i in range(6) for j in col[ptr[i] : ptr[i + 1]])
    stored = [(j, i) for j, i in zip(*graph.edge_index.tolist(), strict=True) if j != i or not self_loops]
    assert found == sorted(stored + [(i, i) for i in range(6)] * self_loops)
    assert sorted((j, i) for j in range(6) for i in col_t[ptr_t[j] : ptr_t[j + 1]]) == found
    assert all(edges.target[perm_t[e]] == col_t[e] for e in range(len(col_t)))
    assert edges.in_degree.tolist() == [sum(i == n for _, i in found) for n in range(6)]
    assert edges.out_degree.tolist() == [sum(j == n for j, _ in found) for n in range(6)]
    assert csr_edges(graph, self_loops) is edges  # cached on the batch
