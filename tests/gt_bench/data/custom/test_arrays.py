"""Conversions of user-supplied arrays keep the numbers; test_dataset.py has what is refused."""

import numpy as np
import pytest

from gt_bench.data.custom.arrays import convert_arrays, with_reverse_edges
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.custom_data import packed


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


def test_times_in_seconds_that_float32_merges_are_refused():
    """float32 has steps of 128 at 1.6e9, so that 200 seconds were three numbers."""
    seconds = 1.6e9 + np.arange(200)
    arrays = {"num_nodes": [200], "num_edges": [0], "x": seconds[:, None], "y": np.arange(200)}
    arrays["edge_index"] = np.zeros((2, 0), np.int64)
    with pytest.raises(DatasetError, match=r"here: column 0 of x has 200 different numbers up to 1600000199, of which"):
        convert_arrays(arrays, "here")
    years = {**arrays, "x": seconds[:, None] + 1e6 * np.arange(200)[:, None]}
    assert len(np.unique(convert_arrays(years, "here")["x"])) == 200
    assert convert_arrays({**years, "edge_attr": np.zeros((0, 2))}, "here")["edge_attr"].shape == (0, 2)
    noise = {**arrays, "x": 1 + 1e-12 * np.arange(200)[:, None]}
    assert len(np.unique(convert_arrays(noise, "here")["x"])) == 1, "a constant with rounding errors is one"


def test_whole_numbers_that_float32_merges_are_no_targets(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((99, 1)), edge_index=np.zeros((2, 0), np.int64), y=2**30 + np.arange(99))
    with pytest.raises(DatasetError, match="dataset 'mine': column 0 of y has 99 different numbers up to 1073741922"):
        packed(tmp_path / "a.npz", tmp_path / "out", "node-regression", metric="mae")
