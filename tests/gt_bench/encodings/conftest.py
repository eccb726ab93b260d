"""A packed dataset of six graphs."""

import pytest

from tests.gt_bench.encodings.cases import make_packed


@pytest.fixture
def packed(tmp_path):
    return make_packed(tmp_path / "data/packed/tiny")
