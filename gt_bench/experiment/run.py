"""From a recipe to records: what train and tune share. One place knows how data, code, engine and store make a run."""

import contextlib
import inspect
from collections import Counter
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
from gt_bench.experiment import golden_values
from gt_bench.experiment.components import code_of, run_versions
from gt_bench.experiment.metric_fit import check_metric
from gt_bench.experiment.process_count import check_machine, check_processes
from gt_bench.experiment.validate import check_fit, check_model
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
)
from gt_bench.runtime.global_state import DETERMINISTIC, global_state
from gt_bench.runtime.malloc import keep_allocations
from gt_bench.runtime.startup import freeze_loaded_objects
from gt_bench.runtime.threads import computing_with
from gt_bench.schemas import Digests, Record, Settings
from gt_bench.store.run_store import SCHEMA, Store, run_digest, sealed
from gt_bench.store.weights import all_arguments, save_trained
from gt_bench.tasks.registry import create_task
from gt_bench.training import pretrained_init
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.failures import WrongOutput, failure, is_out_of_memory, one_row
from gt_bench.training.interfaces import Batches, Packed
from gt_bench.training.loader import Loader
from gt_bench.training.subgraph_loader import SubgraphLoader
from gt_bench.training.target_scaling import StandardisedTargets
from gt_bench.training.trainer import Outcome, Run
from gt_bench.utils.errors import UserError
from gt_models.batch import MissingEncoding
from gt_models.kernels import forms_taken
from gt_models.registry import create_model, model_info

if TYPE_CHECKING:
    from gt_bench.training.ddp import Share

DATA, STORE, RESULTS = Path("data"), Path("store"), Path("results")


@dataclass
class _ComputeAlone:
    """A run as a new process computes it."""

    experiment: "Experiment"
    seed: int
    digest: str
    test: bool

    def __call__(self, on_epoch: Callable[[int, dict[str, float]], None]) -> Record:
        prepare_process(self.experiment.settings)
        with computing_with(self.experiment.recipe.threads):
            return self.experiment._compute(self.seed, self.digest, self.test, on_epoch)


def prepare_process(settings: RunSettings, threads: int = 1, processes: int = 1) -> str:
    """Sets threads, allocator and the bound on memory for the whole process, one of `processes` that share it; returns what the allocator is set to, for the records. Raises
    RecipeError for a device that this machine lacks."""
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
        recipe: checked; path: its file, for messages.
        data: folder with packed/ and encodings/.
        settings: run-wide settings (device, limits), which change no number.
        source: the cell that the recipe's `start:` names; without it such a recipe has no digest and cannot run.
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
        # encodings of subgraphs are made with them
        stored = {} if self.recipe.subgraphs else self.recipe.encodings
        self.encoded = EncodedDataset(self.packed, self.data / "encodings" / self.dataset, stored)
        try:
            self.task = create_task(self.header.task, self.header.metric, self.recipe.loss, self.header.also)
        except KeyError as error:
            raise RecipeError(f"{self.path}: dataset {self.dataset!r}: {error.args[0]}") from None
        self.device = choose_device(self.settings.device)
        self.time_limit = self.settings.time_limit_hours and self.settings.time_limit_hours * 3600

    def __reduce__(self) -> tuple[object, ...]:
        """For processes of its own: made there from the same files."""
        return Experiment, tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def versions(self) -> dict[str, int]:
        """By component the declared version of what computes its runs."""
        model = self.recipe.model.name
        return run_versions(None if is_own(model) else model, self.header.task, self.recipe.decisive())

    @cached_property
    def digests(self) -> Digests:
        """What decides its runs besides recipe, seed, split and versions; see `Digests`."""
        digests: Digests = {
            "recipe": digest_of(self.recipe.decisive()),
            "data": self.packed.digest,
            "encodings": self.encoded.digest,
        }
        if files := files_digest(self.recipe.model.name, self.recipe.model.arguments):
            digests["files"] = files
        if self.modified:
            digests["modified"] = self.modified
        if self._joins_last:
            digests["last_batch"] = "joined"
        return digests

    @property
    def _joins_last(self) -> bool:
        """Whether a single graph may be left over in an epoch of some split and join the batch before it."""
        batch = self.recipe.batch
        if batch.last or self.task.loader or self.task.runner or not (batch.graphs or batch.nodes):
            return False
        if batch.nodes:  # depends on the order of the epoch
            return True
        graphs = batch.graphs or 1
        sizes = {len(self.packed.split("train", split)) for split in range(self.header.num_splits)}
        return graphs > 1 and any(size > graphs and size % graphs == 1 for size in sizes)

    @cached_property
    def code(self) -> str:
        """Hash of the code that computes its runs, for the record; no key contains it."""
        model = self.recipe.model.name
        return code_of(None if is_own(model) else model, self.header.task)

    @cached_property
    def modified(self) -> str | None:
        """Hash of the code where it computes other golden values than those of its versions; None where it is the code that they name."""
        cell = "/".join(Path(self.path).with_suffix("").parts[-3:])
        model = self.recipe.model.name
        guardian = golden_values.guardian(cell, model, self.header.task)
        if guardian is None:
            return None
        its_model, its_task = golden_values.model_and_task(guardian)
        difference = golden_values.verdicts({guardian: code_of(its_model, its_task)})[guardian]
        return self.code if difference else None

    def constructor(self) -> Settings:
        """What the model's constructor is called with."""
        given = {
            "in_dim": self.task.in_dim(self.header),
            "out_dim": self.header.out_dim,
            "level": self.recipe.level_of(self.header.level),
        }
        if "edge_dim" in inspect.signature(model_info(self.recipe.model.name).cls).parameters:
            given["edge_dim"] = self.header.edge_dim
        return given | self.arguments

    def build(self) -> nn.Module:
        """The freshly initialised model for this dataset. Raises RecipeError where the constructor refuses the recipe's values."""
        try:
            model = create_model(self.recipe.model.name, **self.constructor())
        except (ValueError, RuntimeError, ZeroDivisionError) as error:  # torch's own: a width below 0
            if is_out_of_memory(error):
                raise
            raise RecipeError(f"{self.path}: model: {error}") from error
        if unsized := [
            name for name, weight in model.named_parameters() if nn.parameter.is_lazy(weight)
        ]:  # a width of 0 is one for torch_geometric
            raise RecipeError(f"{self.path}: model: {unsized[0]} has no size; give each layer a width above 0")
        if empty := [name for name, weight in model.named_parameters() if not weight.numel()]:
            given = ", ".join(f"{key}: {value}" for key, value in self.recipe.model.arguments.items() if value == 0)
            raise RecipeError(
                f"{self.path}: model: {empty[0]} has no entries{given and f' (given: {given})'}; give each layer a width above 0"
            )
        for phase in self.recipe.phases:
            enter: Callable[[str], None] | None = getattr(model, "set_phase", None)
            if enter is None:
                raise RecipeError(
                    f"{self.path}: phases: model {self.recipe.model.name!r} has none; give epochs in their place"
                )
            try:
                enter(phase.name)
            except ValueError as error:
                raise RecipeError(f"{self.path}: phases: {error}") from error
        return model

    def loader(self, seed: int) -> Batches:
        """Batches of the dataset as the recipe's protocol reads it. Raises ValueError where the two do not fit."""
        dtype = torch.float64 if self.recipe.precision == "float64" else torch.float32
        packed = (
            StandardisedTargets(self.packed, self.recipe.targets, self.split_of(seed))
            if self.recipe.targets
            else self._read
        )
        data = (packed, self.encoded, self.split_of(seed), self.recipe.batch, seed, self.device, dtype)
        if self.recipe.subgraphs:
            around = SubgraphLoader(*data, subgraphs=self.recipe.subgraphs, encodings=self.recipe.encodings)
            return cast(
                Batches, around
            )  # all but `on`: only a graph that a step takes whole is evaluated on another device
        return (self.task.loader or Loader)(*data)

    @cached_property
    def _read(self) -> Packed:
        """The dataset with sparse features as such, where the model takes them and the graph is not cut."""
        cut = self.recipe.subgraphs or self.recipe.batch.parts
        sparse = self.device.type == "cpu" and not cut and model_info(self.recipe.model.name).sparse_x
        return self.packed.with_sparse_x() if sparse else self.packed

    def split_of(self, seed: int) -> int:
        """The split that this seed trains on."""
        return self.recipe.split_of(seed, self.header.num_splits)

    def check_metric(self, seeds: Iterable[int]) -> None:
        """Raises RecipeError where the metric is undefined on a part that these seeds evaluate."""
        check_metric(self.packed, self.task, map(self.split_of, seeds), self.path)

    def decisive(self, seed: int) -> Settings:
        """`Recipe.decisive`, with the run that it starts from in place of that run's cell."""
        content = self.recipe.decisive()
        if self.recipe.start:
            if self.source is None:
                raise RecipeError(
                    f"{self.path}: start: {self.recipe.start.cell} is not at hand here; run the cell by `python -m stages.train`"
                )
            content["start"] = {"load": self.recipe.start.load, "run": self.source.digest(seed)}
        return content

    def digest(self, seed: int, test: bool = True) -> str:
        """What names the run in the store. `test`: False for a trial of a search, which is not tested."""
        return run_digest(self.decisive(seed), seed, self.split_of(seed), self.digests, self.versions, test)

    def run(
        self,
        seed: int,
        *,
        test: bool = True,
        on_start: Callable[[int, str], None] | None = None,
        on_epoch: Callable[[int, dict[str, float]], None] | None = None,
        shared: bool = False,
    ) -> tuple[Record, bool]:
        """(record, whether it was computed now): the stored record where there is a settled one, else the run is computed and stored.
        `shared`: others run in the same memory; running out of it is then no result, and is not stored."""
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
                compute = _ComputeAlone(self, seed, digest, test)
                record = fresh_process.compute_in_new_process(compute, f"{self.path}: seed {seed}", on_epoch)
            else:
                with computing_with(self.recipe.threads):
                    record = self._compute(seed, digest, test, on_epoch)
            self._check_key(record, digest, test)
            if not (shared and record["deterministic"]["status"] == "oom"):
                self.store.put(record)
        return record, True

    def _check_key(self, record: Record, digest: str, test: bool) -> None:
        """Raises RecipeError where the process that computed a run knew it by another key than the one that wanted it."""
        run = record["deterministic"]
        found = run_digest(run["recipe"], run["seed"], run["split"], run["digests"], run["versions"], test)
        if found != digest:
            mine: dict[str, object] = {**self.digests, **self.versions, "recipe": self.decisive(run["seed"])}
            theirs: dict[str, object] = {**run["digests"], **run["versions"], "recipe": run["recipe"]}
            differing = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)) or [
                "split"
            ]
            raise RecipeError(
                f"{self.path}: seed {run['seed']}: the run was computed under another key than it was wanted by ({', '.join(differing)} changed meanwhile: "
                "code, data or the model's files were edited); nothing is stored; run the same command again"
            )

    def settled(self, seed: int, test: bool = True) -> Record | None:
        """The stored record of a seed where running again could not change it."""
        return self._settled(self.digest(seed, test))

    def take(self, digest: str) -> Record | None:
        """The settled record of a digest, for whoever was to compute it: a checkpoint beside one that is final was left by a process that was
        killed right after it had written the record, and goes."""
        record = self._settled(digest)
        if record and record["deterministic"]["status"] in ("ok", "diverged"):
            with contextlib.suppress(OSError):  # a store that can only be read
                self.store.remove_checkpoints(digest)
        return record

    def _settled(self, digest: str) -> Record | None:
        record = self.store.settled(digest, time_limit=self.time_limit, memory_limit=memory_limit_mib(self.device))
        kept = (self.store.folder(digest) / pretrained_init.FILE).exists()
        # a record whose weights are gone, or were never kept, is of no use to what starts from them
        lost = record and self.recipe.keep_weights and record["deterministic"]["status"] == "ok" and not kept
        return None if lost else record

    def _started(self, seed: int) -> Callable[[], nn.Module]:
        """`build`, or where the recipe starts from another cell: build and load its weights. Raises RecipeError where they are not there."""
        start = self.recipe.start
        if start is None:
            return self.build
        assert self.source is not None  # without it the run has no digest, and does not come so far
        digest = self.source.digest(seed)
        record = self.store.get(digest)
        status, said = (record["deterministic"]["status"], record["deterministic"]["error"]) if record else (None, None)
        folder = self.store.folder(digest)
        kept = self.source.recipe.keep_weights and (folder / pretrained_init.FILE).exists()
        if status is None or (status == "ok" and not kept):
            raise RecipeError(
                f"{self.path}: start: {start.cell}: its run with seed {seed} {'kept no weights' if status else 'is not run'}; its recipe "
                f"needs seed {seed} and keep_weights: true, and `python -m stages.train {start.cell}` comes first"
            )

        def build() -> nn.Module:
            if status != "ok":  # then this run has no better end
                raise failure(status, f"the run that it starts from ({start.cell}, seed {seed}): {said}")
            model = self.build()
            try:
                pretrained_init.load_weights(model, folder, start.load)
            except ValueError as error:
                raise RecipeError(f"{self.path}: start: {start.cell}: {error}") from None
            return model

        return build

    def _compute_in_processes(
        self, seed: int, digest: str, test: bool, on_epoch: Callable[[int, dict[str, float]], None] | None
    ) -> Record:
        """Raises RecipeError where the machine has not as many GPUs, and Lost where one of the processes dies."""
        from gt_bench.experiment.launch_ddp import compute_in_processes

        gpu = self.device.type == "cuda"
        check_machine(self.recipe, self.settings.device, gpu, self.path)
        compute = partial(self._compute_part, seed, digest, test)
        return compute_in_processes(compute, self.recipe.processes, gpu, f"{self.path}: seed {seed}", on_epoch)

    def _compute_part(
        self,
        seed: int,
        digest: str,
        test: bool,
        share: "Share",
        on_epoch: Callable[[int, dict[str, float]], None] | None,
        recomputed: bool,
    ) -> Record:
        """In a process of its own."""
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
        on_epoch: Callable[[int, dict[str, float]], None] | None,
        share: "Share | None" = None,
        recomputed: bool = False,
    ) -> Record:
        """`share`: this process's part of the run, where several do it together; `recomputed`: see `Run.recomputed`, of those."""
        freeze_loaded_objects()
        process = global_state() | {DETERMINISTIC: self.device.type == "cpu"} if is_own(self.recipe.model.name) else {}
        clock, memory, usage = Clock(), PeakMemory(self.device), Usage(self.device)

        def after_epoch(epoch: int, values: dict[str, float]) -> None:
            usage.epoch(epoch)
            if process and (changed := [what for what, value in global_state().items() if value != process[what]]):
                raise RecipeError(
                    f"{self.path}: model: it changes {changed[0]} of the whole process; a run may change nothing outside its model"
                )
            if on_epoch:
                on_epoch(epoch, values)

        checkpoint = Checkpoint(
            self.store.folder(digest).absolute() / "checkpoint.safetensors", self.settings.checkpoint_seconds
        )
        try:
            loader = self.loader(seed)
            run = self._runner(share, recomputed)(
                self.recipe, self.task, loader, self._started(seed),
                seed=seed, meter=clock, checkpoint=checkpoint, time_limit=self.time_limit, on_epoch=after_epoch,
            )  # fmt: skip
        except RecipeError:  # names the file already
            raise
        except ValueError as error:
            raise RecipeError(f"{self.path}: {error}") from error
        memory.start()
        try:
            with forms_taken(training=True) as trained, forms_taken(training=False) as evaluated:
                outcome = run.train(test)
        except (MissingEncoding, WrongOutput) as error:
            raise RecipeError(f"{self.path}: {error}") from error
        except ValueError as error:
            if isinstance(error, UserError) or not (remedy := one_row(error)):
                raise
            raise RecipeError(f"{self.path}: model {self.recipe.model.name!r}: {error}; {remedy}") from error
        writes = share is None or share.rank == 0
        if writes and (test or self.recipe.keep_weights) and outcome.status == "ok" and run.best:
            # train_cell lets those of the best seed stay
            folder, of_every_seed = self.store.folder(digest), self.recipe.keep_weights
            save_trained(folder, run.best["model"], self.recipe.model.name, self.constructor(), of_every_seed)
        with contextlib.suppress(RuntimeError):
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        if run.recomputed:
            trained["layers"] = Counter(recomputed=1)
        taken = {"training": trained, "evaluation": evaluated}
        forms = {
            phase: {operation: sorted(of) for operation, of in sorted(found.items())} for phase, found in taken.items()
        }
        return self.record(outcome, seed, digest, clock, memory, forms, usage)

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
    ) -> Record:
        """The record of a finished run: what is the same everywhere, and what was measured here."""
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
                # of each operation of gt_models.kernels; equal bits are promised for equal forms
                "forms": forms,
                "arguments": all_arguments(self.recipe.model.name, self.constructor()),
                "usage": usage.read(),
                "encodings": self.encoded.computed_by,
                "code": self.code,
                "environment": environment(self.device, self.allocator),
            },
        }
        return sealed(content)
