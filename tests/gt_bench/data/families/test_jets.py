"""jets: small ROOT files in the official format."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gt_bench.data.families import jets
from gt_bench.data.registry import get_spec
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import made
from tests.gt_bench.data.raw_files import jet_tree, write_root


@pytest.mark.slow
def test_jets(tmp_path):
    pytest.importorskip("uproot", reason="pip install .[jets]")
    trees = {"training": jet_tree([3, 1, 5, 2]), "valid": jet_tree([4], 1), "test": jet_tree([6, 2], 2)}
    spec = get_spec("jets")
    for name, tree in trees.items():
        write_root(tmp_path / f"{name}.root", tree)
    dataset = made(spec, tmp_path / "out", *(tmp_path / f"{name}.root" for name in trees))
    assert dataset.sizes.tolist() == [3, 5, 2, 4, 6, 2]  # a jet of one track is left out
    assert [dataset.split(part, 0).numel() for part in ("train", "val", "test")] == [3, 1, 2]
    batch = dataset.batch(torch.tensor([1]))
    vertex = trees["training"][jets.VERTEX][2]
    np.testing.assert_array_equal(batch.y.view(5, 5), vertex[:, None] == vertex[None])
    assert batch.extras["flavour"].item() == trees["training"][jets.FLAVOUR][2]
    pt = trees["training"]["trk_pt"][2]
    np.testing.assert_allclose(batch.x[:, 4], (pt - 5.237357) / 7.4841413, atol=1e-5)
    np.testing.assert_allclose(batch.x[:, 6], (trees["training"]["jet_pt"][2] - 75.95093) / 49.134453, atol=1e-5)
    with pytest.raises(DatasetError, match="not the tree of jets"):
        jets.jets({jets.VERTEX: trees["test"][jets.VERTEX]}, "x")


@pytest.mark.slow
def test_damaged_root_files_are_clean_errors(tmp_path):
    uproot = pytest.importorskip("uproot", reason="pip install .[jets]")
    write_root(tmp_path / "whole.root", jet_tree([3, 1, 5, 2]))
    whole = (tmp_path / "whole.root").read_bytes()
    expected = jets.jets(jets._read(tmp_path / "whole.root"), "x")
    rng, path = np.random.default_rng(0), tmp_path / "damaged.root"
    refused = 0
    for trial in range(60):
        content = bytearray(whole)
        if trial % 3 == 0:
            content = content[: rng.integers(len(content))]
        else:
            for place in rng.integers(0, len(content), 1 + trial % 7):
                content[place] = rng.integers(256)
        path.write_bytes(content)
        try:
            found = jets.jets(jets._read(path), "x")
        except DatasetError:
            refused += 1
            continue
        assert found.keys() == expected.keys()
    assert refused > 15
    with uproot.recreate(path) as file:
        file.mktree("other", {"jet_pt": np.float32}).extend({"jet_pt": np.zeros(3, np.float32)})
    with pytest.raises(DatasetError, match="not a readable ROOT file of jets"):
        jets._read(path)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    from gt_bench.data import prepare as module

    monkeypatch.setattr(module, "get_spec", lambda name: replace(get_spec(name), needs=("no_such_package",)))
    result = module.prepare("jets", tmp_path)
    assert result.state == "unavailable"
    assert "pip install no_such_package" in result.reason
    assert module.available("jets", tmp_path) == (False, "needs the package no_such_package")
