"""Pairs of BREC from the packed dataset."""

import numpy as np

from gt_bench.data.brec_pairs import brec_pairs, packed
from gt_bench.data.packed import PackedHeader
from gt_bench.data.packed_writer import pack


def test_the_first_two_graphs_of_a_pair_without_its_controls(tmp_path):
    kind = {"task": "isomorphism", "metric": "pairs-distinguished", "level": "graph", "split_kind": "graph"}
    extras = {"pair": "graph", "control": "graph"}
    header = PackedHeader(name="brec", in_dim=1, out_dim=1, num_splits=0, extras=extras, **kind)
    # pair 0: a path and a triangle, relabelled copies between (control 1); pair 1: one edge, none
    edges = [[(0, 1), (1, 2)], [(0, 1), (1, 2), (0, 2)], [(2, 1)], [(1, 0)], [(0, 1)], []]
    both = [[pair for u, v in graph for pair in ((u, v), (v, u))] for graph in edges]
    pack(
        tmp_path / "packed" / "brec",
        header,
        {
            "num_nodes": [3, 3, 3, 3, 2, 2],
            "num_edges": [len(graph) for graph in both],
            "x": np.ones((16, 1), np.float32),
            "edge_index": np.array([pair for graph in both for pair in graph]).T,
            "y": np.zeros(6, np.float32),
            "pair": np.array([0, 0, 0, 0, 1, 1]),
            "control": np.array([0, 0, 1, 1, 0, 0]),
        },
    )
    (path, triangle), (edge, nothing) = brec_pairs(tmp_path)
    assert path.tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    assert triangle.tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert edge.tolist() == [[0, 1], [1, 0]]
    assert nothing.tolist() == [[0, 0], [0, 0]]


def test_none_if_the_dataset_is_missing(tmp_path):
    assert brec_pairs(tmp_path) is None
    assert packed(tmp_path, "texas") is None
