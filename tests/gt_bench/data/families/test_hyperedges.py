"""Hyperedges: real files, offsets, and the leak of the released drug split."""

import numpy as np
import pytest
import torch

from tests.gt_bench.data.checks import prepared

FOLDERS = {"gps": "GPS", "movielens": "MovieLens", "drug": "drug"}


def distinct(dataset, part, index):
    return set(map(tuple, dataset.array("hyperedges")[dataset.split(part, index)].tolist()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gps", "movielens", "drug"])
def test_real_files(name, tmp_path, mirror):
    dataset = prepared(name, tmp_path, mirror)
    members, sizes = dataset.array("hyperedges"), dataset.array("type_sizes").long()
    x = dataset.batch(torch.tensor([0])).x
    types = (x > 0).long().argmax(1)
    assert dataset.header.in_dim == (sizes + 1).tolist()
    assert torch.equal(
        x.sum(1), torch.cat([torch.arange(1, n + 1) for n in sizes.tolist()])
    )  # numbered within the type
    assert torch.equal((x > 0).sum(1), torch.ones(len(x), dtype=torch.long))
    assert torch.bincount(types).tolist() == sizes.tolist()
    for column in range(3):
        assert (types[members[:, column].long()] == column).all()
    with np.load(mirror / f"hyper_sagnn/{FOLDERS[name]}/test_data.npz") as raw:
        offsets = np.array([0, sizes[0], sizes[0] + sizes[1]])
        np.testing.assert_array_equal(members[dataset.split("test", 1)], raw["test_data"] + offsets)
    leak = distinct(dataset, "train", 1) & distinct(dataset, "test", 1)
    assert len(leak) == (9444 if name == "drug" else 0)
    assert dataset.split("val", 1).numel() == 0

    parts = [distinct(dataset, part, 0) for part in ("train", "val", "test")]
    assert len(parts[0] | parts[1] | parts[2]) == sum(map(len, parts))
    assert parts[0] | parts[1] == distinct(dataset, "train", 1)
    assert parts[2] == distinct(dataset, "test", 1) - leak
    assert len(parts[1]) == pytest.approx(len(parts[0]) / 9, rel=0.15)
