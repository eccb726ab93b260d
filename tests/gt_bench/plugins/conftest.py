"""What the tests of user-supplied models share."""

import pytest

from gt_bench.plugins import models
from gt_models import registry


@pytest.fixture(autouse=True)
def forgotten():
    """What a test registers is gone after it."""
    before = {name: registry.model_info(name) for name in registry.list_models()}
    yield
    registry._INFOS.clear()
    registry._INFOS.update(before)
    models._SOURCES.clear()
