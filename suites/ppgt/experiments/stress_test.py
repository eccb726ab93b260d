"""PPGT, Appendix C.4 and Table 13: does training crash at large learning rates, by the norm and by how AdaRMSNorm begins?

As printed: ZINC, the first 50 epochs, RMSN, AdaRMSN, and AdaRMSN that begins as the identity (alpha 1, beta 0, "Bad-AdaRMSN"), four learning rates, and Table 7 otherwise: its warm-up is 50 epochs
too, so the last epoch has 49/50 of the printed rate. A crash is NaN or a loss that explodes; here: the run diverged, or its last epoch's training loss is above the first one's. Unprinted: the seed
(0), clipping (at 1, as in the authors' code), and the training set here is the reconstructed one.
Each case is a run like any other: an hour of one core, kept in store/ by its digest, continued from its checkpoint where it was stopped, and never repeated. So it may be computed case by case, and some
may lack (OPEN).
"""

# mypy: disable-error-code="arg-type"

from pathlib import Path
from typing import Any

from torch import nn

from gt_bench.config.grid import RunSettings
from gt_bench.config.recipe import load_recipe
from gt_bench.experiment.run import STORE, Experiment
from gt_bench.store.run_store import Store
from gt_bench.utils.errors import UserError
from gt_bench.utils.paths import INSTALLED, SUITES, recipe_file
from gt_models.ppgt.norms import AdaRMSNorm

DATASET, RECIPE = "zinc-reconstructed", recipe_file("ppgt/zinc-reconstructed/ppgt", INSTALLED / SUITES)
NORMS, EPOCHS = {"RMSN": "rms", "AdaRMSN": "adarms", "Bad-AdaRMSN": "adarms"}, 50
# those that the sentence is about come first
RATES = {"7e-3": 0.007, "1e-2": 0.01, "2e-3": 0.002, "7e-2": 0.07}
CASES = [f"{norm}, {rate}" for rate in RATES for norm in NORMS]
QUICK: list[str] = []
NEEDS = (DATASET,)
OPEN = True
# a loss that explodes is chaotic: another processor takes another path there
ROUNDING = ("losses", "run")


class NoMolecules(UserError, RuntimeError):
    """ZINC is not packed, or its encoding not computed."""


class StressTest(Experiment):
    """A run of PPGT whose AdaRMSNorms begin as the identity where `identity` says so."""

    identity = False

    def build(self) -> nn.Module:
        model = super().build()
        if self.identity:
            for module in model.modules():
                if isinstance(module, AdaRMSNorm):
                    nn.init.ones_(module.alpha)
                    nn.init.zeros_(module.beta)
        return model

    def decisive(self, seed: int) -> dict[str, Any]:
        return super().decisive(seed) | ({"adarms": "begins as the identity"} if self.identity else {})


def experiment(case: str, data: Path, store: Path = STORE, settings: RunSettings | None = None) -> StressTest:
    """The run of a case. Raises NoMolecules."""
    norm, rate = case.split(", ")
    if not (data / "packed" / DATASET).is_dir() or not (data / "encodings" / DATASET).is_dir():
        raise NoMolecules(f"needs {data / 'packed' / DATASET} and its encodings: `dvc repro encode@{DATASET}`")
    values = {"model.norm": NORMS[norm], "optimizer.lr": RATES[rate], "epochs": EPOCHS, "schedule.total": 2500}
    recipe = load_recipe(RECIPE).with_values(values)
    found = StressTest(recipe, str(RECIPE), DATASET, settings or RunSettings(), Store(store), data)
    found.identity = norm == "Bad-AdaRMSN"
    return found


def compute(case: str, data: Path) -> dict[str, Any]:
    """`crashed`; the run's `status`, `epochs` that it came to, training `losses` of the first, tenth, ... and last epoch, and the digest of the `run`. Raises NoMolecules."""
    return judged(experiment(case, data).run(0, test=False)[0])


def judged(record: dict[str, Any]) -> dict[str, Any]:
    """What a record says. Raises RuntimeError for a run that neither ended nor diverged."""
    run = record["deterministic"]
    if run["status"] not in ("ok", "diverged"):
        raise RuntimeError(f"the run {record['digest']} ended as {run['status']}: {run['error']}")
    losses = run["epochs"]["train_loss"]
    return {
        "crashed": run["status"] == "diverged" or losses[-1] > losses[0],
        "status": run["status"],
        "epochs": len(losses),
        "losses": [round(loss, 4) for loss in (*losses[::10], *losses[-1:])],  # none where it diverged at once
        "run": record["digest"],
    }
