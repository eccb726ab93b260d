"""Homophily, compared with a count by hand."""

import numpy as np
import pytest

from gt_bench.claims.checks.homophily import class_homophily


def test_homophily_by_hand():
    # classes {0, 1}, {2, 3, 4}; class 0: 2 of 3 ends within, class 1: 4 of 5; both ways
    edges = [(0, 1), (1, 2), (2, 3), (3, 4)]
    source, target = np.array([*edges, *[(v, u) for u, v in edges]]).T
    expected = max(0, 2 / 3 - 2 / 5) + max(0, 4 / 5 - 3 / 5)
    assert class_homophily(source, target, np.array([0, 0, 1, 1, 1])) == pytest.approx(expected)
    assert class_homophily(np.append(source, 2), np.append(target, 2), np.array([0, 0, 1, 1, 1])) == pytest.approx(
        expected
    )
