"""Generated datasets have the structure described in the papers; families.json has their values."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial import Delaunay

from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import get_spec

SMALL = {
    "delaunay-50": {"train": 20, "val": 4, "test": 4},
    "delaunay-20-80": {"train": 20, "val": 4, "test": 4},
    "er-scaling-1000": {},
    "random-graphs": {"sizes": [6, 25, 102], "graphs": 2},
}


@pytest.fixture
def small(tmp_path):
    def make(name: str, folder: str = "out") -> PackedDataset:
        spec = get_spec(name)
        spec = replace(spec, arguments=dict(spec.arguments) | SMALL[name])
        spec.prepare(spec, {}, tmp_path / folder)
        return PackedDataset.open(tmp_path / folder)

    return make


@pytest.mark.parametrize(("name", "sizes"), [("delaunay-50", (50, 50)), ("delaunay-20-80", (20, 80))])
def test_delaunay_targets(name, sizes, small):
    dataset = small(name)
    assert sizes[0] <= int(dataset.sizes.min()) <= int(dataset.sizes.max()) <= sizes[1]
    batch = dataset.batch(torch.tensor([3, 11]))
    targets = batch.pairs_to_dense(batch.y[:, None])[..., 0]
    for b in range(2):
        n = int(batch.sizes[b])
        points = batch.x[batch.batch == b].numpy()
        assert points.min() >= 0
        assert points.max() <= 1
        expected = np.zeros((n, n))
        for triangle in Delaunay(points).simplices:
            for i in triangle:
                for j in triangle:
                    expected[i, j] = i != j
        np.testing.assert_array_equal(targets[b, :n, :n], expected)


def test_er_and_ba_have_the_expected_edges(small):
    er = small("er-scaling-1000")
    assert er.num_edges == 5000
    assert er.header.statistics["edges_undirected"] == 2500
    ba = small("random-graphs", "ba")
    assert (ba.array("edge_ptr").diff() == 10 * (ba.sizes - 5)).all()  # HOT: 10 (n - 5) directed edges
    one = ba.batch(torch.tensor([ba.num_graphs - 1]))
    degree = torch.bincount(one.edge_index[0])
    assert int(degree.max()) > 3 * float(degree.float().mean())  # heavy tail
