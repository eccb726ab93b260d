"""Stored results of experiments, as checks read them."""

from gt_bench.claims.checks import findings
from gt_bench.claims.checks.findings import Cases, partial_values
from gt_bench.claims.checks.registry import find_check
from gt_bench.claims.experiments.registry import module_of
from gt_bench.papers.results_file import PublishedError
from tests.refusals import refused


def test_a_case_or_prefix_that_does_not_exist_names_the_nearest():
    found = Cases("growth", {"HOT (D)": 1, "HOT (S)": 2, "PPGT": 3})
    assert found["PPGT"] == 3
    assert found.with_prefix("HOT") == {"HOT (D)": 1, "HOT (S)": 2}
    for ask in (found.__getitem__, found.with_prefix):
        with refused(PublishedError, value="PPGTT"):
            ask("PPGTT")


def test_an_incomplete_finding_is_checked_on_its_cases(monkeypatch):
    monkeypatch.setattr(findings.registry, "partial", lambda name: {"stand-in": 1, "dense, ORF": 2})
    known = ["dense, ORF", "dense, Lap", "stand-in"]
    assert partial_values("attention_maps", ["dense, ORF", "dense, Lap"], known) == {"dense, ORF": 2}
    with refused(PublishedError, value="dense, ORFF"):
        partial_values("attention_maps", ["dense, ORFF"], known)


def test_checks_name_cases_and_cells_of_the_experiments():
    polynormer, tokengt, ppgt = (
        find_check(check).raw_function.__globals__
        for check in ("attention_differentiates_labels", "maps_are_bases", "trains_or_crashes")
    )
    assert ppgt["STRESS_TEST"] == module_of("stress_test").CASES
    assert [polynormer["PAIRS"], polynormer["ATTENTION"]] == module_of("same_label").CASES
    assert polynormer["CELL"] == module_of("same_label").CELL
    for name, cells in (("attention_maps", tokengt["MAPS"]), ("attention_distance", tokengt["DISTANCES"])):
        assert cells == {case: cell for case, cell in module_of(name).CELLS.items() if case != tokengt["STAND_IN"]}
