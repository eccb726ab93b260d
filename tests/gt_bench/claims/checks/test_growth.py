"""Verdicts on powers of the size, from measured exponents."""

import pytest

from gt_bench.claims.checks.registry import find_check
from gt_bench.papers.published import PublishedError


def test_powers_of_the_size(kept):
    kept({"PPGT": {"sizes": [128, 256, 512], "exponent": {"operations": 1.9, "largest": 2.0}}})
    assert find_check("growth")(paper="ppgt", exponents={"PPGT": 2}).holds
    assert not find_check("growth")(paper="ppgt", exponents={"PPGT": 3}).holds
    assert not find_check("growth")(paper="ppgt", exponents={"PPGT": 2}, largest={"PPGT": 3}).holds
    with pytest.raises(PublishedError, match="growth names no model"):
        find_check("growth")(paper="ppgt", exponents={})
