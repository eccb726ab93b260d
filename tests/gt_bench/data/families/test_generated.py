"""Generated datasets have the structure described in the papers; families.json has their values."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial import Delaunay

from gt_bench.data.registry import get_spec
from tests.gt_bench.data.checks import made, prepared

# sha256 of data.safetensors; a change alters every result on these datasets
PINNED = {
    "chains": "c7386228c178fda540aececa16edad7a9449bef80b0aa6309aaf171d24b9f678",
    "sbm-cluster": "c02fc27b8eef88163214792cfbd92ae1f3b63a7db50ca7f3f62dec9db3e7c2ab",
}


@pytest.mark.parametrize("name", PINNED)
def test_the_bytes_are_the_same_on_every_machine(name, tmp_path):
    assert prepared(name, tmp_path, None).header.data_sha256 == PINNED[name]


@pytest.mark.parametrize(("name", "sizes"), [("delaunay-50", (50, 50)), ("delaunay-20-80", (20, 80))])
def test_delaunay_targets(name, sizes, tmp_path):
    spec = get_spec(name)
    arguments = dict(spec.arguments) | {"train": 20, "val": 4, "test": 4}
    dataset = made(replace(spec, arguments=arguments), tmp_path / "out")
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
