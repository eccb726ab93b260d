"""The record of a run: results, everything that decides them, and measurements."""

from types import SimpleNamespace
from typing import Literal, cast

import torch

from gt_bench.config.schema import RecipeError
from gt_bench.experiment.setup import Setup
from gt_bench.records.run import Measured, RunRecord, RunResult, RunStatus
from gt_bench.runtime.environment import Clock, PeakMemory, Usage, device_name, environment, memory_limit_mib, now
from gt_bench.store.run_store import SCHEMA, run_digest, sealed
from gt_bench.store.weights import all_arguments
from gt_bench.training.runner import Outcome, Runner
from gt_bench.utils.digest import digest_of


def make_record(
    experiment: Setup, digest: str, run: Runner, clock: Clock, memory: PeakMemory, usage: Usage
) -> RunRecord:
    """Returns the record of a finished run.

    Args:
        experiment: the experiment.
        digest: key of the run.
        run: the run, which has ended.
        clock: seconds of training and evaluation.
        memory: peak memory.
        usage: memory and processor use by epoch.
    """
    outcome, seed, task = run.outcome, run.seed, experiment.task
    recipe, epochs = experiment.decisive(seed), max(1, len(outcome.curves["epoch"]))
    evaluated = max(1, sum(value is not None for value in outcome.curves["val"]))
    result = RunResult(
        status=RunStatus(outcome.status),
        error=outcome.error,
        seed=seed,
        split=experiment.split_of(seed),
        recipe=recipe,
        digests=experiment.digests.model_copy(update={"recipe": digest_of(recipe)}),
        versions=experiment.versions,
        dataset=experiment.dataset,
        metric=task.metric,
        direction=cast(Literal["max", "min"], task.direction),
        parameters=outcome.parameters,
        epochs=outcome.curves,
        best_epoch=outcome.best_epoch,
        val=outcome.val,
        test=outcome.test,
        test_metrics=outcome.test_metrics,
    )
    measured = Measured(
        started=clock.sessions[0].started,
        finished=now(),
        seconds=sum(clock.totals.values()),
        train_seconds_per_epoch=clock.totals["train"] / epochs,
        eval_seconds_per_epoch=clock.totals["eval"] / evaluated,
        peak_memory_mib=memory.read(),
        memory_limit_mib=memory_limit_mib(experiment.device),
        time_limit_seconds=experiment.time_limit,
        device=device_name(experiment.device),
        threads=torch.get_num_threads(),
        # runs with the same forms of all operations are bit-identical
        forms={
            phase: {operation: sorted(calls) for operation, calls in sorted(found.items())}
            for phase, found in run.forms.items()
        },
        arguments=all_arguments(experiment.recipe.model.name, experiment.constructor_arguments()),
        usage=usage.read(),
        encodings=experiment.encoded.computed_by,
        code=experiment.code,
        environment=environment(experiment.device, experiment.allocator),
    )
    if run.static:
        measured = measured.model_copy(update={"static": run.static.report()})
    if clock.sessions[1:]:
        measured = measured.model_copy(update={"sessions": clock.sessions})
    return sealed(RunRecord(schema_=SCHEMA, digest=digest, run=result, measured=measured))


def killed_record(experiment: Setup, seed: int, digest: str, why: str) -> RunRecord:
    """Returns the record of a run whose process the kernel killed because memory ran out; what it trained is lost."""
    outcome = Outcome(status="oom", error=why)
    ended = SimpleNamespace(outcome=outcome, seed=seed, forms={}, static=None)
    device = experiment.device
    return make_record(
        experiment, digest, cast(Runner, ended), Clock(device_name(device)), PeakMemory(device), Usage(device)
    )


def check_digest(experiment: Setup, record: RunRecord, digest: str, test: bool) -> None:
    """Checks that the process that computed a run found the same digest for it as this process.

    Args:
        experiment: the experiment in this process.
        record: the computed record.
        digest: the digest that this process found.
        test: False for a trial of a search.

    Raises:
        RecipeError: code, data or the model's files were edited during the run.
    """
    run = record.run
    if run_digest(run.recipe, run.seed, run.split, run.digests, run.versions, test) == digest:
        return
    recipe = experiment.decisive(run.seed)
    mine: dict[str, object] = {**experiment.digests.to_disk(), **experiment.versions, "recipe": recipe}
    theirs: dict[str, object] = {**run.digests.to_disk(), **run.versions, "recipe": run.recipe}
    differing = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
    raise RecipeError(
        f"{', '.join(differing or ['split'])} changed during the run, because code, data or the model's files were "
        "edited; nothing is stored",
        file=experiment.path,
        place=f"seed {run.seed}",
        value=differing or ["split"],
        remedy="run the same command again",
    )
