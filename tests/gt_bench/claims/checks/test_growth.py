"""Verdicts on powers of the size, from measured exponents."""

from gt_bench.claims.checks.registry import find_check
from gt_bench.papers.results_file import PublishedError
from tests.refusals import refused


def test_powers_of_the_size(kept):
    kept({"PPGT": {"sizes": [128, 256, 512], "exponent": {"operations": 1.9, "largest": 2.0}}})
    assert find_check("growth")(paper="ppgt", exponents={"PPGT": 2}).holds
    assert not find_check("growth")(paper="ppgt", exponents={"PPGT": 3}).holds
    assert not find_check("growth")(paper="ppgt", exponents={"PPGT": 2}, largest={"PPGT": 3}).holds
    with refused(PublishedError, remedy="give `exponents` or `largest`"):
        find_check("growth")(paper="ppgt", exponents={})
