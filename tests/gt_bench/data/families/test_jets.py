"""jets: small ROOT files in the official format."""

from dataclasses import replace

import numpy as np
import pytest

from gt_bench.data.families import jets
from gt_bench.data.registry import get_spec
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.raw_files import jet_tree, write_root
from tests.refusals import refused


@pytest.mark.slow
def test_damaged_root_files_are_clean_errors(tmp_path):
    uproot = pytest.importorskip("uproot", reason="pip install .[jets]")
    write_root(tmp_path / "whole.root", jet_tree([3, 1, 5, 2]))
    whole = (tmp_path / "whole.root").read_bytes()
    expected = jets.jets(jets._read(tmp_path / "whole.root"), "x")
    rng, path = np.random.default_rng(0), tmp_path / "damaged.root"
    failed = 0
    for trial in range(20):
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
            failed += 1
            continue
        assert found.keys() == expected.keys()
    assert failed > 4
    with uproot.recreate(path) as file:
        file.mktree("other", {"jet_pt": np.float32}).extend({"jet_pt": np.zeros(3, np.float32)})
    with refused(DatasetError, file=str(path)):
        jets._read(path)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    from gt_bench.data import prepare as module

    monkeypatch.setattr(module, "get_spec", lambda name: replace(get_spec(name), needs=("no_such_package",)))
    result = module.prepare("jets", tmp_path)
    assert result.state == "unavailable"
    assert "pip install no_such_package" in result.reason
    assert module.available("jets", tmp_path) == (False, "needs the package no_such_package")
