"""Conversions of user-supplied arrays keep the numbers; test_dataset.py has what is refused."""

import numpy as np

from gt_bench.data.custom.arrays import convert_arrays, with_reverse_edges


def arrays(**changes):
    return {
        "num_nodes": [2],
        "num_edges": [1],
        "x": np.ones((2, 1)),
        "edge_index": np.array([[0], [1]]),
        "y": np.array([0, 1]),
    } | changes


def test_types_are_the_same_from_block_to_block():
    found = convert_arrays(arrays(edge_attr=np.array([3], np.int8), split=np.array([[1, 3]])), "here")
    assert [str(found[key].dtype) for key in ("x", "edge_attr", "y")] == ["float32", "int32", "int64"]
    assert found["edge_attr"].tolist() == [[3]]
    assert found["split"].tolist() == [[1, 3]]
    assert convert_arrays(arrays(y=np.array([0.5, 1.0])), "here")["y"].dtype == np.float32
    booleans = convert_arrays(arrays(x=np.array([True, False]), y=np.array([True, False])), "here")
    assert booleans["x"].tolist() == [[1], [0]]
    assert booleans["y"].tolist() == [1, 0]


def test_the_reverse_of_an_edge_is_added_where_it_is_missing():
    """Two graphs: 0 -> 1, 1 -> 0, 1 -> 2 (twice), 2 -> 2; and 1 -> 0."""
    block = {
        "num_nodes": np.array([3, 2]),
        "num_edges": np.array([5, 1]),
        "edge_index": np.array([[0, 1, 1, 1, 2, 1], [1, 0, 2, 2, 2, 0]], np.int32),
        "edge_attr": np.arange(6.0)[:, None],
    }
    found, added = with_reverse_edges(block)
    assert added == 3
    assert found["num_edges"].tolist() == [7, 2]
    assert found["edge_index"].tolist() == [[0, 1, 1, 1, 2, 2, 2, 1, 0], [1, 0, 2, 2, 2, 1, 1, 0, 1]]
    assert found["edge_attr"].ravel().tolist() == [0, 1, 2, 3, 4, 2, 3, 5, 5]
    assert found["edge_index"].dtype == np.int32
    assert with_reverse_edges(found)[1] == 0
