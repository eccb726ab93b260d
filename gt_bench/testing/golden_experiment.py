"""The experiment of a golden run, and the settings under which its numbers are the same on all processors."""

import contextlib
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from gt_bench.encodings import cache
from gt_bench.encodings import compute as encoding
from gt_bench.experiment.compute import compute_rank
from gt_bench.experiment.launch_ddp import compute_in_processes
from gt_bench.experiment.run import Experiment
from gt_bench.records.run import RunRecord
from gt_bench.runtime.fresh_process import OnEpoch
from gt_bench.training.ddp import Share
from gt_models.kernels import use


class GoldenExperiment(Experiment):
    """An experiment without golden values of its own, whose metrics do not depend on rounding."""

    modified = None

    def __post_init__(self) -> None:
        """Rounds outputs before they are evaluated: rounding errors of equal nodes would determine their order."""
        super().__post_init__()
        evaluate = self.task.evaluate

        def rounded(outputs: list[Tensor], targets: list[object]) -> dict[str, float]:
            return evaluate([output.round(decimals=9) for output in outputs], targets)

        self.task.evaluate = rounded  # type: ignore[method-assign]

    def run_in_processes(self, seed: int, digest: str, test: bool, on_epoch: OnEpoch | None) -> RunRecord:
        """Computes with the reference implementations in each process."""
        of_rank = partial(_compute_rank, self, seed, digest, test)
        return compute_in_processes(of_rank, self.recipe.processes, False, self.path, on_epoch)


def _compute_rank(
    experiment: GoldenExperiment,
    seed: int,
    digest: str,
    test: bool,
    share: Share,
    on_epoch: OnEpoch | None,
    recomputed: bool,
) -> RunRecord:
    with reference():
        return compute_rank(experiment, seed, digest, test, share, on_epoch, recomputed)


@contextlib.contextmanager
def reference(dtype: torch.dtype = torch.float64) -> Iterator[None]:
    """Computes with the reference implementations, and in `dtype` what no recipe decides.

    Encodings are computed in float64; stored ones are rounded to float32 afterwards.
    """
    default, stored, computed = torch.get_default_dtype(), encoding.compute_with_flags, cache.compute
    torch.set_default_dtype(dtype)
    encoding.compute_with_flags = partial(stored, dtype=torch.float64)
    cache.compute = partial(computed, dtype=torch.float64)
    try:
        with use("reference"):
            yield
    finally:
        encoding.compute_with_flags, cache.compute = stored, computed
        torch.set_default_dtype(default)
