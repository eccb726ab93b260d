"""Golden values: comparison up to rounding, and the operations that golden runs call."""

from gt_bench.experiment import golden_values
from gt_bench.experiment.golden_values import first_difference
from gt_bench.utils.paths import INSTALLED
from gt_models.kernels import all_operations


def test_rounding_is_not_a_difference():
    kept = {"losses": [1.0, 1e-12, float("nan"), None], "best_epoch": 3, "test": {"loss": 2.0}}
    assert first_difference(kept, kept | {"losses": [1.0 + 9e-7, -1e-12, float("nan"), None]}) is None
    for changed, name in (
        (kept | {"losses": [1.0 + 3e-6, 1e-12, float("nan"), None]}, "losses[0]"),
        (kept | {"losses": [1.0, 1e-12, float("nan")]}, "losses[3]"),
        (kept | {"losses": [1.0, 1e-12, 0.0, None]}, "losses[2]"),
        (kept | {"test": {"loss": None}}, "test.loss"),
        (kept | {"norm": 1.0}, "norm"),
    ):
        assert first_difference(kept, changed)[0] == name


# called only by fast forms of models, which tests/gt_models/kernels/attached/ compares with the reference
OF_FAST_FORMS = {
    "ada_rms", "gelu_mlp", "attention_projection_of_one", "dropout", "gated_attention", "gated_norm", "graph_attention",
    "grit_attention", "kernel_attention", "multi_linear", "packed_attention", "sparse_linear",
    "triangular_attention",
}  # fmt: skip


def test_every_operation_is_called_by_some_golden_run():
    called = set()
    for path in (INSTALLED / "suites").glob(f"*/{golden_values.VALUES}"):
        called.update(*(entry["operations"] for entry in golden_values.load(path.parent.name, INSTALLED).values()))
    assert set(all_operations()) - called == OF_FAST_FORMS
