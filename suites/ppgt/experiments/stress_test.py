"""PPGT, Appendix C.4 and Table 13: does training crash at large learning rates, by norm and initialisation?

As published: ZINC, the first 50 epochs, RMSN, AdaRMSN, and AdaRMSN that is initialised as the identity (alpha 1, beta
0, "Bad-AdaRMSN"), four learning rates, and otherwise Table 7. Its warm-up is also 50 epochs, so that the last epoch has
49/50 of the learning rate. A crash is NaN or an exploding loss. Here, a run crashes if it diverges, or if the training
loss of its last epoch is larger than that of the first. Not published: the seed (0) and clipping (at 1, as in the
authors' code). The training set is the reconstructed one.

Each case is an ordinary run of about an hour on one core. It is stored in store/ and resumes from its checkpoint. Cases
can be computed one by one, and some may be missing (OPEN).
"""

# mypy: disable-error-code="arg-type"

from pathlib import Path
from typing import Any

from torch import nn

from gt_bench.config.params import RunSettings
from gt_bench.config.recipe import load_recipe
from gt_bench.experiment.run import STORE, Experiment
from gt_bench.records.run import RunRecord
from gt_bench.store.run_store import Store
from gt_bench.utils.errors import UserError
from gt_bench.utils.paths import INSTALLED, SUITES, recipe_file
from gt_models.ppgt.norms import AdaRMSNorm

DATASET, RECIPE = "zinc-reconstructed", recipe_file("ppgt/zinc-reconstructed/ppgt", INSTALLED / SUITES)
NORMS, EPOCHS = {"RMSN": "rms", "AdaRMSN": "adarms", "Bad-AdaRMSN": "adarms"}, 50
# the learning rates of the claim come first
RATES = {"7e-3": 0.007, "1e-2": 0.01, "2e-3": 0.002, "7e-2": 0.07}
CASES = [f"{norm}, {rate}" for rate in RATES for norm in NORMS]
QUICK: list[str] = []
NEEDS = (DATASET,)
OPEN = True
# an exploding loss is chaotic and differs between processors
ROUNDING = ("losses", "run")


class NoMolecules(UserError, RuntimeError):
    """ZINC is not packed, or its encoding not computed."""


class StressTest(Experiment):
    """A run of PPGT whose AdaRMSNorms are initialised as the identity if `identity` is set."""

    identity = False

    def build(self) -> nn.Module:
        """Returns the initialised model."""
        model = super().build()
        if self.identity:
            for module in model.modules():
                if isinstance(module, AdaRMSNorm):
                    nn.init.ones_(module.alpha)
                    nn.init.zeros_(module.beta)
        return model

    def decisive(self, seed: int) -> dict[str, Any]:
        """Returns the content of the run's digest, with the initialisation."""
        return super().decisive(seed) | ({"adarms": "begins as the identity"} if self.identity else {})


def experiment(case: str, data: Path, store: Path = STORE, settings: RunSettings | None = None) -> StressTest:
    """Returns the run of a case.

    Raises:
        NoMolecules: ZINC is not packed, or its encoding is missing.
    """
    norm, rate = case.split(", ")
    if not (data / "packed" / DATASET).is_dir() or not (data / "encodings" / DATASET).is_dir():
        remedy = f"run `dvc repro encode@{DATASET}`"
        raise NoMolecules("it or its encodings are not prepared", file=data / "packed" / DATASET, remedy=remedy)
    values = {"model.norm": NORMS[norm], "optimizer.lr": RATES[rate], "epochs": EPOCHS, "schedule.total": 2500}
    recipe = load_recipe(RECIPE).with_values(values)
    found = StressTest(recipe, str(RECIPE), DATASET, settings or RunSettings(), Store(store), data)
    found.identity = norm == "Bad-AdaRMSN"
    return found


def compute(case: str, data: Path) -> dict[str, Any]:
    """Runs a case.

    Returns:
        `crashed`; the `status` of the run, its number of `epochs`, training `losses` of the first, every tenth and the
            last epoch, and the digest of the `run`.

    Raises:
        NoMolecules: ZINC is not packed, or its encoding is missing.
    """
    return summary(experiment(case, data).run(0, test=False)[0])


def summary(record: RunRecord) -> dict[str, Any]:
    """Returns the summary of a record.

    Raises:
        RuntimeError: the run neither finished nor diverged.
    """
    run = record.run
    if run.status not in ("ok", "diverged"):
        raise RuntimeError(f"the run {record.digest} ended as {run.status}: {run.error}")
    losses = [loss for loss in run.epochs["train_loss"] if loss is not None]
    return {
        "crashed": run.status == "diverged" or losses[-1] > losses[0],
        "status": run.status.value,
        "epochs": len(losses),
        "losses": [round(loss, 4) for loss in (*losses[::10], *losses[-1:])],  # empty if it diverged at once
        "run": record.digest,
    }
