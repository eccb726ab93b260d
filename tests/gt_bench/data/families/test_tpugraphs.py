"""tpugraphs: small archives in the official format."""

import numpy as np
import pytest
import torch

from gt_bench.data.families import tpugraphs
from gt_bench.data.registry import get_spec
from tests.gt_bench.data.checks import made
from tests.gt_bench.data.raw_files import tpu_tar


@pytest.mark.parametrize(
    ("name", "kind"), [("tpugraphs-layout-xla-random", "layout"), ("tpugraphs-layout-tile", "tile")]
)
def test_tpugraphs(name, kind, tmp_path):
    graphs = tpu_tar(tmp_path / "train.tar", kind, [9, 14, 6]) + tpu_tar(tmp_path / "valid.tar", kind, [11, 7], 1)
    spec = get_spec(name)
    dataset = made(spec, tmp_path / "out", tmp_path / "train.tar", tmp_path / "valid.tar")
    assert dataset.split("test", 0).tolist() == [3, 4]
    for index, data in enumerate(graphs):
        batch = dataset.batch(torch.tensor([index]))
        np.testing.assert_array_equal(batch.x, data["node_feat"])
        np.testing.assert_array_equal(batch.edge_index.T, data["edge_index"])
        np.testing.assert_array_equal(batch.extras["opcode"], data["node_opcode"])
        runtimes, features, ids = tpugraphs.configurations(dataset, index)
        np.testing.assert_allclose(runtimes, data["config_runtime"] / (1 if kind == "layout" else 3))
        np.testing.assert_array_equal(features, data["node_config_feat" if kind == "layout" else "config_feat"])
        assert ids is None if kind == "tile" else np.array_equal(ids, data["node_config_ids"])


def test_ordered_pair_accuracy_and_segments():
    rng = np.random.default_rng(0)
    runtimes, scores = rng.integers(0, 9, 40).astype(float), rng.integers(0, 9, 40).astype(float)
    pairs = [(i, j) for i in range(40) for j in range(40) if runtimes[i] > runtimes[j]]
    assert tpugraphs.ordered_pair_accuracy(scores, runtimes) == pytest.approx(
        np.mean([scores[i] > scores[j] for i, j in pairs])
    )
    assert tpugraphs.ordered_pair_accuracy(runtimes, runtimes) == 1
    with pytest.raises(ValueError, match="all runtimes are equal"):
        tpugraphs.ordered_pair_accuracy(scores, np.ones(40))
    cut = tpugraphs.segments(23, 5)
    assert [i for s in cut for i in range(23)[s]] == list(range(23))
    assert max(len(range(23)[s]) for s in cut) == 5
    with pytest.raises(ValueError, match="at least one node"):
        tpugraphs.segments(5, 0)
