"""Rows of the leaderboard for claims."""

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.leaderboard.collect import every_row
from tests.conftest import ROOT


@pytest.fixture(scope="package")
def shipped():
    """Rows of all shipped records."""
    return every_row(load_grid(), ROOT / "suites")
