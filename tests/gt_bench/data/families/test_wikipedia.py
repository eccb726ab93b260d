"""chameleon from the real archive."""

import json

import numpy as np
import pytest
import torch

from tests.gt_bench.data.checks import prepared


@pytest.mark.slow
def test_chameleon_equals_the_separate_files(tmp_path, mirror):
    dataset = prepared("chameleon", tmp_path, mirror)
    batch = dataset.batch(torch.tensor([0]))
    rows = np.loadtxt(mirror / "wikipedia/chameleon_edges.csv", delimiter=",", skiprows=1, dtype=int)
    assert len(rows) == 36101  # as stated by TokenGT
    assert {tuple(sorted(e)) for e in rows.tolist() if e[0] != e[1]} == {
        tuple(sorted(e)) for e in batch.edge_index.T.tolist()
    }
    features = json.loads((mirror / "wikipedia/chameleon.json").read_text())
    for node in ("0", "77", "2276"):
        assert batch.x[int(node)].nonzero().squeeze(1).tolist() == sorted(set(features[node]))
    traffic = np.loadtxt(mirror / "wikipedia/chameleon_target.csv", delimiter=",", skiprows=1, dtype=int)
    traffic = traffic[traffic[:, 0].argsort(), 1]
    highest = [traffic[batch.y.numpy() == c].max() for c in range(6)]
    lowest = [traffic[batch.y.numpy() == c].min() for c in range(6)]
    assert all(a < b for a, b in zip(highest, lowest[1:]))  # classes are intervals of traffic
