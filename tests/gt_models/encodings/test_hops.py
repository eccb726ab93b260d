"""Hop features: compared with powers of a dense matrix and torch_geometric's propagation; invalid input."""

import pytest
import torch
from torch_geometric.nn import SGConv

from gt_models.batch import GraphBatch
from gt_models.encodings import EncodingError, compute
from tests.gt_models.checks import collate, random_graphs


def test_powers_of_the_matrix():
    """Two stored self-loops of a node count once, a repeated edge counts twice; graphs are independent."""
    graphs = random_graphs((6, 4))
    graphs[0].edge_index = torch.cat([graphs[0].edge_index, torch.tensor([[2, 4, 0], [2, 4, 5]])], 1)
    expected = []
    for graph in graphs:
        graph.edge_attr = None
        near = torch.eye(graph.num_nodes, dtype=torch.float64)
        for source, target in graph.edge_index.T.tolist():
            near[target, source] += float(source != target)
        degree = near.sum(1)
        near = near / (degree[:, None] * degree).sqrt()
        expected.append(torch.cat([torch.linalg.matrix_power(near, k) @ graph.x for k in range(4)], 1))
    found = compute("hops", collate(graphs), columns=4, dtype=torch.float64)["hops"]
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-12, atol=1e-12)


def test_against_torch_geometric():
    graph = random_graphs((7,))[0]
    convolution = SGConv(4, 4, K=2, bias=False).double()
    torch.nn.init.eye_(convolution.lin.weight)
    found = compute("hops", graph, columns=4, steps=2, dtype=torch.float64)["hops"][:, 8:]
    torch.testing.assert_close(found, convolution(graph.x, graph.edge_index), rtol=1e-10, atol=1e-10)


def test_eigenvectors_are_carried_along_but_for_the_first():
    graph = random_graphs((7,), density=0.8)[0]
    found = compute("hops", graph, columns=4, steps=1, eigenvectors=2, dtype=torch.float64)["hops"]
    vectors = compute("laplacian", graph, k=3, dtype=torch.float64)["laplacian_eigenvectors"][:, 1:]
    torch.testing.assert_close(found[:, :6], torch.cat([graph.x, vectors], 1))
    as_features = GraphBatch(torch.cat([graph.x, vectors], 1), graph.edge_index, graph.ptr)
    torch.testing.assert_close(found, compute("hops", as_features, columns=6, steps=1, dtype=torch.float64)["hops"])


def test_categorical_features_and_wrong_columns_are_refused():
    graph = random_graphs((4,))[0]
    with pytest.raises(EncodingError, match="columns is 3, and the node features have 4"):
        compute("hops", graph, columns=3)
    with pytest.raises(EncodingError, match="these are categorical"):
        compute("hops", GraphBatch(graph.x.long(), graph.edge_index, graph.ptr), columns=4)
