"""Golden values: comparison up to rounding, caching by the hash of the code, and cells without golden values."""

import json
from types import SimpleNamespace

import pytest

from gt_bench.experiment import golden_values
from gt_bench.experiment.golden_values import differences, first_difference, reference_cell, sealed
from gt_bench.utils.paths import INSTALLED
from gt_models.kernels import all_operations

MLP = "embedded/chains/mlp"
CODE = "f" * 64


@pytest.fixture
def computing(monkeypatch, tmp_path):
    """Replaces golden runs: they return the stored values, changed by `change`. `calls` has the cells of each call."""
    calls: list[list[str]] = []

    class Computing:
        change = staticmethod(lambda values: values)
        error: str | None = None

    def compute(cells, workers):
        calls.append(list(cells))
        found = {}
        for cell in cells:
            kept = golden_values.find(cell, INSTALLED)
            values = json.loads(json.dumps(kept["values"]))
            found[cell] = (sealed(kept | {"values": Computing.change(values)}), Computing.error)
        return found

    monkeypatch.setattr(golden_values, "_compute", compute)
    monkeypatch.setattr(golden_values, "ROOT", tmp_path / "root")
    Computing.calls = calls
    return Computing


def other_loss(values):
    values["losses"][1] *= 1 + 1e-4
    return values


def test_each_code_is_compared_once(computing):
    assert differences({MLP: CODE}) == {MLP: None}
    assert differences({MLP: CODE}) == {MLP: None}
    assert computing.calls == [[MLP]]
    computing.change = other_loss
    text = differences({MLP: "e" * 64})[MLP]
    assert text.startswith("losses[1] of its golden run was ")
    assert differences({MLP: "e" * 64}) == {MLP: text}
    assert len(computing.calls) == 2


def test_the_code_of_the_last_comparison_is_not_compared_again(computing, monkeypatch):
    monkeypatch.setattr(golden_values, "checked", lambda: {MLP: CODE[:16]})
    assert differences({MLP: CODE}) == {MLP: None}
    assert computing.calls == []


def test_a_golden_run_that_fails_is_a_difference(computing):
    computing.error = "diverged"
    assert differences({MLP: CODE}) == {MLP: "diverged"}
    computing.error = None
    assert differences({MLP: CODE}) == {MLP: None}, "an error is not cached: it may have been a lack of memory"


def test_a_killed_golden_run_is_an_error_and_not_a_difference(monkeypatch, tmp_path):
    monkeypatch.setattr(golden_values, "_cache_file", lambda *_: tmp_path / "cached.json")
    monkeypatch.setattr(golden_values, "checked", dict)
    monkeypatch.setattr(golden_values.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="", returncode=-9))
    with pytest.raises(
        golden_values.GoldenError, match=f"{MLP}: its golden run ended with status -9 .*; run the same command again"
    ):
        differences({MLP: CODE})
    assert not (tmp_path / "cached.json").exists()


def test_a_raised_version_is_not_a_difference(computing, monkeypatch):
    computing.change = other_loss
    find = golden_values.find

    def raised(cell, root=INSTALLED):
        kept = find(cell, root)
        return kept and kept | {"versions": kept["versions"] | {"model": 0}}

    monkeypatch.setattr(golden_values, "same_computation", lambda kept, now: False)
    assert differences({MLP: CODE}) == {MLP: None}


def test_the_reference_cell_of_a_cell_without_golden_values():
    assert reference_cell(MLP, "mlp", "node-classification") == MLP
    assert reference_cell("mine/web/mlp", "mlp", "node-classification") == "embedded/chains/mlp"
    assert (
        golden_values.model_and_task(reference_cell("mine/web/x", "lab/net.py:Net", "graph-regression"))[1]
        == "graph-regression"
    )
    assert reference_cell("mine/web/x", "lab/net.py:Net", "no such task") is None


def test_rounding_is_not_a_difference():
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


# called only by fast forms of models, which tests/gt_models/kernels/attached/ compares with the reference
OF_FAST_FORMS = {
    "ada_rms", "gelu_mlp", "attention_projection_of_one", "dropout", "gated_attention", "gated_norm", "graph_attention",
    "grit_attention", "kernel_attention", "multi_linear", "packed_attention", "row_linear", "sparse_linear",
    "triangular_attention",
}  # fmt: skip


def test_every_operation_is_called_by_some_golden_run():
    assert {name for name, cells in cells_by_operation().items() if not cells} == OF_FAST_FORMS
