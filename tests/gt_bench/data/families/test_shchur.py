"""The smallest real file under both protocols; the other three on a miniature of the format."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from gt_bench.data.families import shchur
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import made, prepared
from tests.gt_bench.data.raw_files import shchur_npz


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


@pytest.mark.parametrize("spec", shchur.DATASETS, ids=lambda spec: spec.name)
def test_miniature_of_every_dataset(spec, tmp_path):
    attr, adj = shchur_npz(tmp_path, spec.arguments["classes"], 40)
    files = tmp_path / "data.npz", tmp_path / "split.npz"
    dataset = made(spec, tmp_path / "out", *files[: len(spec.files)])
    both = ((adj + adj.T) != 0).toarray()
    np.fill_diagonal(both, False)
    assert dataset.num_edges == both.sum()
    assert dataset.header.statistics["symmetric"]
    np.testing.assert_array_equal(dataset.array("x"), attr.toarray() > 0)  # counts up to 100 are words that occur
    rows = dataset.batch(torch.tensor([0])).x.sum(1)
    np.testing.assert_allclose(rows, (attr.sum(1) > 0).astype(float), atol=1e-5)


def test_damaged_matrices_and_small_classes_are_named(tmp_path):
    photo = shchur.DATASETS[2:4]
    shchur_npz(tmp_path, 8, 40, adj_indices=np.full(10, 9999))
    with pytest.raises(DatasetError, match="adj is not a sparse matrix"):
        photo[1].prepare(photo[1], {photo[1].files[0].path: tmp_path / "data.npz"}, tmp_path / "out")
    shchur_npz(tmp_path, 8, 40, nodes=400)
    with pytest.raises(DatasetError, match="has 50 nodes: too few"):
        photo[1].prepare(photo[1], {photo[1].files[0].path: tmp_path / "data.npz"}, tmp_path / "out")
