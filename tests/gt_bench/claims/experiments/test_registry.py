"""Stored results of experiments: complete, protected by a checksum, and equal when computed again."""

import json
from pathlib import Path

import pytest

from gt_bench.claims.experiments import registry
from gt_bench.claims.experiments.registry import (
    FindingError,
    agree,
    load,
    module_of,
    partial,
    recompute,
    same,
    stale,
    values,
)
from tests.refusals import refused

polynomials = module_of("polynomials")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "case"), [(name, case) for name in registry.experiments() for case in module_of(name).QUICK]
)
def test_computed_again_it_is_what_is_stored(name, case):
    needed = [Path("data/packed", dataset) for dataset in getattr(module_of(name), "NEEDS", ())]
    if missing := [folder for folder in needed if not folder.is_dir()]:
        pytest.skip(f"{missing[0]} is not available")
    assert agree(name, json.loads(json.dumps(module_of(name).compute(case, Path("data")))), load(name)[case]["value"])


@pytest.mark.parametrize("name", registry.experiments())
def test_every_case_is_stored_with_the_commit_that_made_it(name):
    module = module_of(name)
    opened = getattr(module, "OPEN", False)
    if not opened:
        assert values(name).keys() == set(module.CASES)
    for case, found in load(name).items() if not opened or partial(name) else ():
        assert case in module.CASES
        assert len(found["commit"]) == 40, f"{name}, {case}: made by code that is in no commit"
    assert set(module.QUICK) <= set(module.CASES)
    assert len(module.CASES) == len(set(module.CASES)) > 0


@pytest.fixture
def folder(tmp_path):
    assert not recompute("polynomials", ["n = 2, L = 2", "n = 3, L = 2"], folder=tmp_path, say=lambda line: None)
    return tmp_path


def test_a_stored_finding_names_its_version_and_command(folder):
    found = load("polynomials", folder)
    assert list(found) == ["n = 2, L = 2", "n = 3, L = 2"]
    one = found["n = 3, L = 2"]
    assert one["value"] == {"monomials": 10, "represented": 10, "missing": []}
    assert (one["command"], one["version"]) == ("gt-bench claims --recompute polynomials", 1)
    assert stale("polynomials", folder) == []


def test_computed_again_it_agrees_and_nothing_is_written(folder):
    before = (folder / "polynomials.json").read_bytes()
    said: list[str] = []
    assert recompute("polynomials", ["n = 2, L = 2"], folder=folder, say=said.append)
    assert said[0].endswith("unchanged")
    assert (folder / "polynomials.json").read_bytes() == before


def test_another_value_is_reported_and_takes_its_place(folder, monkeypatch):
    monkeypatch.setattr(
        polynomials, "compute", lambda case, data: {"monomials": 5, "represented": 4, "missing": [[2, 2]]}
    )
    said: list[str] = []
    assert not recompute("polynomials", ["n = 2, L = 2"], folder=folder, say=said.append)
    assert 'was {"monomials": 4' in said[0]
    assert load("polynomials", folder)["n = 2, L = 2"]["value"]["represented"] == 4
    assert load("polynomials", folder)["n = 3, L = 2"]["value"]["represented"] == 10


def test_two_processes_at_different_cases_keep_both(folder, monkeypatch):
    compute = polynomials.compute

    def meanwhile(case, data):
        monkeypatch.setattr(polynomials, "compute", compute)
        recompute("polynomials", ["n = 2, L = 3"], folder=folder, say=lambda line: None)
        return compute(case, data)

    monkeypatch.setattr(polynomials, "compute", meanwhile)
    recompute("polynomials", ["n = 4, L = 2"], folder=folder, say=lambda line: None)
    assert list(load("polynomials", folder)) == ["n = 2, L = 2", "n = 3, L = 2", "n = 4, L = 2", "n = 2, L = 3"]


def test_findings_of_another_version_are_stale(folder, monkeypatch):
    monkeypatch.setattr("gt_bench.claims.experiments.registry.version_in", lambda path: 2)
    assert stale("polynomials", folder) == ["n = 2, L = 2", "n = 3, L = 2"]


def test_an_edited_finding_is_refused(folder):
    path = folder / "polynomials.json"
    path.write_text(path.read_text().replace('"represented": 4', '"represented": 3'))
    with refused(FindingError, file=str(path), problem="was edited after it was computed"):
        load("polynomials", folder)


@pytest.mark.parametrize("content", ["", "[]", '{"cases": {}}'])
def test_a_damaged_file_is_one_line(folder, content):
    (folder / "polynomials.json").write_text(content)
    with refused(FindingError, file=str(folder / "polynomials.json")) as error:
        load("polynomials", folder)
    assert "cannot be read" in error.value.problem
    assert "\n" not in str(error.value)


def test_values_of_a_finding_with_a_missing_case_are_refused(folder):
    with refused(FindingError, value="n = 4, L = 2"):
        values("polynomials", folder)


def test_recompute_drops_a_case_that_the_experiment_no_longer_has(folder):
    path = folder / "polynomials.json"
    cases = json.loads(path.read_text())["cases"] | {"n = 9, L = 9": {"version": 1}}
    path.write_text(json.dumps({"cases": cases, "sha256": registry.sealed(cases)}))
    recompute("polynomials", ["n = 2, L = 3"], folder=folder, say=lambda line: None)
    assert list(load("polynomials", folder)) == ["n = 2, L = 2", "n = 3, L = 2", "n = 2, L = 3"]


def test_unknown_names(tmp_path):
    with refused(FindingError, value="polynomial"):
        load("polynomial", tmp_path)
    with refused(FindingError, value="n = 2, L = 22"):
        recompute("polynomials", ["n = 2, L = 22"], folder=tmp_path)
    with refused(FindingError, remedy="compute it by `gt-bench claims --recompute polynomials`"):
        load("polynomials", tmp_path)


def test_numbers_are_the_same_up_to_rounding():
    assert same({"a": [1.0, 2, "x"]}, {"a": [1.0 + 1e-9, 2, "x"]})
    assert not same({"a": 1.0}, {"a": 1.001})
    assert not same({"a": 1}, {"b": 1})
    assert not same([1.0], [1.0, 1.0])
