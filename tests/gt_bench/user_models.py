"""Helpers of tests that write and register models of users."""

import textwrap
from pathlib import Path

import pytest

from gt_bench.plugins import models
from gt_models import registry


@pytest.fixture(autouse=True)
def forgotten():
    """Forget after each test the models that it registered."""
    before = {name: registry.model_info(name) for name in registry.list_models()}
    yield
    registry._INFOS.clear()
    registry._INFOS.update(before)
    models._SOURCES.clear()


def write(name: str, text: str) -> str:
    """Write a Python file, without the common indentation of its text, and return its name."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(textwrap.dedent(text).lstrip())
    return name
