"""Golden values stand between code and records: equal, and nothing runs again; other values, and a run has a key of its own."""

import json
from types import SimpleNamespace

import pytest

from gt_bench.experiment import golden_values
from gt_bench.experiment.golden_values import first_difference, guardian, sealed, verdicts
from gt_bench.utils.paths import INSTALLED
from gt_models.kernels import all_operations

MLP = "embedded/chains/mlp"
CODE = "f" * 64


@pytest.fixture
def computing(monkeypatch, tmp_path):
    """Golden runs that find what is kept, changed by `change`; `calls` are the cells of each time that some were computed."""
    calls: list[list[str]] = []

    class Computing:
        change = staticmethod(lambda values: values)
        error: str | None = None

    def computed(cells, workers):
        calls.append(list(cells))
        found = {}
        for cell in cells:
            kept = golden_values.find(cell, INSTALLED)
            values = json.loads(json.dumps(kept["values"]))
            found[cell] = (sealed(kept | {"values": Computing.change(values)}), Computing.error)
        return found

    monkeypatch.setattr(golden_values, "_computed", computed)
    monkeypatch.setattr(golden_values, "ROOT", tmp_path / "root")
    Computing.calls = calls
    return Computing


def other_loss(values):
    values["losses"][1] *= 1 + 1e-4
    return values


def test_each_code_is_compared_once(computing):
    assert verdicts({MLP: CODE}) == {MLP: None}
    assert verdicts({MLP: CODE}) == {MLP: None}
    assert computing.calls == [[MLP]]
    computing.change = other_loss
    text = verdicts({MLP: "e" * 64})[MLP]
    assert text.startswith("losses[1] of its golden run was ")
    assert verdicts({MLP: "e" * 64}) == {MLP: text}
    assert len(computing.calls) == 2


def test_the_code_of_the_last_comparison_is_not_compared_again(computing, monkeypatch):
    monkeypatch.setattr(golden_values, "checked", lambda: {MLP: CODE[:16]})
    assert verdicts({MLP: CODE}) == {MLP: None}
    assert computing.calls == []


def test_a_golden_run_that_fails_is_a_difference(computing):
    computing.error = "diverged"
    assert verdicts({MLP: CODE}) == {MLP: "diverged"}
    computing.error = None
    assert verdicts({MLP: CODE}) == {MLP: None}, "an error is not remembered: it may have been a lack of memory"


def test_a_golden_run_without_an_outcome_is_an_error_and_no_verdict(monkeypatch, tmp_path):
    monkeypatch.setattr(golden_values, "_remembered", lambda *_: tmp_path / "verdict.json")
    monkeypatch.setattr(golden_values, "checked", dict)
    monkeypatch.setattr(golden_values.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="", returncode=-9))
    with pytest.raises(
        golden_values.GoldenError, match=f"{MLP}: its golden run ended with status -9 .*; run the same command again"
    ):
        verdicts({MLP: CODE})
    assert not (tmp_path / "verdict.json").exists()


def test_a_raised_version_is_no_modification(computing, monkeypatch):
    computing.change = other_loss
    find = golden_values.find

    def raised(cell, root=INSTALLED):
        kept = find(cell, root)
        return kept and kept | {"versions": kept["versions"] | {"model": 0}}

    monkeypatch.setattr(golden_values, "same_computation", lambda kept, now: False)
    assert verdicts({MLP: CODE}) == {MLP: None}


def test_who_speaks_for_a_cell_without_golden_values():
    assert guardian(MLP, "mlp", "node-classification") == MLP
    assert guardian("mine/web/mlp", "mlp", "node-classification") == "embedded/chains/mlp"
    assert (
        golden_values.model_and_task(guardian("mine/web/x", "lab/net.py:Net", "graph-regression"))[1]
        == "graph-regression"
    )
    assert guardian("mine/web/x", "lab/net.py:Net", "no such task") is None


def test_rounding_is_no_difference():
    kept = {"losses": [1.0, 1e-12, float("nan"), None], "best_epoch": 3, "test": {"loss": 2.0}}
    assert (
        first_difference(
            kept, {"losses": [1.0 + 9e-7, -1e-12, float("nan"), None], "best_epoch": 3, "test": {"loss": 2.0}}
        )
        is None
    )
    for changed, name in (
        (kept | {"losses": [1.0 + 3e-6, 1e-12, float("nan"), None]}, "losses[0]"),
        (kept | {"losses": [1.0, 1e-12, float("nan")]}, "losses[3]"),
        (kept | {"losses": [1.0, 1e-12, 0.0, None]}, "losses[2]"),
        (kept | {"test": {"loss": None}}, "test.loss"),
        (kept | {"norm": 1.0}, "norm"),
    ):
        assert first_difference(kept, changed)[0] == name


def cells_by_operation() -> dict[str, list[str]]:
    """For each operation of gt_models.kernels the cells whose golden run calls it."""
    found: dict[str, list[str]] = {name: [] for name in all_operations()}
    for path in sorted((INSTALLED / "suites").glob(f"*/{golden_values.VALUES}")):
        for cell, entry in golden_values.load(path.parent.name, INSTALLED).items():
            for operation in entry["operations"]:
                found[operation].append(cell)
    return found


def test_every_operation_is_called_by_some_golden_run():
    assert {name for name, cells in cells_by_operation().items() if not cells} == set()
