"""Equivalence classes compared with brute force."""

import math
from itertools import product

import pytest

from gt_models.hot.equivalence_classes import equivalence_classes, light_classes, set_partitions
from tests.gt_models.hot.cases import ORDERS
from tests.gt_models.reference import hot as reference


def bell(n: int) -> int:
    return 1 if n == 0 else sum(math.comb(n - 1, k) * bell(k) for k in range(n))


@pytest.mark.parametrize("n", range(7))
def test_partitions_are_all_and_each_once(n):
    found = set_partitions(n)
    assert len(found) == len(set(found)) == bell(n)
    assert all(sorted(x for block in p for x in block) == list(range(n)) for p in found)


@pytest.mark.parametrize(("k", "l"), ORDERS)
def test_classes_partition_all_pairs_of_multi_indices(k, l):
    """Bell(k + l) classes: every (i, j) over enough nodes is in exactly one, and no class is empty."""
    classes, n = equivalence_classes(k, l), max(k + l, 1)
    assert len(classes) == bell(k + l)
    met = {reference.pattern_of(multi) for multi in product(range(n), repeat=k + l)}
    assert met == {c.blocks for c in classes}
    for c in classes:  # input and output pattern, light and global, by their definitions
        sides = [(any(p < k for p in b), any(p >= k for p in b)) for b in c.blocks]
        assert c.is_light == all(out for inside, out in sides if inside)
        assert c.is_global == (not any(i and o for i, o in sides) and any(i for i, _ in sides))


def test_counts_that_the_paper_and_its_authors_state():
    assert len(equivalence_classes(2, 2)) == 15
    assert len(equivalence_classes(1, 2)) == 5
    assert len(equivalence_classes(1, 1)) == 2
    assert len(light_classes(2, 2)) == 5
    assert len(equivalence_classes(1, 3, distinct_output=True)) == 4
    assert [len([c for c in equivalence_classes(2, l) if c.is_global]) for l in (1, 2)] == [2, 4]
