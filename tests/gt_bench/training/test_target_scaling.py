"""Targets standardised with the statistics of the training part, or of all parts."""

import numpy as np
import pytest
import torch

from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import PackedDataset
from gt_bench.data.packed_writer import pack
from gt_bench.training.target_scaling import StandardisedTargets
from tests.gt_bench.conftest import header_of, pack_many, pack_web
from tests.gt_bench.runs import experiment

GRAPHS = {"graphs": 8}


@pytest.fixture
def packed(tmp_path):
    pack_web(tmp_path)
    pack_many(tmp_path)
    return PackedDataset.open(tmp_path / "packed" / "many")


@pytest.mark.parametrize("statistics", ["train", "all"])
def test_statistics(packed, statistics):
    raw = packed.batch(torch.arange(packed.num_graphs)).y.double()
    of = packed.split("train", 0) if statistics == "train" else torch.arange(packed.num_graphs)
    dataset = StandardisedTargets(packed, statistics, 0)
    y = dataset.batch(torch.arange(packed.num_graphs)).y
    assert y.shape == raw.shape
    torch.testing.assert_close(y.double(), (raw - raw[of].mean(0)) / raw[of].std(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(y[of].double().mean(0), torch.zeros_like(raw[0]), rtol=0, atol=1e-6)
    few = torch.tensor([3, 1])
    torch.testing.assert_close(dataset.batch(few).y, y[few])
    torch.testing.assert_close(dataset.batch(few).x, packed.batch(few).x)
    assert (dataset.header, dataset.num_graphs) == (packed.header, packed.num_graphs)


@pytest.mark.parametrize(("statistics", "split_kind"), [("train", "node"), ("all", "node"), ("train", "graph")])
def test_statistics_of_nodes(statistics, split_kind, tmp_path):
    """Node targets: statistics of the training nodes of one graph, or of all nodes of training graphs, without NaN."""
    rng = np.random.default_rng(0)
    y = rng.normal(5.0, 3.0, (40, 2)).astype(np.float32)
    y[7, 0] = np.nan
    sizes = [40] if split_kind == "node" else [10] * 4
    codes = rng.integers(1, 4, 40) if split_kind == "node" else np.array([1, 2, 1, 3])
    header = header_of("readings", "node-regression", in_dim=1, out_dim=2, split_kind=split_kind)
    arrays = {"num_nodes": np.array(sizes), "num_edges": np.zeros(len(sizes), np.int64)}
    arrays |= {"edge_index": np.zeros((2, 0), np.int64), "x": np.ones((40, 1), np.float32)}
    pack(tmp_path / "readings", header, arrays | {"y": y, "split": codes[None]})
    dataset = StandardisedTargets(PackedDataset.open(tmp_path / "readings"), statistics, 0)
    known = np.repeat(codes, sizes if split_kind == "graph" else 1)
    of = y if statistics == "all" else y[known == 1]
    of = of.astype(float)
    expected = (y - np.nanmean(of, 0)) / np.nanstd(of, 0, ddof=1)
    found = dataset.batch(torch.arange(len(sizes))).y
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32), rtol=1e-5, atol=1e-5, equal_nan=True)


def test_target_scaling_is_part_of_the_digest(packed, tmp_path):
    runs = [experiment(tmp_path, "many", batch=GRAPHS, targets=targets) for targets in (None, "train", "all")]
    assert len({e.digest(0) for e in runs}) == 3
    # the version of standardisation is part of the digest only if it is used
    assert [("targets" in e.versions) for e in runs] == [False, True, True]
    tests = [e.run(0)[0].run.test for e in runs]
    assert len(set(tests)) == 3
    with pytest.raises(RecipeError, match="only regression targets can be standardised"):
        experiment(tmp_path, "web", targets="train").run(0)
