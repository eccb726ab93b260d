"""Digests of JSON content: both forms are part of stored keys and may not change."""

from pathlib import Path

import pytest

from gt_bench.utils.digest import digest_of

CONTENT = {"b": [1, 2.5, None], "a": "±"}


def test_both_forms_are_the_ones_of_stored_keys():
    assert digest_of(CONTENT)[:16] == "079f2d44b76e0fac"
    assert digest_of(CONTENT, spaced=True)[:16] == "cb0c525777936bfb"
    assert digest_of(dict(reversed(CONTENT.items()))) == digest_of(CONTENT)


def test_other_values_need_a_default():
    with pytest.raises(TypeError, match="not JSON serializable"):
        digest_of(Path("a"))
    assert digest_of(Path("a"), default=str) == digest_of("a")
