"""One miniature project for all fault tests."""

import pytest

from tests.faults.world import World


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("world"))
