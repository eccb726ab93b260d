"""An experiment: one recipe on one packed dataset. It computes the record of any seed, or takes it from the store.

`Experiment.digest` names a run by recipe, seed, split, data, encodings and declared versions. `Experiment.run` returns
the stored record of this digest. If there is none, it trains, evaluates and stores the record. The stages `train` and
`tune`, the API and the golden runs all use this class.

`build.py` creates the model and its batches, `identity.py` the digests, `compute.py` trains, and `record.py` describes
what came out.
"""

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property, partial
from pathlib import Path

from torch import nn

from gt_bench.config.grid import RunSettings
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.build import build_initial_model, build_loader, build_model
from gt_bench.experiment.components import code_of, run_versions
from gt_bench.experiment.compute import compute, compute_in_fresh_process, compute_rank
from gt_bench.experiment.identity import check_digest, digests_of
from gt_bench.experiment.validate import (
    check_fit,
    check_metric,
    check_model,
    check_num_gpus,
    check_processes,
    check_static,
)
from gt_bench.plugins.models import is_importable, is_own
from gt_bench.runtime.environment import choose_device, memory_limit_mib, share_gpu
from gt_bench.runtime.fresh_process import OnEpoch, compute_in_new_process
from gt_bench.schemas import Digests, Record, Settings
from gt_bench.store import predictions
from gt_bench.store.run_store import Store, run_digest
from gt_bench.tasks.registry import create_task
from gt_bench.training import pretrained_init
from gt_bench.training.feature_preparation import prepared_header
from gt_bench.training.inductive_loader import TABLE
from gt_bench.training.interfaces import Batches, Packed
from gt_models.registry import model_info

DATA, STORE, RESULTS = Path("data"), Path("store"), Path("results")


@dataclass
class Experiment:
    """One recipe on one packed dataset, ready to run with any seed.

    Args:
        recipe: the hyperparameters, already checked by `load_recipe`.
        path: file of the recipe, named in error messages.
        dataset: name of the dataset.
        settings: run-wide settings (device, limits). They do not change any number.
        store: where records are stored and looked up.
        data: folder with packed/ and encodings/.
        allocator: setting of the memory allocator, see `prepare_process`. It is copied to the records.
        source: experiment of the cell that `start:` of the recipe names. A recipe with `start:` has no digest and
            cannot run without it.

    Raises:
        RecipeError: the recipe does not fit its model, its dataset or its number of processes.
        DatasetError: the packed dataset or its encodings are missing or damaged.
    """

    recipe: Recipe
    path: str
    dataset: str
    settings: RunSettings
    store: Store
    data: Path = DATA
    allocator: str = "system default"
    source: "Experiment | None" = None

    def __post_init__(self) -> None:
        from gt_bench.data.packed import PackedDataset
        from gt_bench.encodings.cache import EncodedDataset

        self.arguments = check_model(self.recipe, self.path)
        self.packed = PackedDataset.open(self.data / "packed" / self.dataset)
        self.header = self.packed.header
        check_fit(self.recipe, self.header.level, self.dataset, self.path)
        check_processes(self.recipe, self.header.task, self.header.split_kind, self.dataset, self.path)
        check_static(self.recipe, self.header.task, self.header.split_kind, self.dataset, self.path)
        try:
            prepared_header(self.header, self.recipe.features)
        except ValueError as error:
            raise RecipeError(f"{self.path}: {error}") from None
        if self.inductive and self.recipe.subgraphs:
            raise RecipeError(
                f"{self.path}: subgraphs: {self.dataset!r} is inductive, which they do not support; remove subgraphs"
            )
        try:
            self.task = create_task(self.header.task, self.header.metric, self.recipe.loss, self.header.also)
        except KeyError as error:
            raise RecipeError(f"{self.path}: dataset {self.dataset!r}: {error.args[0]}") from None
        # encodings of subgraphs are computed with each batch, those of the graph that a part sees by its loader
        computed = self.recipe.subgraphs or self.inductive or self.task.computes_encodings
        stored = {} if computed else self.recipe.encodings
        self.encoded = EncodedDataset(self.packed, self.data / "encodings" / self.dataset, stored)
        self.device = choose_device(self.settings.device)
        self.time_limit = self.settings.time_limit_hours and self.settings.time_limit_hours * 3600

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the arguments only: a new process opens the same files again."""
        return Experiment, tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def versions(self) -> dict[str, int]:
        """Declared version of each component that computes the runs: model, task, trainer and others."""
        model = self.recipe.model.name
        recipe = self.recipe.decisive() | ({"inductive": True} if self.inductive else {})
        return run_versions(None if is_own(model) else model, self.header.task, recipe)

    @cached_property
    def digests(self) -> Digests:
        """Digests of recipe, data, encodings and user-supplied files; see `gt_bench.schemas.Digests`."""
        return digests_of(self)

    @cached_property
    def code(self) -> str:
        """Hash of the code that computes the runs. It is noted in records and is not part of any digest."""
        model = self.recipe.model.name
        return code_of(None if is_own(model) else model, self.header.task)

    def build(self) -> nn.Module:
        """Returns a newly initialised model for this dataset; see `build_model`."""
        return build_model(self)

    def loader(self, seed: int) -> Batches:
        """Returns the batches that a seed trains on and is evaluated on; see `build_loader`."""
        return build_loader(self, seed)

    def initial_model(self, seed: int) -> Callable[[], nn.Module]:
        """Returns a function that builds the model with which a run starts; see `build_initial_model`."""
        return build_initial_model(self, seed)

    @cached_property
    def packed_or_sparse(self) -> Packed:
        """The dataset, with sparse node features if the model accepts them and batches do not cut the graph."""
        cut = self.recipe.subgraphs or self.recipe.batch.parts or self.recipe.batch.targets or self.inductive
        sparse = self.device.type == "cpu" and not cut and model_info(self.recipe.model.name).sparse_x
        return self.packed.with_sparse_x() if sparse else self.packed

    @property
    def inductive(self) -> bool:
        """Whether training sees neither validation nor test nodes."""
        return TABLE in self.header.extras

    def split_of(self, seed: int) -> int:
        """Returns the index of the split that a seed uses."""
        return self.recipe.split_of(seed, self.header.num_splits)

    def check_metric(self, seeds: Iterable[int]) -> None:
        """Checks that the metric is defined on the validation and test parts that these seeds use.

        Raises:
            RecipeError: it is undefined on one of them.
        """
        check_metric(self.packed, self.task, map(self.split_of, seeds), self.path)

    def decisive(self, seed: int) -> Settings:
        """Returns `Recipe.decisive`, in which `start:` names the digest of the run instead of its cell.

        Raises:
            RecipeError: the recipe has `start:`, and this experiment has no `source`.
        """
        content = self.recipe.decisive()
        if self.recipe.start:
            if self.source is None:
                raise RecipeError(
                    f"{self.path}: start: {self.recipe.start.cell} is not available here; run the cell with "
                    "`python -m stages.train`"
                )
            content["start"] = {"load": self.recipe.start.load, "run": self.source.digest(seed)}
        return content

    def digest(self, seed: int, test: bool = True) -> str:
        """Returns the key of a run in the store: a sha256 of everything that decides its numbers.

        Args:
            seed: seed of the run.
            test: False for a trial of a search, which never reads the test split.
        """
        return run_digest(self.decisive(seed), seed, self.split_of(seed), self.digests, self.versions, test)

    def run(
        self,
        seed: int,
        *,
        test: bool = True,
        on_start: Callable[[int, str], None] | None = None,
        on_epoch: OnEpoch | None = None,
        shared: bool = False,
    ) -> tuple[Record, bool]:
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
                record = self._compute_in_processes(seed, digest, test, on_epoch)
            elif self.device.type == "cpu" and is_importable(self.recipe.model.name):
                in_fresh_process = partial(compute_in_fresh_process, self, seed, digest, test)
                record = compute_in_new_process(in_fresh_process, f"{self.path}: seed {seed}", on_epoch)
            else:
                record = compute(self, seed, digest, test, on_epoch)
            check_digest(self, record, digest, test)
            if not (shared and record["deterministic"]["status"] == "oom"):
                self.store.put(record)
        return record, True

    def settled(self, seed: int) -> Record | None:
        """Returns the stored record of a seed if running it again could not change it, otherwise None."""
        return self._settled(self.digest(seed))

    def take(self, digest: str) -> Record | None:
        """Returns the settled record of a digest and removes a checkpoint that is no longer needed.

        A process that is killed right after it wrote the record leaves its checkpoint.
        """
        record = self._settled(digest)
        if record and record["deterministic"]["status"] in ("ok", "diverged"):
            with contextlib.suppress(OSError):  # the store may be read-only
                self.store.remove_checkpoints(digest)
        return record

    def _settled(self, digest: str) -> Record | None:
        record = self.store.settled(digest, time_limit=self.time_limit, memory_limit=memory_limit_mib(self.device))
        has_weights = (self.store.folder(digest) / pretrained_init.FILE).exists()
        # cells that start from this one need its weights, so a record without them does not count
        lost = record and self.recipe.keep_weights and record["deterministic"]["status"] == "ok" and not has_weights
        if record and self.settings.require_predictions:
            lost = lost or predictions.is_missing(record, self.store, self.predictions_mib)
        return None if lost else record

    @property
    def predictions_mib(self) -> float:
        """MiB of outputs on validation and test that are stored with a record."""
        return self.settings.predictions if self.recipe.predictions is None else self.recipe.predictions

    def share_gpu(self, processes: int) -> None:
        """Limits the GPU memory of this process to an equal share; without effect on the CPU or for one process.

        Raises:
            RecipeError: the GPU is too small for this number of processes.
        """
        try:
            share_gpu(self.device, processes)
        except ValueError as error:
            raise RecipeError(f"{self.path}: {error}") from None

    def _compute_in_processes(self, seed: int, digest: str, test: bool, on_epoch: OnEpoch | None) -> Record:
        """Computes a run in `recipe.processes` processes.

        Raises:
            RecipeError: the machine has fewer GPUs than processes.
            Lost: one of the processes died.
        """
        from gt_bench.experiment.launch_ddp import compute_in_processes

        gpu = self.device.type == "cuda"
        check_num_gpus(self.recipe, self.settings.device, gpu, self.path)
        of_rank = partial(compute_rank, self, seed, digest, test)
        return compute_in_processes(of_rank, self.recipe.processes, gpu, f"{self.path}: seed {seed}", on_epoch)
