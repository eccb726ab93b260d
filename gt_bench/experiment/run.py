"""An experiment: one recipe on one packed dataset. It computes the record of any seed, or takes it from the store.

`Experiment.digest` names a run by recipe, seed, split, data, encodings and declared versions. `Experiment.run` returns
the stored record of this digest. If there is none, it trains, evaluates and stores the record. The stages `train` and
`tune`, the API and the golden runs all use this class.
"""

import contextlib
import inspect
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from threadpoolctl import threadpool_limits
from torch import nn

from gt_bench.config.grid import RunSettings
from gt_bench.config.recipe import Recipe, digest_of
from gt_bench.config.schema import RecipeError
from gt_bench.data.custom.metric import metric_digest
from gt_bench.experiment import golden_values
from gt_bench.experiment.components import code_of, run_versions
from gt_bench.experiment.validate import (
    check_fit,
    check_metric,
    check_model,
    check_num_gpus,
    check_processes,
    check_static,
)
from gt_bench.plugins.models import files_digest, is_importable, is_own
from gt_bench.runtime import fresh_process
from gt_bench.runtime.environment import (
    Clock,
    PeakMemory,
    Usage,
    bound_memory,
    choose_device,
    environment,
    memory_limit_mib,
    now,
    share_gpu,
)
from gt_bench.runtime.global_state import DETERMINISTIC, global_state
from gt_bench.runtime.malloc import keep_allocations
from gt_bench.runtime.startup import freeze_loaded_objects
from gt_bench.runtime.threads import computing_with
from gt_bench.schemas import Digests, Record, Settings, StaticReport, StoredPredictions
from gt_bench.store import predictions
from gt_bench.store.run_store import SCHEMA, Store, run_digest, sealed
from gt_bench.store.weights import all_arguments, save_trained, with_head
from gt_bench.tasks.edges import is_symmetric
from gt_bench.tasks.registry import create_task
from gt_bench.training import pretrained_init
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.failures import WrongOutput, failure, is_out_of_memory, one_row
from gt_bench.training.feature_preparation import prepared, prepared_header
from gt_bench.training.inductive_loader import TABLE, InductiveLoader
from gt_bench.training.interfaces import Batches, Header, Packed, SplitData
from gt_bench.training.loader import Loader
from gt_bench.training.static_batches import StaticError
from gt_bench.training.subgraph_loader import SubgraphLoader
from gt_bench.training.target_scaling import StandardisedTargets
from gt_bench.training.trainer import Outcome, Run
from gt_bench.utils.errors import UserError
from gt_models.batch import MissingEncoding
from gt_models.registry import create_model, model_info

if TYPE_CHECKING:
    from gt_bench.training.ddp import Share

DATA, STORE, RESULTS = Path("data"), Path("store"), Path("results")


OnEpoch = Callable[[int, dict[str, float]], None]


@dataclass
class _ComputeInNewProcess:
    """Computes one run. It is pickled and called in a new process."""

    experiment: "Experiment"
    seed: int
    digest: str
    test: bool

    def __call__(self, on_epoch: OnEpoch) -> Record:
        prepare_process(self.experiment.settings)
        with computing_with(self.experiment.recipe.threads):
            return self.experiment._compute(self.seed, self.digest, self.test, on_epoch)


@dataclass
class RunBesidesOthers:
    """Computes a run, or takes it from the store, on a GPU that other processes use.

    It is pickled and called in a new process, because a forked process cannot use a GPU that its parent has looked at.

    Args:
        experiment: the experiment.
        seed: seed of the run.
        processes: number of processes that share the GPU.
    """

    experiment: "Experiment"
    seed: int
    processes: int

    def __call__(self, on_epoch: OnEpoch) -> Record:
        """Returns the record. `on_epoch` is called after each epoch."""
        experiment = self.experiment
        prepare_process(experiment.settings)
        try:
            share_gpu(experiment.device, self.processes)
        except ValueError as error:
            raise RecipeError(f"{experiment.path}: {error}") from None
        return experiment.run(self.seed, on_epoch=on_epoch, shared=self.processes > 1)[0]


def prepare_process(settings: RunSettings, threads: int = 1, processes: int = 1) -> str:
    """Sets the number of threads, the allocator and the memory limit of this process.

    Args:
        settings: run-wide settings, of which the device is used.
        threads: number of threads of torch and of the linear algebra libraries.
        processes: number of processes that share the memory of the device equally.

    Returns:
        The setting of the allocator, for the record.

    Raises:
        RecipeError: the device of `settings` does not exist on this machine.
    """
    allocator = keep_allocations()
    torch.set_num_threads(threads)
    threadpool_limits(threads)
    try:
        device = choose_device(settings.device)
    except ValueError as error:
        raise RecipeError(f"params.yaml: {error}") from None
    bound_memory(device, 1 / processes)
    return allocator


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
        if self._inductive and self.recipe.subgraphs:
            raise RecipeError(
                f"{self.path}: subgraphs: {self.dataset!r} is inductive, which they do not support; remove subgraphs"
            )
        try:
            self.task = create_task(self.header.task, self.header.metric, self.recipe.loss, self.header.also)
        except KeyError as error:
            raise RecipeError(f"{self.path}: dataset {self.dataset!r}: {error.args[0]}") from None
        # encodings of subgraphs are computed with each batch, those of the graph that a part sees by its loader
        computed = self.recipe.subgraphs or self._inductive or self.task.computes_encodings
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
        recipe = self.recipe.decisive() | ({"inductive": True} if self._inductive else {})
        return run_versions(None if is_own(model) else model, self.header.task, recipe)

    @cached_property
    def digests(self) -> Digests:
        """Digests of recipe, data, encodings and user-supplied files; see `gt_bench.schemas.Digests`."""
        digests: Digests = {
            "recipe": digest_of(self.recipe.decisive()),
            "data": self.packed.digest,
            "encodings": self.encoded.digest,
        }
        if files := files_digest(self.recipe.model.name, self.recipe.model.arguments):
            digests["files"] = files
        if self.modified:
            digests["modified"] = self.modified
        if custom := [metric_digest(name) for name in self.task.custom]:
            digests["metric"] = digest_of(custom)
        if self._joins_last:
            digests["last_batch"] = "joined"
        return digests

    @property
    def _joins_last(self) -> bool:
        """Whether in some split the last batch of an epoch can have one graph, which then joins the batch before it."""
        batch = self.recipe.batch
        if batch.last or self.task.loader or self.task.runner or not (batch.graphs or batch.nodes):
            return False
        if batch.nodes:  # the sizes of batches depend on the order of the epoch
            return True
        graphs = batch.graphs or 1
        sizes = {len(self.packed.split("train", split)) for split in range(self.header.num_splits)}
        return graphs > 1 and any(size > graphs and size % graphs == 1 for size in sizes)

    @cached_property
    def code(self) -> str:
        """Hash of the code that computes the runs. It is noted in records and is not part of any digest."""
        model = self.recipe.model.name
        return code_of(None if is_own(model) else model, self.header.task)

    @cached_property
    def modified(self) -> str | None:
        """Hash of the code if its golden values differ from the committed ones of the same versions, otherwise None."""
        # suites/SUITE/recipes/DATASET/ROW.yaml, or tuned/SUITE/DATASET/ROW.yaml
        parts = [part for part in Path(self.path).with_suffix("").parts if part != "recipes"]
        cell, model = "/".join(parts[-3:]), self.recipe.model.name
        reference = golden_values.reference_cell(cell, model, self.header.task)
        if reference is None:
            return None
        code = code_of(*golden_values.model_and_task(reference))
        return self.code if golden_values.differences({reference: code})[reference] else None

    def constructor(self) -> Settings:
        """Arguments of the model's constructor: dimensions of the dataset and the recipe's `model:` section."""
        given = {
            "in_dim": self.task.in_dim(cast(Header, prepared_header(self.header, self.recipe.features))),
            "out_dim": self.recipe.width_of(self.header.out_dim),
            "level": self.recipe.level_of(self.header.level),
        }
        if "edge_dim" in inspect.signature(model_info(self.recipe.model.name).cls).parameters:
            given["edge_dim"] = self.header.edge_dim
        return given | self.arguments

    def head(self) -> Settings | None:
        """Arguments of the head (`gt_models.layers.edge_head.EdgeHead`) of a task of edges, otherwise None."""
        if self.recipe.head is None:
            return None
        # the features of a pair that is no edge do not exist
        edge_dim = None if self.header.task == "link-prediction" else self.header.edge_dim
        symmetric = is_symmetric(self.packed)
        about = {"out_dim": self.header.out_dim, "edge_dim": edge_dim, "symmetric": symmetric}
        return self.recipe.head.model_dump() | about

    def build(self) -> nn.Module:
        """Returns a newly initialised model for this dataset.

        Raises:
            RecipeError: the constructor rejects the recipe's values, a layer has width 0, or the model does not support
                the phases of the recipe.
        """
        try:
            model = with_head(create_model(self.recipe.model.name, **self.constructor()), self.head())
        except (ValueError, RuntimeError, ZeroDivisionError) as error:  # torch raises the last two for a width below 0
            if is_out_of_memory(error):
                raise
            raise RecipeError(f"{self.path}: model: {error}") from error
        # torch_geometric infers a width of 0 from the first batch
        if unsized := [name for name, weight in model.named_parameters() if nn.parameter.is_lazy(weight)]:
            raise RecipeError(f"{self.path}: model: {unsized[0]} has no size; give each layer a width above 0")
        if empty := [name for name, weight in model.named_parameters() if not weight.numel()]:
            given = ", ".join(f"{key}: {value}" for key, value in self.recipe.model.arguments.items() if value == 0)
            raise RecipeError(
                f"{self.path}: model: {empty[0]} has no entries{given and f' (given: {given})'}; give each layer a "
                "width above 0"
            )
        for phase in self.recipe.phases:
            enter: Callable[[str], None] | None = getattr(model, "set_phase", None)
            if enter is None:
                raise RecipeError(
                    f"{self.path}: phases: model {self.recipe.model.name!r} does not support phases; use epochs instead"
                )
            try:
                enter(phase.name)
            except ValueError as error:
                raise RecipeError(f"{self.path}: phases: {error}") from error
        return model

    def loader(self, seed: int) -> Batches:
        """Returns the batches that a seed trains on and is evaluated on.

        Raises:
            ValueError: the recipe's `batch:`, `targets:` or `subgraphs:` does not fit the dataset.
        """
        dtype = torch.float64 if self.recipe.precision == "float64" else torch.float32
        split = self.split_of(seed)
        features = prepared(self.packed, self.recipe.features, split)
        packed: Packed = features if self.recipe.features else self._read
        if self.recipe.targets:
            packed = StandardisedTargets(cast(Packed, features), self.recipe.targets, split)
        data = SplitData(packed, self.encoded, split, self.recipe.batch, seed, self.device, dtype)
        if self._inductive:
            return InductiveLoader(data, encodings=self.recipe.encodings)
        if self.recipe.subgraphs:
            subgraphs = SubgraphLoader(data, subgraphs=self.recipe.subgraphs, encodings=self.recipe.encodings)
            return cast(Batches, subgraphs)  # it has no method `on`: only whole graphs use another evaluation device
        if self.task.computes_encodings and self.task.loader:
            return self.task.loader(data, encodings=self.recipe.encodings)
        return (self.task.loader or Loader)(data)

    @cached_property
    def _read(self) -> Packed:
        """The dataset, with sparse node features if the model accepts them and batches do not cut the graph."""
        cut = self.recipe.subgraphs or self.recipe.batch.parts or self.recipe.batch.targets or self._inductive
        sparse = self.device.type == "cpu" and not cut and model_info(self.recipe.model.name).sparse_x
        return self.packed.with_sparse_x() if sparse else self.packed

    @property
    def _inductive(self) -> bool:
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
                compute = _ComputeInNewProcess(self, seed, digest, test)
                record = fresh_process.compute_in_new_process(compute, f"{self.path}: seed {seed}", on_epoch)
            else:
                with computing_with(self.recipe.threads):
                    record = self._compute(seed, digest, test, on_epoch)
            self._check_digest(record, digest, test)
            if not (shared and record["deterministic"]["status"] == "oom"):
                self.store.put(record)
        return record, True

    def _check_digest(self, record: Record, digest: str, test: bool) -> None:
        """Raises RecipeError if the process that computed a run found another digest for it than this process."""
        run = record["deterministic"]
        found = run_digest(run["recipe"], run["seed"], run["split"], run["digests"], run["versions"], test)
        if found != digest:
            mine: dict[str, object] = {**self.digests, **self.versions, "recipe": self.decisive(run["seed"])}
            theirs: dict[str, object] = {**run["digests"], **run["versions"], "recipe": run["recipe"]}
            differing = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
            raise RecipeError(
                f"{self.path}: seed {run['seed']}: {', '.join(differing or ['split'])} changed during the run, because "
                "code, data or the model's files were edited; nothing is stored; run the same command again"
            )

    def settled(self, seed: int, test: bool = True) -> Record | None:
        """Returns the stored record of a seed if running it again could not change it, otherwise None."""
        return self._settled(self.digest(seed, test))

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
        kept = (self.store.folder(digest) / pretrained_init.FILE).exists()
        # cells that start from this one need its weights, so a record without them does not count
        lost = record and self.recipe.keep_weights and record["deterministic"]["status"] == "ok" and not kept
        again = (
            record and self.settings.require_predictions and predictions.is_missing(record, self.store, self.kept_mib)
        )
        return None if lost or again else record

    @property
    def kept_mib(self) -> float:
        """MiB of outputs on validation and test that are stored with a record."""
        return self.settings.predictions if self.recipe.predictions is None else self.recipe.predictions

    def _initial_model(self, seed: int) -> Callable[[], nn.Module]:
        """Returns `build`, or if the recipe has `start:`, a function that also loads the weights of the source.

        Raises:
            RecipeError: the weights are not in the store.
        """
        start = self.recipe.start
        if start is None:
            return self.build
        assert self.source is not None  # without it `digest` raises before
        digest = self.source.digest(seed)
        record = self.store.get(digest)
        status, reason = (record["deterministic"][key] for key in ("status", "error")) if record else (None, None)
        folder = self.store.folder(digest)
        kept = self.source.recipe.keep_weights and (folder / pretrained_init.FILE).exists()
        if status is None or (status == "ok" and not kept):
            raise RecipeError(
                f"{self.path}: start: {start.cell}: the run with seed {seed} "
                f"{'has no saved weights' if status else 'is not in the store'}; add seed {seed} and "
                f"keep_weights: true to its recipe and run `python -m stages.train {start.cell}`"
            )

        def build() -> nn.Module:
            if status != "ok":  # this run ends with the same status
                raise failure(status, f"the run that it starts from ({start.cell}, seed {seed}): {reason}")
            model = self.build()
            try:
                pretrained_init.load_weights(model, folder, start.load)
            except ValueError as error:
                raise RecipeError(f"{self.path}: start: {start.cell}: {error}") from None
            return model

        return build

    def _compute_in_processes(self, seed: int, digest: str, test: bool, on_epoch: OnEpoch | None) -> Record:
        """Computes a run in `recipe.processes` processes.

        Raises:
            RecipeError: the machine has fewer GPUs than processes.
            Lost: one of the processes died.
        """
        from gt_bench.experiment.launch_ddp import compute_in_processes

        gpu = self.device.type == "cuda"
        check_num_gpus(self.recipe, self.settings.device, gpu, self.path)
        compute = partial(self._compute_part, seed, digest, test)
        return compute_in_processes(compute, self.recipe.processes, gpu, f"{self.path}: seed {seed}", on_epoch)

    def _compute_part(
        self,
        seed: int,
        digest: str,
        test: bool,
        share: "Share",
        on_epoch: OnEpoch | None,
        recomputed: bool,
    ) -> Record:
        """Computes this process's part of a run; see `gt_bench.training.ddp`."""
        on_gpu = share.device.type == "cuda"
        one = replace(self, settings=self.settings.model_copy(update={"device": str(share.device)})) if on_gpu else self
        prepare_process(one.settings, processes=share.world)
        with computing_with(one.recipe.threads):
            return one._compute(seed, digest, test, on_epoch, share, recomputed)

    def _compute(
        self,
        seed: int,
        digest: str,
        test: bool,
        on_epoch: OnEpoch | None,
        share: "Share | None" = None,
        recomputed: bool = False,
    ) -> Record:
        """Computes a run in this process.

        Args:
            seed: seed of the run.
            digest: its key, which names the folder of its checkpoint.
            test: whether to evaluate on the test split.
            on_epoch: called after each epoch.
            share: rank and process group if several processes compute the run together.
            recomputed: start with activation checkpointing; see `Run.recomputed`.
        """
        freeze_loaded_objects()
        process = global_state() | {DETERMINISTIC: self.device.type == "cpu"} if is_own(self.recipe.model.name) else {}
        clock, memory, usage = Clock(), PeakMemory(self.device), Usage(self.device)

        def after_epoch(epoch: int, values: dict[str, float]) -> None:
            usage.epoch(epoch)
            if process and (changed := [what for what, value in global_state().items() if value != process[what]]):
                raise RecipeError(
                    f"{self.path}: model: it changes {changed[0]} of the whole process; remove this from the model's "
                    "code, because a run may not change global state"
                )
            if on_epoch:
                on_epoch(epoch, values)

        checkpoint = Checkpoint(
            self.store.folder(digest).absolute() / "checkpoint.safetensors", self.settings.checkpoint_seconds
        )
        try:
            loader = self.loader(seed)
            if type(loader) is Loader and share is None:  # processes that share a batch each load their part
                loader.place(self.settings.data_on)
            run = self._runner(share, recomputed)(
                self.recipe, self.task, loader, self._initial_model(seed),
                seed=seed, meter=clock, checkpoint=checkpoint, time_limit=self.time_limit, on_epoch=after_epoch,
            )  # fmt: skip
        except RecipeError:  # its message names the file already
            raise
        except ValueError as error:
            raise RecipeError(f"{self.path}: {error}") from error
        run.keeps = int(self.kept_mib * 2**20) if test else 0
        memory.start()
        try:
            outcome = run.train(test)
        except (MissingEncoding, WrongOutput, StaticError) as error:
            raise RecipeError(f"{self.path}: {error}") from error
        except ValueError as error:
            if isinstance(error, UserError) or not (remedy := one_row(error)):
                raise
            raise RecipeError(f"{self.path}: model {self.recipe.model.name!r}: {error}; {remedy}") from error
        self._check_same(outcome, seed, digest)
        writes = share is None or share.rank == 0
        if writes and (test or self.recipe.keep_weights) and outcome.status == "ok" and run.best:
            # train_cell deletes all but those of the best seed
            folder, of_every_seed = self.store.folder(digest), self.recipe.keep_weights
            name, head = self.recipe.model.name, self.head()
            save_trained(folder, run.best["model"], name, self.constructor(), of_every_seed, head)
        with contextlib.suppress(RuntimeError):
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        forms = {
            phase: {operation: sorted(calls) for operation, calls in sorted(found.items())}
            for phase, found in run.forms.items()
        }
        record = self.record(
            outcome, seed, digest, clock, memory, forms, usage, run.static.report() if run.static else None
        )
        if writes and test and outcome.status == "ok":
            record["predictions"] = self._save_predictions(run, loader, digest)
        return record

    def _save_predictions(self, run: Run, loader: Batches, digest: str) -> StoredPredictions:
        """Writes outputs on validation and test next to the record, and returns their entry of the record."""
        if run.left_out is not None:
            needed = run.left_out / 2**20
            return {"left_out": f"{needed:.1f} MiB, limit {self.kept_mib:g} MiB", "left_out_mib": round(needed, 3)}
        if not run.keeps:
            return {"left_out": "run.predictions is 0", "left_out_mib": 0.0}
        if not run.examples:
            return {"left_out": f"the protocol of the task {self.header.task} predicts no val and test part"}
        level = "edge" if self.recipe.head else self.recipe.level_of(self.header.level)
        content = predictions.pack(run.examples, loader, self.header.task, self.recipe.loss, level)
        return predictions.save(self.store.folder(digest), content)

    def _check_same(self, outcome: Outcome, seed: int, digest: str) -> None:
        """Raises RecipeError if a run that is computed again for its predictions has other numbers than its record."""
        held = self.store.get(digest) if self.settings.require_predictions else None
        if held is None or held["deterministic"]["status"] != "ok":
            return
        then, now = held["deterministic"], (outcome.curves, outcome.val, outcome.test_metrics)
        if json.dumps((then["epochs"], then["val"], then["test_metrics"]), sort_keys=True) != json.dumps(
            now, sort_keys=True
        ):
            cpu = held["measured"]["environment"].get("cpu", held["measured"]["device"])
            raise RecipeError(
                f"{self.path}: seed {seed}: computed again here, the run has other numbers than its record "
                f"(computed on {cpu}), so its predictions would not be those of the record; nothing is changed. "
                f"To replace the record by a run of this machine, "
                f"delete {self.store.folder(digest)} and train the cell again"
            )

    def _runner(self, share: "Share | None", recomputed: bool) -> Callable[..., Run]:
        if share is None:
            return self.task.runner or Run
        from gt_bench.training.ddp import SharedRun

        return partial(SharedRun, share=share, recomputed=recomputed)

    def record(
        self,
        outcome: Outcome,
        seed: int,
        digest: str,
        clock: Clock,
        memory: PeakMemory,
        forms: dict[str, dict[str, list[str]]],
        usage: Usage,
        static: StaticReport | None,
    ) -> Record:
        """Returns the record of a finished run.

        Args:
            outcome: status, curves and metrics of the run.
            seed: seed of the run.
            digest: its key.
            clock: seconds of training and evaluation.
            memory: peak memory.
            forms: the form of each operation of `gt_models.kernels` that was used, in training and in evaluation.
            usage: memory and processor use by epoch.
            static: what padding and compilation did, if the recipe has `batch.static` or `compile`.
        """
        recipe, epochs = self.decisive(seed), max(1, len(outcome.curves["epoch"]))
        evaluated = max(1, sum(v is not None for v in outcome.curves["val"]))
        content: Record = {
            "schema": SCHEMA,
            "digest": digest,
            "deterministic": {
                "status": outcome.status,
                "error": outcome.error,
                "seed": seed,
                "split": self.split_of(seed),
                "recipe": recipe,
                "digests": {**self.digests, "recipe": digest_of(recipe)},
                "versions": self.versions,
                "dataset": self.dataset,
                "metric": self.task.metric,
                "direction": self.task.direction,
                "parameters": outcome.parameters,
                "epochs": outcome.curves,
                "best_epoch": outcome.best_epoch,
                "val": outcome.val,
                "test": outcome.test,
                "test_metrics": outcome.test_metrics,
            },
            "measured": {
                "started": clock.started,
                "finished": now(),
                "seconds": sum(clock.totals.values()),
                "train_seconds_per_epoch": clock.totals["train"] / epochs,
                "eval_seconds_per_epoch": clock.totals["eval"] / evaluated,
                "peak_memory_mib": memory.read(),
                "memory_limit_mib": memory_limit_mib(self.device),
                "time_limit_seconds": self.time_limit,
                "device": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu",
                "threads": torch.get_num_threads(),
                # runs with the same forms of all operations are bit-identical
                "forms": forms,
                "arguments": all_arguments(self.recipe.model.name, self.constructor()),
                "usage": usage.read(),
                "encodings": self.encoded.computed_by,
                "code": self.code,
                "environment": environment(self.device, self.allocator),
            },
        }
        if static:
            content["measured"]["static"] = static
        return sealed(content)
