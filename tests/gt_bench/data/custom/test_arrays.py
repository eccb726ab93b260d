"""Conversions of user-supplied arrays keep the numbers, or are refused."""

import numpy as np
import pytest

from gt_bench.data.custom.arrays import (
    as_table,
    check_edge_index,
    check_whole_numbers,
    convert_arrays,
    with_reverse_edges,
)
from gt_bench.utils.errors import DatasetError


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"x": np.array([["a"], ["b"]])},
            "x is <U1 of shape .* expected rows of numbers; number classes and categories",
        ),
        (
            {"x": np.array([[-1], [0]])},
            r"categories in x \(quantities are floating-point numbers\) must be whole numbers from 0",
        ),
        ({"x": np.array([[2**31], [0]])}, "must be whole numbers from 0 to 2147483647"),
        ({"num_nodes": [2, 0]}, "graph 1 .counted from 0. has no nodes; remove it"),
        ({"num_nodes": [[2]]}, "num_nodes has shape .* expected one number per graph"),
        ({"split": np.array([[1, 4]])}, "split codes must be whole numbers from 0 to 3"),
    ],
)
def test_what_would_change_a_number_is_refused(changes, message):
    with pytest.raises(DatasetError, match=message):
        convert_arrays(arrays(**changes), "here")


def test_edges_are_two_rows_of_ids():
    assert check_edge_index(np.array([[0, 1], [1, 0]]), "here").dtype == np.int32
    with pytest.raises(DatasetError, match="transpose it"):
        check_edge_index(np.array([[0, 1], [1, 0], [0, 0]]), "here")
    with pytest.raises(DatasetError, match="edge ids must be whole numbers"):
        check_edge_index(np.array([[0.0], [1.0]]), "here")


def test_a_column_is_a_table_and_a_limit_is_beyond_the_last():
    assert as_table(np.array([1, 2]), "y", "here").shape == (2, 1)
    assert check_whole_numbers(np.array([0, 3]), "codes", "here", 4).tolist() == [0, 3]
    with pytest.raises(DatasetError, match="codes must be whole numbers from 0 to 2"):
        check_whole_numbers(np.array([3]), "codes", "here", 3)


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
