"""Remarks on user-supplied data that are valid but perhaps not intended, and invalid data."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gt_bench.data.custom.remarks import has_unique_whole_numbers
from gt_bench.data.packed import PackedDataset
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.custom_data import packed

RING = np.array([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]])
BOTH = np.concatenate([RING, RING[::-1]], axis=1)
PARTS = np.array([[1, 1, 1, 1, 2, 2, 2, 3, 3, 3]])
NUMBERS = np.arange(10)[:, None]
REGRESSION = {"task": "graph-regression", "metric": "mae"}
MULTILABEL = {"task": "graph-multilabel", "metric": "ap"}


def alone(count: int) -> dict:
    """Graphs of one node."""
    one = np.ones(count, np.int64)
    return {"num_nodes": one, "num_edges": 0 * one, "edge_index": np.zeros((2, 0), np.int64)}


def of_arrays(tmp_path, task="node-classification", metric="accuracy", **arrays) -> PackedDataset:
    arrays = {"x": np.linspace(0, 1, 10)[:, None], "edge_index": BOTH, "y": np.arange(10) % 2, "split": PARTS} | arrays
    if task.startswith("graph-"):
        arrays |= alone(10)
    np.savez(tmp_path / "a.npz", **{key: value for key, value in arrays.items() if value is not None})
    return packed(tmp_path / "a.npz", tmp_path / "out", task, metric=metric)


@pytest.mark.parametrize(
    ("arrays", "remark"),
    [
        ({}, None),
        ({"edge_index": RING}, "10 of 10 edges have no reverse edge and are used as directed, from source to target"),
        ({"edge_index": BOTH[:, [0, 0, 10]]}, "1 of 3 edges are repeated, and count as often as they occur"),
        ({"x": NUMBERS + 5}, "column 0 of x has a different whole number in each of 10 rows and is used as a feature"),
        ({"x": NUMBERS * [0, 1e6]}, "column 1 of x has a different whole number in each of 10 rows"),
        ({"edge_attr": np.arange(20)}, "column 0 of edge_attr has a different whole number in each of 20 rows"),
        ({"y": np.arange(10) % 2 * 3}, "no node has the class 1, 2 of 0 to 3: the model has an output for each"),
        ({"y": np.arange(10) % 2 + 1}, "no node has the class 0 of 0 to 2"),
        ({"y": np.array([-1] + [0, 1] * 4 + [0]), "split": None}, "1 of 10 nodes have the label -1 and are used as"),
        ({"y": np.array([0, 1, 0, 1, 0, 0, 0, 1, 0, 1])}, "the val part of split 0 has no node of class 1"),
        ({"y": np.array([0, 0, 0, 0, 1, 1, 0, 1, 2, 0])}, "the train part of split 0 has no node of class 1, 2"),
        ({"y": np.array([0, 1, 2, 0, 1, 2, 0, 1, 1, 0])}, "the test part of split 0 has no node of class 2"),
        ({"y": np.arange(10)}, "each node has a different class; for quantities use --task node-regression"),
        (REGRESSION | {"y": np.arange(10) % 2 * 1.0}, "all targets are whole numbers (0, 1) and are predicted as"),
        (MULTILABEL | {"y": np.stack([np.arange(10) % 2, [0, 1, 1, 1, 0, 0, 0, 1, 0, 1]], axis=1)},
         "the val part of split 0 has only one value of label 2, which the metric ignores there"),
        ({"y": np.array([0, 1.0, np.nan, 1, 0, 1, 0, 1, 1, 0]), "split": None}, "1 of 10 nodes have the label nan and"),
    ],
)  # fmt: skip
def test_remarks(arrays, remark, tmp_path):
    notes = of_arrays(tmp_path, **arrays).header.notes
    assert not notes if remark is None else any(remark in note for note in notes), notes


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": NUMBERS + 10**6}, "column 0 of x has whole numbers up to 1000009: 1,000,010 categories for 10 rows"),
        ({"edge_attr": np.arange(20) * 1000}, "column 0 of edge_attr has whole numbers up to 19000"),
        ({"y": np.arange(10) % 2 * 5000}, "a label is 5000, but 10 nodes have 2 classes; number .* or use --task"),
        ({"y": np.arange(10) % 2 + 1, "metric": "roc-auc"}, r"the targets have 3 \(numbered 1 and 2: number them 0"),
        ({"y": np.arange(10) % 2 * 2 - 1, "split": None}, r"all labels are 1; .* \(5 are -1, which means no label:"),
        ({"y": np.arange(10) / 2}, "the target of node 1 is 0.5; .* whole numbers 0, 1, ...: .* or use --task"),
        ({"y": np.eye(10)[:, :3]}, "y has 3 columns; .* needs one target per node, a class 0, 1, ...: give the number"),
        (MULTILABEL | {"y": np.ones((10, 2), int) * [1, -1]}, "a target is -1; .*; write 0 for no, and nan for"),
        ({"y": np.arange(10) % 3 - 1}, r"node 0 has no target, but is in the train part .*; if its label -1 is a"),
        ({"y": np.arange(9) % 2, "split": None}, "y has 9 entries for 10 nodes; it needs one for each"),
        ({"x": np.ones((9, 1)), "num_nodes": np.array([10]), "num_edges": np.array([20])}, "x has 9 entries for 10"),
        ({"edge_attr": np.ones(19)}, "edge_attr has 19 entries for 20 edges"),
        ({"num_edges": np.array([19]), "num_nodes": np.array([10])}, "edge_index has 20 entries for 19 edges"),
        ({"split": PARTS[:, :9]}, "split has 9 entries for 10 nodes"),
        ({"edge_index": BOTH + 1}, "column 8 of edge_index names node 10 of graph 0; its nodes are numbered from 0 to"),
        ({"x": np.full((10, 1), 1e300)}, "x contains a number .* not finite as float32: row 0, column 0 is 1e.300"),
        ({"x": np.full((10, 1), -3)}, "must be whole numbers from 0 to 2147483647; row 0, column 0 is -3"),
    ],
)  # fmt: skip
def test_invalid_data(arrays, message, tmp_path):
    with pytest.raises(DatasetError, match=message):
        of_arrays(tmp_path, **arrays)


def test_two_graphs_cannot_be_split(tmp_path):
    np.savez(tmp_path / "a.npz", **alone(2), x=np.ones((2, 1)), y=np.arange(2))
    message = (
        "'mine': 2 graphs with a target cannot be split 0.8/0.1/0.1: the val part is empty; add graphs, or a split"
    )
    with pytest.raises(DatasetError, match=message):
        packed(tmp_path / "a.npz", tmp_path / "out", "graph-classification")


def test_classes_that_were_written_as_floats(tmp_path):
    dataset = of_arrays(tmp_path, y=np.array([0.0, 1.0] * 5))
    assert (dataset.header.out_dim, dataset.array("y").tolist(), dataset.header.notes) == (2, [0, 1] * 5, [])


@pytest.mark.parametrize(
    ("values", "differ"),
    [
        ([1, 2], False),
        ([4, 9, 2], True),
        ([4, 9, 4], False),
        ([0.5, 1.5, 2.5], False),
        ([1.0, 5.0, 3.0], True),
        ([], False),
    ],
)
def test_has_unique_whole_numbers(values, differ):
    assert has_unique_whole_numbers(np.array(values)) is differ


def data(**change) -> Data:
    edges = torch.tensor(BOTH.copy())
    return Data(**({"x": torch.rand(10, 2), "edge_index": edges, "y": torch.arange(10) % 2} | change))


def of_data(graphs, tmp_path, task="node-classification") -> PackedDataset:
    return packed(lambda: graphs, tmp_path / "out", task)


def test_attributes_that_are_not_read_are_named(tmp_path):
    notes = of_data(
        data(edge_weight=torch.rand(20), pos=torch.rand(10, 3), z=torch.arange(10), time=None), tmp_path
    ).header.notes
    assert notes[0].endswith(
        "edge_weight, pos, z of the Data are not read; put model inputs into x (nodes) or edge_attr (edges)"
    )


def test_all_three_masks_are_needed(tmp_path):
    mask = torch.arange(10) < 5
    for given, message in (
        ({"train_mask": mask}, "has train_mask but not val_mask and test_mask; add all three"),
        ({"test_mask": mask}, "has test_mask but not train_mask and val_mask"),
    ):
        with pytest.raises(DatasetError, match=message + ".*or remove .*: then splits are drawn"):
            of_data(data(**given), tmp_path)
    graphs = [data(y=torch.tensor([i % 2]), train_mask=mask) for i in range(10)]
    assert any(
        "train_mask of the Data is not read" in note
        for note in of_data(graphs, tmp_path, "graph-classification").header.notes
    )


def test_nodes_counted_by_the_edges(tmp_path):
    graphs = [data(x=None, y=torch.tensor([i % 2])) for i in range(10)]
    assert any(
        "10 graphs have neither num_nodes nor x: nodes are counted by the edges" in note
        for note in of_data(graphs, tmp_path, "graph-classification").header.notes
    )
    with pytest.raises(
        DatasetError,
        match="y has 11 rows, expected 10: nodes are counted by the edges, .*; give the Data num_nodes or x",
    ):
        of_data(data(x=None, y=torch.arange(11) % 2), tmp_path)
    with pytest.raises(DatasetError, match="graph 0: edge 8 names node 9 of 9 nodes, which are numbered from 0 to 8"):
        of_data(data(x=None, num_nodes=9, y=torch.arange(9) % 2), tmp_path)
