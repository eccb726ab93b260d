"""docs/datasets.md: the tables are generated, and its notes equal those of the catalog."""

import pytest

from gt_bench.data.packed import PackedDataset
from gt_bench.data.prepare import prepare
from gt_bench.encodings.compute import encode
from tools.docs import datasets


def test_tables_hold_what_was_measured(tmp_path):
    result = prepare("chains", tmp_path)
    packed = PackedDataset.open(result.folder)
    encode(packed, tmp_path / "encodings/chains", "laplacian", {"k": 4})
    encode(packed, tmp_path / "encodings/chains", "rrwp", {"steps": 3}, limit=0)
    key = "laplacian-k=4-normalization=sym-which=lowest"
    log = f"chains: packed in 1.5 s; 9 KiB in data\nchains: {key}: 280 graphs, 0.3 MiB, 2.5 s\n"
    row = next(line for line in datasets.prepared(tmp_path, log).splitlines() if "chains" in line)
    assert row.startswith("| `chains` | node-classification | accuracy | 280 | 12,800 | 25,040 |")
    assert row.endswith("| 1.5 |")
    stored, on_the_fly = datasets.encoded(tmp_path, log).splitlines()[2:]
    assert f"`{key}` | laplacian_eigenvalues 280 x 4, laplacian_eigenvectors 12,800 x 4 |" in stored
    assert stored.endswith("| 2.5 |")
    assert "more than the limit of" in on_the_fly
    assert "`chains`" not in datasets.absent(tmp_path)
    assert "`texas`" in datasets.absent(tmp_path)


def test_marks_are_filled_and_nothing_else():
    before = "head\n<!-- prepared -->\nold\n<!-- end -->\nmiddle\n<!-- flaws -->\n<!-- end -->\ntail\n"
    after = datasets.fill(before, {"prepared": "new", "flaws": "- one"})
    assert after == "head\n<!-- prepared -->\nnew\n<!-- end -->\nmiddle\n<!-- flaws -->\n- one\n<!-- end -->\ntail\n"
    assert datasets.fill(after, {"prepared": "new", "flaws": "- one"}) == after
    with pytest.raises(KeyError, match="mark <!-- encoded --> is missing"):
        datasets.fill(before, {"encoded": ""})
