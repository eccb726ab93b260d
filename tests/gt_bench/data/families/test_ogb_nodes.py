"""ogbn-arxiv and ogbn-products: small archives in the official format."""

import numpy as np
import pytest

from gt_bench.data.registry import get_spec
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import made
from tests.gt_bench.data.raw_files import csv_gz, ogb_zip
from tests.refusals import refused


@pytest.mark.parametrize(
    ("member", "content", "fields"),
    [
        ("raw/edge", b"not gzip", {"file": "edge.csv.gz"}),
        ("raw/node-label", csv_gz(np.array([[1.5]])), {"file": "node-label.csv.gz"}),
        ("raw/node-feat", csv_gz(np.zeros((3, 128))), {"place": "array 'x'", "value": 3}),
        ("split/time/test", csv_gz(np.array([[50]])), {"value": 50}),
    ],
)
def test_flawed_ogb_archives(member, content, fields, tmp_path):
    spec = get_spec("ogbn-arxiv")
    ogb_zip(tmp_path / "a.zip", spec, **{member: content})
    with refused(DatasetError, **fields):
        made(spec, tmp_path / "out", tmp_path / "a.zip")
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]
