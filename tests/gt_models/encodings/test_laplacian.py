"""Laplacian eigenvectors: closed forms, networkx and scipy; sign and basis are fixed; Lanczos equals LAPACK."""

import math

import networkx as nx
import numpy as np
import pytest
import torch

from gt_models.encodings import compute, compute_with_flags, laplacian
from tests.gt_models.checks import collate, permute, random_graphs
from tests.gt_models.encodings.graphs import dense, of_networkx


def solve(batch, **arguments):
    out = compute("laplacian", batch, dtype=torch.float64, **arguments)
    return out["laplacian_eigenvalues"], out["laplacian_eigenvectors"]


def matrix(batch, normalization="sym"):
    adjacency = dense(batch)
    adjacency = torch.maximum(adjacency, adjacency.T)
    degree = adjacency.sum(1)
    if normalization == "none":
        return torch.diag(degree) - adjacency
    scale = degree.clamp(min=1) ** -0.5
    return torch.eye(len(adjacency), dtype=torch.float64) - scale[:, None] * adjacency * scale


def assert_eigenpairs(batch, values, vectors, normalization="sym", tol=1e-10):
    """One graph: residuals vanish and the vectors are orthonormal."""
    real = min(values.numel(), batch.num_nodes)
    vectors, values = vectors[:, :real], values[:real]
    torch.testing.assert_close(matrix(batch, normalization) @ vectors, vectors * values, rtol=0, atol=tol)
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(real, dtype=torch.float64), rtol=0, atol=tol)


CLOSED_FORMS = {
    "cycle": (nx.cycle_graph(9), sorted(1 - math.cos(2 * math.pi * i / 9) for i in range(9))),
    "path": (nx.path_graph(8), [1 - math.cos(math.pi * i / 7) for i in range(8)]),
    "complete": (nx.complete_graph(7), [0.0] + [7 / 6] * 6),
    "complete-bipartite": (nx.complete_bipartite_graph(3, 4), [0.0] + [1.0] * 5 + [2.0]),
    "star": (nx.star_graph(5), [0.0] + [1.0] * 4 + [2.0]),
    "hypercube": (nx.hypercube_graph(3), [0.0] + [2 / 3] * 3 + [4 / 3] * 3 + [2.0]),
}


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_closed_forms(name):
    graph, expected = CLOSED_FORMS[name]
    batch = of_networkx(graph)
    values, vectors = solve(batch, k=batch.num_nodes)
    torch.testing.assert_close(values[0], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
    assert_eigenpairs(batch, values[0], vectors)
    degree = dense(batch).sum(1)
    torch.testing.assert_close(vectors[:, 0], (degree / degree.sum()).sqrt())


@pytest.mark.parametrize("seed", range(3))
def test_values_agree_with_networkx(seed):
    graph = nx.connected_watts_strogatz_graph(20, 4, 0.4, seed=seed)
    values, vectors = solve(of_networkx(graph), k=20)
    np.testing.assert_allclose(values[0], np.sort(nx.normalized_laplacian_spectrum(graph)), atol=1e-10)
    assert_eigenpairs(of_networkx(graph), values[0], vectors)


def test_eigenvectors_of_either_end_in_order():
    batch = random_graphs((12,), density=0.4)[0]
    values, vectors = solve(batch, k=12)
    top_values, top_vectors = solve(batch, k=4, which="highest")
    torch.testing.assert_close(top_values, values.flip(1)[:, :4])
    torch.testing.assert_close(top_vectors, vectors.flip(1)[:, :4])
    both_values, both_vectors = solve(batch, k=5, which="both")
    torch.testing.assert_close(both_values, torch.cat([values[:, :3], values.flip(1)[:, :2]], 1))
    torch.testing.assert_close(both_vectors, torch.cat([vectors[:, :3], vectors.flip(1)[:, :2]], 1))


def test_zero_padding_beyond_the_number_of_nodes():
    graphs = random_graphs((3, 6, 1))
    values, vectors = solve(collate(graphs), k=5)
    assert not vectors[:3, 3:].any()
    assert not values[0, 3:].any()
    assert vectors[9].tolist() == [1.0, 0, 0, 0, 0]  # an isolated node has eigenvalue 1, because degrees are at least 1
    assert values[2].tolist() == [1.0, 0, 0, 0, 0]


def test_a_batch_equals_its_graphs_and_sizes_need_not_repeat():
    graphs = random_graphs((5, 3, 7, 7, 1, 12, 5, 3), density=0.3)
    values, vectors = solve(collate(graphs), k=6)
    singles = [solve(g, k=6) for g in graphs]
    torch.testing.assert_close(values, torch.cat([s[0] for s in singles]), rtol=0, atol=1e-12)
    torch.testing.assert_close(vectors, torch.cat([s[1] for s in singles]), rtol=0, atol=1e-9)


def test_signs_are_fixed():
    for batch in random_graphs((9, 14, 20), density=0.4):
        _, vectors = solve(batch, k=9)
        peak = (vectors.abs() >= vectors.abs().amax(0) * (1 - 1e-6)).int().argmax(0)
        assert (vectors[peak, torch.arange(9)] > 0).all()


def test_the_basis_of_an_eigenspace_depends_on_the_space_alone():
    graph = nx.disjoint_union(nx.complete_graph(6), nx.cycle_graph(8))
    batch = of_networkx(graph)
    values, vectors = torch.linalg.eigh(matrix(batch)[None])
    _, first, repeated = next(laplacian._select([(values, vectors.clone())], 14, 0))
    # another basis of each eigenspace, as another LAPACK might return it
    rotated, start = vectors.clone(), 0
    while start < 14:
        end = start + int((values[0, start:] - values[0, start] < 1e-8).sum())
        rotation = torch.linalg.qr(torch.randn(end - start, end - start, dtype=torch.float64))[0]
        rotated[0, :, start:end] = vectors[0, :, start:end] @ rotation
        start = end
    assert (rotated - vectors).abs().max() > 0.1
    assert repeated[0].tolist() == [bool(((values[0] - value).abs() < 1e-8).sum() > 1) for value in values[0]]
    _, again, _ = next(laplacian._select([(values, rotated)], 14, 0))
    torch.testing.assert_close(again, first, rtol=0, atol=1e-8)
    assert_eigenpairs(batch, values[0], first[0])


def test_components_have_their_own_trivial_eigenvectors():
    batch = of_networkx(nx.disjoint_union_all([nx.path_graph(3), nx.cycle_graph(4), nx.complete_graph(5)]))
    values, vectors = solve(batch, k=4)
    assert (values[0, :3].abs() < 1e-12).all()
    assert values[0, 3] > 0.1
    support = (vectors[:, :3].abs() > 1e-9).T.int().tolist()
    assert sorted(support) == sorted([[1] * 3 + [0] * 9, [0] * 3 + [1] * 4 + [0] * 5, [0] * 7 + [1] * 5])


def test_values_ignore_the_order_of_nodes_and_vectors_follow_it():
    batch = random_graphs((11,), density=0.4, seed=3)[0]
    order = torch.randperm(11)
    values, vectors = solve(batch, k=6)
    moved_values, moved_vectors = solve(permute(batch, order), k=6)
    torch.testing.assert_close(moved_values, values)
    simple = values[0].diff() > 1e-6
    assert simple.all()
    torch.testing.assert_close(moved_vectors.abs(), vectors[order].abs())


@pytest.mark.parametrize("normalization", ["sym", "none"])
@pytest.mark.parametrize("which", ["lowest", "highest", "both"])
def test_lanczos_agrees_with_lapack(monkeypatch, normalization, which):
    parts = [
        nx.connected_watts_strogatz_graph(90, 6, 0.5, seed=1),
        nx.path_graph(40),
        nx.star_graph(7),
        nx.empty_graph(2),
    ]
    batch = of_networkx(nx.disjoint_union_all(parts))
    expected, _ = solve(batch, k=10, normalization=normalization, which=which)
    monkeypatch.setattr(laplacian, "_DENSE_SIZE", 50)  # the first component goes to Lanczos, the others to LAPACK
    values, vectors = solve(batch, k=10, normalization=normalization, which=which)
    torch.testing.assert_close(values, expected, rtol=0, atol=1e-8)
    assert_eigenpairs(batch, values[0], vectors, normalization, tol=1e-7)


REPEATS = {
    # graph, used eigenpairs, which end: is one of the used eigenvalues repeated?
    "path": (nx.path_graph(8), 8, "lowest", False),
    "cycle, simple part": (nx.cycle_graph(9), 1, "lowest", False),
    "cycle, cut inside a pair": (nx.cycle_graph(9), 2, "lowest", True),
    "even cycle, other end": (nx.cycle_graph(8), 1, "highest", False),
    "complete": (nx.complete_graph(5), 1, "highest", True),
    "two components": (nx.disjoint_union(nx.path_graph(4), nx.path_graph(7)), 1, "lowest", True),
    "one node": (nx.empty_graph(1), 3, "lowest", False),
    "more channels than nodes": (nx.path_graph(3), 6, "both", False),
}


@pytest.mark.parametrize("dense_size", [1500, 8])  # by 8, larger graphs go by components and to Lanczos
@pytest.mark.parametrize("name", REPEATS)
def test_a_repeated_eigenvalue_among_the_used_ones_is_reported(monkeypatch, name, dense_size):
    graph, k, which, expected = REPEATS[name]
    monkeypatch.setattr(laplacian, "_DENSE_SIZE", dense_size)
    _, repeated = laplacian.laplacian_with_repeats(of_networkx(graph), k=k, normalization="sym", which=which)
    assert repeated.tolist() == [expected]


def test_lanczos_reports_repeats_within_and_across_components(monkeypatch):
    monkeypatch.setattr(laplacian, "_DENSE_SIZE", 50)
    path, cycle = nx.path_graph(60), nx.cycle_graph(60)
    found = [
        bool(laplacian.laplacian_with_repeats(of_networkx(graph), k=k, normalization="sym", which="lowest")[1])
        for graph, k in (
            (path, 4),
            (cycle, 1),
            (cycle, 2),
            (nx.disjoint_union(path, nx.path_graph(70)), 1),
            (nx.disjoint_union(path, nx.path_graph(5)), 1),
        )
    ]
    assert found == [False, False, True, True, True]


def test_a_second_eigenvector_that_is_not_unique_is_reported():
    graphs = [
        nx.path_graph(5),
        nx.cycle_graph(6),
        nx.star_graph(4),
        nx.disjoint_union(nx.path_graph(2), nx.path_graph(3)),
    ]
    batch = collate([of_networkx(graph) for graph in graphs])
    arrays, flags = compute_with_flags("second-eigenvector", batch)
    assert flags["repeated_eigenvalue"].tolist() == [False, True, True, True]
    assert torch.equal(arrays["second_eigenvector"], compute("second-eigenvector", batch)["second_eigenvector"])
    assert compute_with_flags("degree", batch)[1] == {}


def test_eigenvectors_for_repeated_eigenvalues_are_eigenvectors():
    for graph in (
        nx.complete_graph(6),
        nx.star_graph(6),
        nx.hypercube_graph(4),
        nx.disjoint_union(nx.cycle_graph(5), nx.cycle_graph(5)),
    ):
        batch = of_networkx(graph)
        values, vectors = solve(batch, k=batch.num_nodes)
        assert_eigenpairs(batch, values[0], vectors)
