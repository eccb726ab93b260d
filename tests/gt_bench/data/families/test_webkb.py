"""WebKB: published statistics, and equality with an independent copy of the data."""

import numpy as np
import pytest
import torch

from tests.gt_bench.data.checks import prepared


@pytest.mark.parametrize("name", ["cornell", "texas", "wisconsin"])
def test_equals_the_copy_of_another_host(name, tmp_path, mirror):
    dataset = prepared(name, tmp_path, mirror)
    batch = dataset.batch(torch.tensor([0]))
    # undirected, without self-loops, and not read by the family
    with np.load(mirror / f"heterophilous/{name}.npz") as other:
        np.testing.assert_array_equal(batch.x, other["node_features"])
        np.testing.assert_array_equal(batch.y, other["node_labels"])
        have = {tuple(sorted(e)) for e in batch.edge_index.T.tolist() if e[0] != e[1]}
        assert have == {tuple(sorted(e)) for e in other["edges"].tolist()}
        for index in range(10):
            for part in ("train", "val", "test"):
                np.testing.assert_array_equal(dataset.split(part, index), np.flatnonzero(other[f"{part}_masks"][index]))
    # torch_geometric's WebKB: rows sorted and merged, directed, with self-loops
    rows = np.loadtxt(mirror / f"webkb/{name}/out1_graph_edges.txt", skiprows=1, dtype=int)
    np.testing.assert_array_equal(batch.edge_index.T, np.unique(rows, axis=0))


def test_complete_splits(tmp_path, mirror):
    dataset = prepared("texas", tmp_path, mirror)
    for index in range(10):
        assert sum(dataset.split(part, index).numel() for part in ("train", "val", "test")) == 183
