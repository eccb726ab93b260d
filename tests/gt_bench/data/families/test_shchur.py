"""The smallest real file under both protocols; the other three on a miniature of the format."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gt_bench.data.families import shchur
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import prepared
from tests.gt_bench.data.raw_files import shchur_npz
from tests.refusals import refused


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


def test_damaged_matrices_and_small_classes_are_named(tmp_path):
    photo = shchur.DATASETS[2:4]
    shchur_npz(tmp_path, 8, 40, adj_indices=np.full(10, 9999))
    with refused(DatasetError, file=str(tmp_path / "data.npz")):
        photo[1].prepare(photo[1], {photo[1].files[0].path: tmp_path / "data.npz"}, tmp_path / "out")
    shchur_npz(tmp_path, 8, 40, nodes=400)
    with refused(DatasetError, place="class 0", value=50):
        photo[1].prepare(photo[1], {photo[1].files[0].path: tmp_path / "data.npz"}, tmp_path / "out")
