"""Comparison of changed code: caching by the hash of the code, and cells without golden values."""

import copy
from types import SimpleNamespace

import pytest

from gt_bench.config.components import code_of
from gt_bench.experiment import golden_values, modified_code
from gt_bench.experiment.golden_values import sealed
from gt_bench.experiment.modified_code import differences, known_differences, reference_cells
from gt_bench.utils.paths import INSTALLED, SUITES
from tests.refusals import refused

MLP = "embedded/chains/mlp"
CODE = "f" * 64


@pytest.fixture(autouse=True)
def _reading(monkeypatch):
    """The function itself, which tests/conftest.py replaces."""
    monkeypatch.setattr(modified_code, "known_differences", known_differences)


@pytest.fixture
def computing(monkeypatch, tmp_path):
    """Replaces golden runs: they return the stored values, changed by `change`. `calls` has the cells of each call."""
    one = SimpleNamespace(change=lambda values: values, error=None, calls=[])

    def compute(cells, workers):
        one.calls.append(list(cells))
        kept = {cell: golden_values.find(cell, INSTALLED) for cell in cells}
        return {
            cell: (sealed(found | {"values": one.change(copy.deepcopy(found["values"]))}), one.error)
            for cell, found in kept.items()
        }

    monkeypatch.setattr(modified_code, "_compute", compute)
    monkeypatch.setattr(modified_code, "ROOT", tmp_path / "root")
    return one


def other_loss(values):
    values["losses"][1] *= 1 + 1e-4
    return values


def test_each_code_is_compared_once(computing):
    assert known_differences({MLP: CODE}) == {}
    assert differences({MLP: CODE}) == {MLP: None}
    assert differences({MLP: CODE}) == {MLP: None}
    assert computing.calls == [[MLP]]
    computing.change = other_loss
    text = differences({MLP: "e" * 64})[MLP]
    assert text.startswith("losses[1] of its golden run was ")
    assert differences({MLP: "e" * 64}) == known_differences({MLP: "e" * 64}) == {MLP: text}
    assert len(computing.calls) == 2


def test_the_code_of_the_last_comparison_is_not_compared_again(computing, monkeypatch):
    monkeypatch.setattr(modified_code, "checked", lambda: {MLP: CODE[:16]})
    assert differences({MLP: CODE}) == {MLP: None}
    assert computing.calls == []


def test_a_golden_run_that_fails_is_a_difference(computing):
    computing.error = "diverged"
    assert differences({MLP: CODE}) == {MLP: "diverged"}
    computing.error = None
    assert differences({MLP: CODE}) == {MLP: None}, "an error is not cached: it may have been a lack of memory"


def test_a_killed_golden_run_is_an_error_and_not_a_difference(monkeypatch, tmp_path):
    monkeypatch.setattr(modified_code, "_cache_file", lambda *_: tmp_path / "cached.json")
    monkeypatch.setattr(modified_code, "checked", dict)
    monkeypatch.setattr(modified_code.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="", returncode=-9))
    with refused(golden_values.GoldenError, file=MLP, value=-9):
        differences({MLP: CODE})
    assert not (tmp_path / "cached.json").exists()


def test_a_golden_run_that_compares_golden_values_starts_no_further_ones(monkeypatch, tmp_path):
    monkeypatch.setattr(modified_code, "ROOT", tmp_path)
    monkeypatch.setenv(modified_code.NESTED, "1")
    with refused(golden_values.GoldenError, problem="compared within a golden run"):
        differences({MLP: CODE})


def test_a_raised_version_is_not_a_difference(computing, monkeypatch):
    computing.change = other_loss
    monkeypatch.setattr(modified_code, "same_computation", lambda kept, now: False)
    assert differences({MLP: CODE}) == {MLP: None}


RUN = ("model", "task", "trainer")


@pytest.mark.parametrize(
    ("model", "task", "components", "at_most"),
    [
        ("mlp", "node-classification", RUN, 1),
        ("edge-transformer", "link-prediction", RUN, 2),
        ("hot", "edge-regression", RUN, 2),
        ("gcn", "node-classification", (*RUN, "subgraphs", "processes", "encoding rrwp"), 4),
        ("lab/net.py:Net", "graph-regression", ("task", "trainer", "targets"), 1),
        ("lab/net.py:Net", "no such task", ("trainer",), 1),
        ("lab/net.py:Net", "no such task", ("task",), 0),
    ],
)
def test_reference_cells_cover_every_component_of_a_cell_without_golden_values(model, task, components, at_most):
    entries = [golden_values.find(cell, INSTALLED) for cell in reference_cells("mine/web/x", model, task, components)]
    assert len(entries) <= at_most
    assert set(components) <= set().union(*(entry["versions"] for entry in entries)) or not entries
    if entries and "model" in components:
        assert model in {entry["model"] for entry in entries}
    if entries and "task" in components:
        assert task in {entry["task"] for entry in entries}


def test_a_cell_with_golden_values_is_its_own_reference():
    assert reference_cells(MLP, "mlp", "node-classification", RUN) == [MLP]


@pytest.mark.slow
def test_the_golden_values_were_compared_with_this_code():
    """Otherwise the first command of each clone compares them again."""
    known = modified_code.checked()
    old = [
        cell
        for suite in sorted(path.parent.name for path in (INSTALLED / SUITES).glob("*/golden.json"))
        for cell, entry in golden_values.load(suite, INSTALLED).items()
        if known.get(cell) != code_of(entry["model"], entry["task"])[:16]
    ]
    assert not old, f"code of {len(old)} cells has changed: python -m gt_bench.testing.check_grid --update"
