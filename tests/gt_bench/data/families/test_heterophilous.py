"""minesweeper and tolokers from the real files; all five on a miniature of the format."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from gt_bench.data.families import heterophilous
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import made, prepared
from tests.gt_bench.data.raw_files import heterophilous_npz
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


@pytest.mark.parametrize(
    ("changes", "place", "value"),
    [
        ({"val_masks": np.ones((10, 40), bool)}, "", None),
        ({"node_labels": np.full(40, 18)}, "array 'y'", None),
        ({"edges": np.array([[0, 40]])}, "", 40),
        ({"edges": np.array([{}], dtype=object)}, "array 'edges'", None),
        ({"train_masks": np.ones((10, 39), bool)}, "", ((10, 39), (10, 40), (10, 40))),
    ],
)
def test_flawed_files_are_named(changes, place, value, tmp_path):
    spec = heterophilous.DATASETS[0]
    heterophilous_npz(tmp_path / "mini.npz", **changes)
    with refused(DatasetError, place=place, value=value):
        made(spec, tmp_path / "out", tmp_path / "mini.npz")


def test_a_file_of_the_right_checksum_and_other_statistics_is_refused(tmp_path, monkeypatch):
    from gt_bench.data import prepare as module

    heterophilous_npz(tmp_path / "roman_empire.npz")
    content = (tmp_path / "roman_empire.npz").read_bytes()
    (tmp_path / "mirror/heterophilous").mkdir(parents=True)
    (tmp_path / "mirror/heterophilous/roman_empire.npz").write_bytes(content)
    spec = heterophilous.DATASETS[0]
    file = replace(spec.files[0], sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
    monkeypatch.setattr(module, "get_spec", lambda name: replace(spec, files=(file,)))
    with refused(DatasetError, file="dataset 'roman-empire'") as caught:
        module.prepare("roman-empire", tmp_path / "data", [str(tmp_path / "mirror")])
    assert "nodes: measured 40, published 22662" in caught.value.problem
    assert list((tmp_path / "data/packed").iterdir()) == []
