"""wikics: a small JSON file in the official format."""

import json

import numpy as np
import pytest

from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import get_spec
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import assert_sound


def test_wikics(tmp_path):
    rng = np.random.default_rng(0)
    nodes, spec = 60, get_spec("wikics")
    part = rng.integers(0, 4, (20, nodes))
    part[:, :20] = 9  # the test nodes are the same in all splits
    data = {
        "features": rng.normal(size=(nodes, 300)).tolist(),
        "labels": (np.arange(nodes) % 10).tolist(),
        "links": [rng.integers(0, nodes, 3).tolist() for _ in range(nodes)],
        **{f"{name}_masks": (part == code).tolist() for code, name in enumerate(("train", "val", "stopping"))},
        "test_mask": (np.arange(nodes) < 20).tolist(),
    }
    (tmp_path / "data.json").write_text(json.dumps(data))
    spec.prepare(spec, {spec.files[0].path: tmp_path / "data.json"}, tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    assert_sound(dataset)
    assert dataset.header.num_splits == 20
    np.testing.assert_array_equal(dataset.split("val", 7), np.flatnonzero((part[7] == 1) | (part[7] == 2)))
    assert dataset.split("test", 7).tolist() == list(range(20))
    assert dataset.header.statistics["symmetric"]
    for flaw in ('{"features": 1}', "[1,", json.dumps(data | {"links": [[99]] * nodes})):
        (tmp_path / "data.json").write_text(flaw)
        with pytest.raises(DatasetError):
            spec.prepare(spec, {spec.files[0].path: tmp_path / "data.json"}, tmp_path / "out2")
