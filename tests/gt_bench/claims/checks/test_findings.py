"""Stored results of experiments, as checks read them."""

import pytest

from gt_bench.claims.checks import findings
from gt_bench.claims.checks.findings import Cases, load_cases, partial_values, percentages
from gt_bench.papers.published import PublishedError


def test_a_case_or_prefix_that_does_not_exist_names_the_nearest():
    found = Cases("growth", {"HOT (D)": 1, "HOT (S)": 2, "PPGT": 3})
    assert found["PPGT"] == 3
    assert found.with_prefix("HOT") == {"HOT (D)": 1, "HOT (S)": 2}
    for ask in (found.__getitem__, found.with_prefix):
        with pytest.raises(PublishedError, match=r"the finding growth has no case 'PPGTT' \(did you mean 'PPGT'\?\)"):
            ask("PPGTT")


def test_a_finding_that_is_stored_has_its_cases():
    assert load_cases("growth")["PPGT"]["sizes"]


def test_of_a_finding_that_misses_cases_those_that_are_there(monkeypatch):
    monkeypatch.setattr(findings.registry, "partial", lambda name: {"stand-in": 1, "dense, ORF": 2})
    assert partial_values("attention_maps", ["dense, ORF", "dense, Lap"]) == {"dense, ORF": 2}
    with pytest.raises(PublishedError, match="attention_maps has no case 'dense, ORFF'"):
        partial_values("attention_maps", ["dense, ORFF"])


def test_shares_in_percent():
    assert (percentages([0.25, 0.5]), percentages([0.5, 0.5])) == ("25.0 to 50.0 %", "50.0 %")
