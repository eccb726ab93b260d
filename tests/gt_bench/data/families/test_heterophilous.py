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


@pytest.mark.parametrize("spec", heterophilous.DATASETS, ids=lambda spec: spec.name)
def test_miniature_of_every_dataset(spec, tmp_path):
    classes, features = spec.expected["classes"], spec.expected["features"]
    arrays = heterophilous_npz(tmp_path / "mini.npz", classes=classes, features=features)
    dataset = made(spec, tmp_path / "out", tmp_path / "mini.npz")
    statistics = dataset.header.statistics
    assert (statistics["nodes"], statistics["edges"], statistics["edges_undirected"], statistics["symmetric"]) == (
        40,
        120,
        60,
        True,
    )
    np.testing.assert_array_equal(dataset.batch(torch.tensor([0])).x, arrays["node_features"])
    assert dataset.header.metric == ("roc-auc" if classes == 2 else "accuracy")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val_masks": np.ones((10, 40), bool)}, "two parts"),
        ({"node_labels": np.full(40, 18)}, "18 classes"),
        ({"edges": np.array([[0, 40]])}, "name node 40"),
        ({"edges": np.array([{}], dtype=object)}, "pickled objects"),
        ({"train_masks": np.ones((10, 39), bool)}, "split masks have different shapes"),
    ],
)
def test_flawed_files_are_named(changes, message, tmp_path):
    spec = heterophilous.DATASETS[0]
    heterophilous_npz(tmp_path / "mini.npz", **changes)
    with pytest.raises(DatasetError, match=message):
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
    with pytest.raises(DatasetError, match="nodes: measured 40, published 22662"):
        module.prepare("roman-empire", tmp_path / "data", [str(tmp_path / "mirror")])
    assert list((tmp_path / "data/packed").iterdir()) == []
