"""Basis tensors of equivariant layers, compared with loops."""

import itertools

import pytest
import torch
from torch._subclasses import FakeTensorMode

from gt_models import create_model
from gt_models.layers.equivariant_basis import (
    _codes,
    bell,
    equality_pattern,
    equivariant_basis,
    pair_indices,
    set_partitions,
)
from tests.gt_models.tokengt_attention_cases import SMALL, graphs


def test_bell_numbers():
    assert [bell(k) for k in range(6)] == [1, 1, 2, 5, 15, 52]
    assert set_partitions(2) == ((0, 1), (0, 0))


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_patterns_are_orbits(order):
    """Two tuples share a pattern exactly if a permutation of the nodes maps one to the other."""
    n = 4
    tuples = list(itertools.product(range(n), repeat=order))
    patterns = equality_pattern(torch.tensor(tuples)).tolist()
    orbits = {}
    for t in tuples:
        orbit = frozenset(tuple(p[v] for v in t) for p in itertools.permutations(range(n)))
        orbits.setdefault(orbit, set()).add(patterns[tuples.index(t)])
    assert len(orbits) == bell(order)
    assert all(len(found) == 1 for found in orbits.values())
    assert len(set(patterns)) == bell(order)


def test_patterns_first_requested_by_a_compiler_are_those_of_tensors():
    """A compiler uses fake tensors, which must not be cached for the next call."""
    pairs = pair_indices(3)
    _codes.cache_clear()
    with FakeTensorMode() as mode:
        equality_pattern(mode.from_tensor(pairs))
    assert equality_pattern(pairs).tolist() == [int(i == j) for i in range(3) for j in range(3)]


def test_dense_basis_by_loops():
    n = 4
    pairs = pair_indices(n)
    basis = equivariant_basis(pairs, pairs, torch.float64).view(15, n, n, n, n)
    for mu, string in enumerate(set_partitions(4)):
        for index in itertools.product(range(n), repeat=4):
            same = all((index[a] == index[b]) == (string[a] == string[b]) for a in range(4) for b in range(4))
            assert basis[(mu, *index)] == float(same)
    assert (basis.sum(0) == 1).all()
    assert torch.linalg.matrix_rank(basis.flatten(1)) == 15


def test_basis_spans_the_equivariant_layers():
    """Basis tensors commute with permutations, and their number is the dimension of the space.

    The dimension is the trace of the projection.
    """
    n = 4
    pairs = pair_indices(n)
    basis = equivariant_basis(pairs, pairs, torch.float64)
    fixed = 0.0
    for p in itertools.permutations(range(n)):
        order = torch.tensor([p[i] * n + p[j] for i, j in pairs.tolist()])
        assert torch.equal(basis[:, order][:, :, order], basis)
        fixed += sum(i == k for i, k in enumerate(p)) ** 4
    assert fixed / 24 == 15


def test_sparse_targets_are_rows_of_the_dense_ones():
    graph = graphs((5,))[0]
    model = create_model("tokengt-attention", **SMALL)
    tuples, mask = model.tokens(graph)
    targets = model.targets(graph)[0]  # [15, T, 1 + T]
    torch.testing.assert_close(targets.sum(-1), torch.ones_like(targets[..., 0]))
    tuples = tuples[0].tolist()
    assert mask.all()
    for mu, string in enumerate(set_partitions(4)):
        for i, left in enumerate(tuples):
            row = [
                all(
                    ((*left, *right)[a] == (*left, *right)[b]) == (string[a] == string[b])
                    for a in range(4)
                    for b in range(4)
                )
                for right in tuples
            ]
            expected = [float(not any(row)), *[r / max(1, sum(row)) for r in row]]
            torch.testing.assert_close(targets[mu, i], torch.tensor(expected))
