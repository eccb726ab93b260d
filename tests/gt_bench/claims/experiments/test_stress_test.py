"""Table 13 of PPGT: its runs are runs of the engine, and how they are evaluated."""

import pytest
import torch

from gt_bench.claims.checks import findings
from gt_bench.claims.checks.registry import find_check
from gt_bench.claims.experiments.registry import module_of
from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import get_spec
from gt_bench.data.standin import miniature
from gt_bench.encodings.compute import encode
from gt_models import kernels
from gt_models.ppgt.norms import AdaRMSNorm
from tests.gt_bench.cells import ET, changed, make_record
from tests.refusals import refused

stress_test = module_of("stress_test")


@pytest.fixture
def data(tmp_path):
    packed = tmp_path / "packed" / stress_test.DATASET
    miniature(get_spec(stress_test.DATASET), packed)
    encode(PackedDataset.open(packed), tmp_path / "encodings" / stress_test.DATASET, "rrwp", {"steps": 24})
    return tmp_path


@pytest.mark.slow
def test_the_three_norms_are_three_runs_and_the_bad_one_begins_as_the_identity(data, monkeypatch):
    monkeypatch.setattr(stress_test, "EPOCHS", 1)
    runs = {norm: stress_test.experiment(f"{norm}, 7e-3", data, data / "store") for norm in stress_test.NORMS}
    assert len({run.digest(0, test=False) for run in runs.values()}) == 3
    assert runs["RMSN"].recipe.model.norm == "rms"
    assert all(run.recipe.schedule.warmup == 50 and run.recipe.optimizer.lr == 0.007 for run in runs.values())
    norms = {norm: [m for m in run.build().modules() if isinstance(m, AdaRMSNorm)] for norm, run in runs.items()}
    assert not norms["RMSN"]
    x = torch.randn(3, norms["Bad-AdaRMSN"][-1].alpha.numel())
    torch.testing.assert_close(norms["Bad-AdaRMSN"][-1](x), x, rtol=1e-4, atol=1e-5)
    assert all((m.alpha == 0).all() and (m.beta == 1).all() for m in norms["AdaRMSN"])
    # one of them, trained as a run: stored, and not computed again
    with kernels.use("reference"):
        record, computed_now = runs["Bad-AdaRMSN"].run(0, test=False)
    assert computed_now
    assert stress_test.summary(record)["epochs"] == 1
    assert runs["Bad-AdaRMSN"].run(0, test=False) == (record, False)


def made(status, losses):
    return changed(make_record(ET, 0), run={"status": status, "error": None, "epochs": {"train_loss": losses}})


def test_a_crash_is_a_run_that_diverged_or_a_loss_that_ends_above_where_it_began():
    assert not stress_test.summary(made("ok", [1.5, 0.7, 0.5]))["crashed"]
    assert stress_test.summary(made("ok", [1.5, 0.7, 40.0]))["crashed"]
    found = stress_test.summary(made("diverged", [1.5, 0.7]))
    assert found.pop("run") == make_record(ET, 0).digest
    assert found == {"crashed": True, "status": "diverged", "epochs": 2, "losses": [1.5, 0.7]}
    assert stress_test.summary(made("diverged", []))["losses"] == []
    with pytest.raises(RuntimeError, match="ended as oom"):
        stress_test.summary(made("oom", [1.5]))


def test_without_molecules_one_line_states_how_to_have_them(tmp_path):
    with refused(stress_test.NoMolecules, remedy="run `dvc repro encode@zinc-reconstructed`"):
        stress_test.compute("RMSN, 7e-3", tmp_path)


def test_a_missing_stress_test_is_not_tested_and_names_its_command(monkeypatch):
    crashes = {"AdaRMSN, 7e-3": False, "Bad-AdaRMSN, 7e-3": True}
    trains, diverges = stress_test.summary(made("ok", [1.5, 0.5])), stress_test.summary(made("diverged", []))

    def found(kept):
        monkeypatch.setattr(findings.registry, "partial", lambda name: kept)
        return find_check("trains_or_crashes")(paper="ppgt", crashes=crashes)

    some = found({"AdaRMSN, 7e-3": trains})
    assert (some.computed, some.holds) == (False, None)
    assert "needs 1 runs" in some.reason
    assert "`gt-bench claims --recompute stress_test --case 'Bad-AdaRMSN, 7e-3'`" in some.reason
    assert found({"AdaRMSN, 7e-3": trains, "Bad-AdaRMSN, 7e-3": diverges}).holds is True
    wrong = found({"AdaRMSN, 7e-3": trains, "Bad-AdaRMSN, 7e-3": trains})
    assert (wrong.holds, wrong.computed) == (False, True)
    assert "Bad-AdaRMSN, 7e-3 trains (training loss 1.50 to 0.50)" in wrong.reason
