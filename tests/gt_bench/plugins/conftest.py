"""Fixtures of tests of user-supplied models."""

from tests.gt_bench.user_models import forgotten, forked  # noqa: F401 (fixtures)
