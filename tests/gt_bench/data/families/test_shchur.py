"""The smallest real file under both protocols."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from tests.gt_bench.data.checks import prepared


@pytest.mark.slow
def test_photo_under_both_protocols(tmp_path, mirror):
    dataset = prepared("photo", tmp_path, mirror)
    batch = dataset.batch(torch.tensor([0]))
    with np.load(mirror / "amazon_coauthor/amazon_photo_plain.npz") as raw:  # its features are already 0 or 1
        counts = sp.csr_array(
            (raw["attr_data"], raw["attr_indices"], raw["attr_indptr"]), shape=tuple(raw["attr_shape"])
        ).toarray()
        expected = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        np.testing.assert_allclose(batch.x, expected, atol=1e-7)
        adjacency = sp.csr_array(
            (raw["adj_data"], raw["adj_indices"], raw["adj_indptr"]), shape=tuple(raw["adj_shape"])
        )
    adjacency = adjacency.maximum(adjacency.T).tolil()  # not dense: that needs a gigabyte
    adjacency.setdiag(0)
    assert set(map(tuple, batch.edge_index.T.tolist())) == set(zip(*map(np.ndarray.tolist, adjacency.nonzero())))
    assert [dataset.split(part, 0).numel() for part in ("train", "val", "test")] == [4590, 1530, 1530]

    other = prepared("photo-tokengt", tmp_path, mirror)
    for index in range(7):
        for part in ("val", "test"):
            assert torch.bincount(batch.y[other.split(part, index)]).tolist() == [30] * 8
        assert sum(other.split(part, index).numel() for part in ("train", "val", "test")) == 7650
    assert not torch.equal(other.split("test", 0), other.split("test", 1))
