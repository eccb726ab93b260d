"""What findings keep, as the tests of claims read it."""

import pytest

from gt_bench.claims.checks import experiment_values
from gt_bench.claims.checks.experiment_values import Cases, of, percentages, so_far
from gt_bench.papers.published import PublishedError


def test_cases_are_asked_for_by_name_or_beginning_and_one_that_is_not_there_names_the_nearest():
    found = Cases("growth", {"HOT (D)": 1, "HOT (S)": 2, "PPGT": 3})
    assert found["PPGT"] == 3
    assert found.beginning("HOT") == {"HOT (D)": 1, "HOT (S)": 2}
    for ask in (found.__getitem__, found.beginning):
        with pytest.raises(PublishedError, match=r"the finding growth has no case 'PPGTT' \(did you mean 'PPGT'\?\)"):
            ask("PPGTT")


def test_a_finding_that_is_kept_has_its_cases():
    assert of("growth")["PPGT"]["sizes"]


def test_of_a_finding_that_lacks_cases_those_that_are_there(monkeypatch):
    monkeypatch.setattr(experiment_values.registry, "partial", lambda name: {"stand-in": 1, "dense, ORF": 2})
    assert so_far("attention_maps", ["dense, ORF", "dense, Lap"]) == {"dense, ORF": 2}
    with pytest.raises(PublishedError, match="attention_maps has no case 'dense, ORFF'"):
        so_far("attention_maps", ["dense, ORFF"])


def test_shares_in_percent():
    assert (percentages([0.25, 0.5]), percentages([0.5, 0.5])) == ("25.0 to 50.0 %", "50.0 %")
