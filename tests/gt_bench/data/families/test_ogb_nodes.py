"""ogbn-arxiv and ogbn-products: small archives in the official format."""

import numpy as np
import pytest
import torch

from gt_bench.data.registry import get_spec
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import made
from tests.gt_bench.data.raw_files import csv_gz, ogb_zip


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-arxiv-undirected", "ogbn-products"])
def test_ogb(name, tmp_path):
    spec = get_spec(name)
    members = ogb_zip(tmp_path / "a.zip", spec)
    dataset = made(spec, tmp_path / "out", tmp_path / "a.zip")
    batch = dataset.batch(torch.tensor([0]))
    np.testing.assert_allclose(batch.x, members["raw/node-feat"], atol=1e-5)
    np.testing.assert_array_equal(dataset.split("val", 0), members[f"split/{spec.arguments['split']}/valid"][:, 0])
    if name == "ogbn-arxiv":
        np.testing.assert_array_equal(batch.edge_index.T, members["raw/edge"])  # directed, as stored
    else:
        assert dataset.header.statistics["symmetric"]
        assert dataset.num_edges == 2 * len(members["raw/edge"])
    assert sorted(p.name for p in tmp_path.glob("[!.]*")) == ["a.zip", "out"]


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        ("raw/edge", b"not gzip", "edge.csv.gz: not a readable table"),
        ("raw/node-label", csv_gz(np.array([[1.5]])), "node-label.csv.gz"),
        ("raw/node-feat", csv_gz(np.zeros((3, 128))), "'x' has 3 rows"),
        ("split/time/test", csv_gz(np.array([[50]])), "names id 50 of 50"),
    ],
)
def test_flawed_ogb_archives(member, content, message, tmp_path):
    spec = get_spec("ogbn-arxiv")
    ogb_zip(tmp_path / "a.zip", spec, **{member: content})
    with pytest.raises(DatasetError, match=message):
        made(spec, tmp_path / "out", tmp_path / "a.zip")
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]
