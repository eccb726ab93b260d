"""Fixtures of tests of user-supplied models."""

import pytest

from gt_bench.plugins import models
from gt_models import registry


@pytest.fixture(autouse=True)
def forgotten():
    """Remove after each test what it registered."""
    before = {name: registry.model_info(name) for name in registry.list_models()}
    yield
    registry._INFOS.clear()
    registry._INFOS.update(before)
    models._SOURCES.clear()
