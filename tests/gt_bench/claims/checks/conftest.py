"""A replacement for the stored results of experiments."""

import pytest

from gt_bench.claims.checks import findings


@pytest.fixture
def kept(monkeypatch):
    """`kept({case: value})` replaces the content of a finding."""
    return lambda values: monkeypatch.setattr(findings.registry, "values", lambda name: values)
