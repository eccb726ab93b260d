"""minesweeper and tolokers from the real files, and a file whose statistics are not the published ones."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from gt_bench.data import prepare as module
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import prepared
from tests.gt_bench.data.raw_files import RAW
from tests.refusals import refused


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minesweeper", "tolokers"])
def test_real_files(name, tmp_path, mirror):
    dataset = prepared(name, tmp_path, mirror)
    batch = dataset.batch(torch.tensor([0]))
    with np.load(mirror / f"heterophilous/{name}.npz") as raw:
        np.testing.assert_array_equal(batch.x, raw["node_features"])
        np.testing.assert_array_equal(batch.y, raw["node_labels"])
        edges = raw["edges"]
        stored = set(map(tuple, batch.edge_index.T[:1000].tolist()))
        assert stored <= set(map(tuple, edges.tolist())) | set(map(tuple, edges[:, ::-1].tolist()))
        np.testing.assert_array_equal(dataset.split("test", 3), np.flatnonzero(raw["test_masks"][3]))
        assert sum(dataset.split(part, 3).numel() for part in ("train", "val", "test")) == dataset.num_nodes
    assert dataset.header.metric == "roc-auc"


def test_a_file_of_the_right_checksum_and_other_statistics_is_refused(tmp_path, monkeypatch):
    spec, ((name, path),) = (raw := RAW["roman-empire"](tmp_path))[0], raw[1].items()
    (tmp_path / "mirror" / name).parent.mkdir(parents=True)
    content = path.rename(tmp_path / "mirror" / name).read_bytes()
    file = replace(spec.files[0], sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
    monkeypatch.setattr(module, "get_spec", lambda name: replace(spec, files=(file,)))
    with refused(DatasetError, file="dataset 'roman-empire'") as caught:
        module.prepare("roman-empire", tmp_path / "data", [str(tmp_path / "mirror")])
    assert "nodes: measured 40, published 22662" in caught.value.problem
    assert list((tmp_path / "data/packed").iterdir()) == []
