"""Computation of one run: training, evaluation, saved weights and predictions, and the record."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from gt_bench.config.schema import RecipeError
from gt_bench.experiment.pack_predictions import pack
from gt_bench.experiment.record import make_record
from gt_bench.experiment.setup import Setup
from gt_bench.records.run import RunRecord, StoredPredictions
from gt_bench.runtime.environment import Clock, PeakMemory, Usage, device_name
from gt_bench.runtime.fresh_process import OnEpoch
from gt_bench.runtime.startup import freeze_loaded_objects, prepare_process
from gt_bench.runtime.threads import computing_with
from gt_bench.store import predictions
from gt_bench.store.weights import save_trained
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.ddp import SharedRun
from gt_bench.training.failures import StateError, WrongOutput, one_row
from gt_bench.training.interfaces import Batches
from gt_bench.training.loader import Loader
from gt_bench.training.runner import Outcome, Runner
from gt_bench.training.static_batches import StaticError
from gt_bench.training.trainer import Run
from gt_bench.utils.errors import UserError
from gt_models.batch import MissingEncoding

if TYPE_CHECKING:
    from gt_bench.training.ddp import Share


def compute_in_fresh_process(
    experiment: Setup, seed: int, digest: str, test: bool, on_epoch: OnEpoch | None
) -> RunRecord:
    """Prepares a new process and computes a run in it; arguments are those of `compute`."""
    prepare_process(experiment.settings)
    return compute(experiment, seed, digest, test, on_epoch)


def compute_rank(
    experiment: Setup,
    seed: int,
    digest: str,
    test: bool,
    share: "Share",
    on_epoch: OnEpoch | None,
    recomputed: bool,
) -> RunRecord:
    """Computes the part of a new process in a run of several processes; arguments are those of `compute`."""
    if share.device.type == "cuda":
        settings = experiment.settings.model_copy(update={"device": str(share.device)})
        experiment = replace(experiment, settings=settings)
    prepare_process(experiment.settings, processes=share.world)
    return compute(experiment, seed, digest, test, on_epoch, share, recomputed)


def compute(
    experiment: Setup,
    seed: int,
    digest: str,
    test: bool,
    on_epoch: OnEpoch | None,
    share: "Share | None" = None,
    recomputed: bool = False,
) -> RunRecord:
    """Computes a run with the threads of its recipe.

    Args:
        experiment: the experiment.
        seed: seed of the run.
        digest: key of the run, which names the folder of its checkpoint.
        test: whether to evaluate on the test split.
        on_epoch: called with (epoch, {quantity: value}) after each epoch.
        share: rank and process group if several processes compute the run together.
        recomputed: start with activation checkpointing; see `Runner.recomputed`.

    Raises:
        RecipeError: recipe, model and dataset do not fit.
    """
    recipe, folder, writes = experiment.recipe, experiment.store.folder(digest), share is None or share.rank == 0
    with computing_with(recipe.threads):
        freeze_loaded_objects()
        device = experiment.device
        clock, memory, usage = Clock(device_name(device)), PeakMemory(device), Usage(device)

        def after_epoch(epoch: int, values: dict[str, float]) -> None:
            usage.epoch(epoch)
            if on_epoch:
                on_epoch(epoch, values)

        loader, run = _create_run(experiment, seed, folder, clock, after_epoch, share, recomputed)
        run.kept.limit = int(experiment.predictions_mib * 2**20) if test else 0
        memory.start()
        with model_errors(experiment):
            outcome = run.train(test)
        _check_same(experiment, outcome, seed, digest)
        if writes and (test or recipe.keep_weights) and outcome.status == "ok" and run.best:
            # train_cell deletes all but those of the best seed
            save_trained(
                folder, run.best["model"], recipe.model.name, experiment.constructor_arguments(),
                of_every_seed=recipe.keep_weights, head=experiment.head_arguments(),
            )  # fmt: skip
        with contextlib.suppress(RuntimeError):
            if experiment.device.type == "cuda":
                torch.cuda.empty_cache()
        record = make_record(experiment, digest, run, clock, memory, usage)
        if writes and test and outcome.status == "ok":
            return record.model_copy(update={"predictions": _save_predictions(experiment, run, loader, folder)})
        return record


def _create_run(
    experiment: Setup, seed: int, folder: Path, clock: Clock, on_epoch: OnEpoch, share: "Share | None", recomputed: bool
) -> tuple[Batches, Runner]:
    """Returns the batches of a seed, and the run that trains on them.

    Raises:
        RecipeError: the recipe does not fit the dataset.
    """
    try:
        loader = experiment.loader(seed)
        if type(loader) is Loader and share is None:  # processes that share a batch each load their part
            loader.place(experiment.settings.data_on)
        shared = share and partial(SharedRun, share=share, recomputed=recomputed)
        return loader, (shared or experiment.task.runner or Run)(
            experiment.recipe, experiment.task, loader, experiment.initial_model(seed), seed=seed, meter=clock,
            checkpoint=Checkpoint(folder.absolute() / "checkpoint.safetensors", experiment.settings.checkpoint_seconds),
            time_limit=experiment.time_limit, on_epoch=on_epoch,
        )  # fmt: skip
    except RecipeError as error:
        if not error.file:
            error.within(experiment.path)
        raise
    except ValueError as error:
        raise RecipeError(str(error), file=experiment.path) from error


@contextlib.contextmanager
def model_errors(experiment: Setup) -> Iterator[None]:
    """Raises RecipeError instead of errors of a model that does not fit the dataset or the recipe."""
    try:
        yield
    except (StateError, MissingEncoding, WrongOutput, StaticError) as error:
        raise RecipeError(str(error), file=experiment.path) from error
    except ValueError as error:
        if isinstance(error, UserError) or not (remedy := one_row(error)):
            raise
        place = f"model {experiment.recipe.model.name!r}"
        raise RecipeError(str(error), file=experiment.path, place=place, remedy=remedy) from error


def _check_same(experiment: Setup, outcome: Outcome, seed: int, digest: str) -> None:
    """Raises RecipeError if a run that is computed again for its predictions has other numbers than its record."""
    stored = experiment.store.get(digest) if experiment.settings.require_predictions else None
    if stored is None or stored.run.status != "ok":
        return
    then, now = stored.run, (outcome.curves, outcome.val, outcome.test_metrics)
    if json.dumps((then.epochs, then.val, then.test_metrics), sort_keys=True) != json.dumps(now, sort_keys=True):
        cpu = stored.measured.environment.cpu or stored.measured.device
        raise RecipeError(
            f"computed again here, the run has other numbers than its record (computed on {cpu}), so its predictions "
            "would not be those of the record; nothing is changed",
            file=experiment.path,
            place=f"seed {seed}",
            remedy=f"to replace the record by a run of this machine, delete {experiment.store.folder(digest)} and "
            "train the cell again",
        )


def _save_predictions(experiment: Setup, run: Runner, loader: Batches, folder: Path) -> StoredPredictions:
    """Writes outputs on validation and test next to the record, and returns their entry of the record."""
    recipe, header = experiment.recipe, experiment.header
    if run.kept.dropped is not None:
        needed, limit = run.kept.dropped / 2**20, experiment.predictions_mib
        return StoredPredictions(left_out=f"{needed:.1f} MiB, limit {limit:g} MiB", left_out_mib=round(needed, 3))
    if not run.kept.limit:
        return StoredPredictions(left_out="run.predictions is 0", left_out_mib=0.0)
    if not run.kept.parts:
        return StoredPredictions(left_out=f"the protocol of the task {header.task} predicts no val and test part")
    level = "edge" if recipe.head else recipe.level_of(header.level)
    content = pack(run.kept.parts, loader, header.task, recipe.loss, level)
    return predictions.save(folder, content)
