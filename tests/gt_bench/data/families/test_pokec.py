"""pokec: small files in the official format."""

import numpy as np
import pytest
from scipy.io import savemat

from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import get_spec
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import assert_sound


def test_pokec(tmp_path):
    rng = np.random.default_rng(0)
    nodes, spec = 40, get_spec("pokec")
    labels = rng.integers(-1, 2, nodes)  # -1: unknown
    known = np.flatnonzero(labels >= 0)
    savemat(
        tmp_path / "p.mat",
        {
            "edge_index": rng.integers(0, nodes, (2, 90)),
            "node_feat": rng.normal(size=(nodes, 65)),
            "label": labels[None],
        },
    )
    splits = []
    for _ in range(5):
        order = rng.permutation(known)
        cut = len(known) // 2, len(known) * 3 // 4
        splits.append({"train": order[: cut[0]], "valid": order[cut[0] : cut[1]], "test": order[cut[1] :]})
    np.save(tmp_path / "s.npy", splits, allow_pickle=True)
    paths = dict(zip([file.path for file in spec.files], (tmp_path / "p.mat", tmp_path / "s.npy")))
    spec.prepare(spec, paths, tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    assert_sound(dataset)
    np.testing.assert_array_equal(dataset.split("test", 4), np.sort(splits[4]["test"]))
    assert dataset.header.statistics["unlabelled"] == (labels < 0).sum()
    np.save(tmp_path / "s.npy", splits[:3], allow_pickle=True)
    with pytest.raises(DatasetError, match="not 5 splits"):
        spec.prepare(spec, paths, tmp_path / "out2")
    (tmp_path / "p.mat").write_bytes(b"MATLAB no more")
    with pytest.raises(DatasetError, match="not LINKX"):
        spec.prepare(spec, paths, tmp_path / "out2")
