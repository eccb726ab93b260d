"""An experiment: one recipe on one packed dataset. It computes the record of any seed, or takes it from the store.

`Experiment.digest` names a run by recipe, seed, split, data, encodings and declared versions. `Experiment.run` returns
the stored record of this digest. If there is none, it trains, evaluates and stores the record. The stages `train` and
`tune`, the API and the golden runs all use this class.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gt_bench.config.schema import RecipeError
from gt_bench.experiment.compute import compute, compute_in_fresh_process, compute_rank
from gt_bench.experiment.launch_ddp import compute_in_processes
from gt_bench.experiment.record import check_digest, killed_record
from gt_bench.experiment.setup import Setup
from gt_bench.experiment.validate import check_num_gpus
from gt_bench.plugins.models import is_importable
from gt_bench.records.run import WEIGHTS, RunRecord
from gt_bench.runtime.environment import memory_limit_mib, share_gpu
from gt_bench.runtime.fresh_process import OnEpoch, compute_in_new_process
from gt_bench.store import predictions

STORE = Path("store")


class Experiment(Setup):
    """A recipe on a dataset whose runs are computed once and stored; arguments and errors are those of `Setup`."""

    source: "Experiment | None"

    def run(
        self,
        seed: int,
        *,
        test: bool = True,
        on_start: Callable[[int, str], None] | None = None,
        on_epoch: OnEpoch | None = None,
        shared: bool = False,
    ) -> tuple[RunRecord, bool]:
        """Returns the record of a seed, from the store or by computing and storing it.

        Args:
            seed: seed of the run.
            test: False for a trial of a search, which never reads the test split.
            on_start: called with (seed, digest) before a run is computed.
            on_epoch: called with (epoch, {quantity: value}) after each epoch.
            shared: whether other runs use the same memory. A record with status "oom" is then not stored.

        Returns:
            The record, and whether it was computed by this call.

        Raises:
            RecipeError: the recipe does not fit the dataset or the model, or code or data were edited during the run.
            Lost: a process that computed the run died.
        """
        self.check_metric([seed])
        digest = self.digest(seed, test)
        if stored := self.take(digest):
            return stored, False
        with self.store.lock(digest):
            if stored := self.take(digest):
                return stored, False
            if on_start:
                on_start(seed, digest)
            if self.recipe.processes > 1:
                record = self.run_in_processes(seed, digest, test, on_epoch)
            elif self.device.type == "cpu" and is_importable(self.recipe.model.name):
                in_fresh_process = partial(compute_in_fresh_process, self, seed, digest, test)
                record = compute_in_new_process(in_fresh_process, f"{self.path}: seed {seed}", on_epoch)
            else:
                record = compute(self, seed, digest, test, on_epoch)
            check_digest(self, record, digest, test)
            if not (shared and record.run.status == "oom"):
                self.store.put(record)
        return record, True

    def run_in_processes(self, seed: int, digest: str, test: bool, on_epoch: OnEpoch | None) -> RunRecord:
        """Returns the record of a run in `recipe.processes` processes. Golden runs have one of their own."""
        gpu = self.device.type == "cuda"
        check_num_gpus(self.recipe, self.settings.device, gpu, self.path)
        of_rank = partial(compute_rank, self, seed, digest, test)
        return compute_in_processes(of_rank, self.recipe.processes, gpu, f"{self.path}: seed {seed}", on_epoch)

    def store_killed(self, seed: int, why: str) -> None:
        """Stores the record of a run whose process the kernel killed because memory ran out: its status is "oom".

        Args:
            seed: seed of the run.
            why: how its process ended.
        """
        digest = self.digest(seed)
        with self.store.lock(digest):
            if self.take(digest) is None:
                self.store.put(killed_record(self, seed, digest, why))

    def settled(self, seed: int) -> RunRecord | None:
        """Returns the stored record of a seed if running it again could not change it, otherwise None."""
        return self._settled(self.digest(seed))

    def take(self, digest: str) -> RunRecord | None:
        """Returns the settled record of a digest and removes a checkpoint that is no longer needed.

        A process that is killed right after it wrote the record leaves its checkpoint.
        """
        record = self._settled(digest)
        if record and record.run.status in ("ok", "diverged"):
            with contextlib.suppress(OSError):  # the store may be read-only
                self.store.remove_checkpoints(digest)
        return record

    def _settled(self, digest: str) -> RunRecord | None:
        record = self.store.settled(digest, time_limit=self.time_limit, memory_limit=memory_limit_mib(self.device))
        has_weights = (self.store.folder(digest) / WEIGHTS).exists()
        # cells that start from this one need its weights, so a record without them does not count
        lost = record and self.recipe.keep_weights and record.run.status == "ok" and not has_weights
        if record and self.settings.require_predictions:
            lost = lost or predictions.is_missing(record, self.store, self.predictions_mib)
        return None if lost else record

    def share_gpu(self, processes: int) -> None:
        """Limits the GPU memory of this process to an equal share; without effect on the CPU or for one process.

        Raises:
            RecipeError: the GPU is too small for this number of processes.
        """
        try:
            share_gpu(self.device, processes)
        except ValueError as error:
            raise RecipeError(str(error), file=self.path) from None
