"""What every protocol of a run has: its outcome, its clock and checkpoint, and failures as statuses of the outcome.

The protocols are `gt_bench.training.trainer.Run`, which trains and selects an epoch on validation, and the runners of
tasks (`gt_bench.tasks.base.Task.runner`).
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from gt_bench.records.run import Session
from gt_bench.runtime import signals
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.evaluation import KeptExamples
from gt_bench.training.failures import OutOfMemory, RunFailure, is_out_of_memory
from gt_bench.training.interfaces import Batches, Objective
from gt_bench.training.static_batches import StaticForward
from gt_models.kernels import forms_taken

if TYPE_CHECKING:
    from gt_bench.config.recipe import Recipe

CURVES = ("epoch", "lr", "train_loss", "val_loss", "val")


class Meter(Protocol):
    """Clock of the training loop. It does not influence any number of the run."""

    totals: dict[str, float]
    sessions: list[Session]

    def timing(self, what: str) -> contextlib.AbstractContextManager[object]:
        """Adds the seconds of a block to `totals[what]`, where `what` is train, eval or test."""
        ...


@dataclass
class Outcome:
    """The deterministic result of a run.

    Attributes:
        status: "ok", or the status of a RunFailure.
        error: message of the failure.
        parameters: number of parameters of the model.
        curves: {quantity: one value per epoch}. A value is None if validation was not evaluated in this epoch.
        best_epoch: selected epoch, counted from 1.
        val: validation metric in the selected epoch.
        test: test metric in the selected epoch.
        test_metrics: all metrics on the test split.
    """

    status: str = "ok"
    error: str | None = None
    parameters: int = 0
    curves: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in CURVES})
    best_epoch: int | None = None
    val: float | None = None
    test: float | None = None
    test_metrics: dict[str, float] = field(default_factory=dict)


@dataclass(eq=False)
class Runner:
    """One run: a model, its batches, its task and a protocol, which subclasses implement in `_train` and `_test`.

    Args:
        recipe: the recipe.
        task: a `gt_bench.tasks.base.Task`.
        loader: batches of the run's split.
        build: returns a newly initialised model.
        seed: seed of the run.
        meter: measures the time of training and evaluation.
        checkpoint: file that stores the state of the run.
        time_limit: seconds of training and evaluation after which the run ends with status "timed-out". None for no
            limit.
        on_epoch: called with (epoch, {quantity: value}) after each epoch. An exception that it raises ends the run.
        recomputed: whether activation checkpointing is used, because the model did not fit into memory without it.

    Attributes:
        outcome: the result so far.
        best: weights of the selected epoch, and the state of its optimiser if a later phase needs it.
        static: padding and compilation of the model, if the recipe has `batch.static` or `compile`.
        forms: {"training" or "evaluation": {operation of `gt_models.kernels`: calls of each form}}.
        kept: outputs and targets of the tested weights.
    """

    # whether a signal ends the run after the current epoch, and not immediately
    stops_between_epochs = True

    recipe: "Recipe"
    task: Objective
    loader: Batches
    build: Callable[[], nn.Module]
    _: KW_ONLY
    seed: int
    meter: Meter
    checkpoint: Checkpoint
    time_limit: float | None = None
    on_epoch: Callable[[int, dict[str, float]], None] | None = None
    recomputed: bool = False

    def __post_init__(self) -> None:
        self.device = self.loader.device
        self.outcome = Outcome()
        self.best: dict[str, dict[str, Tensor]] = {}
        self.static: StaticForward | None = None
        self.kept = KeptExamples()
        self.forms: dict[str, dict[str, Counter[str]]] = {"training": {}, "evaluation": {}}

    @staticmethod
    def seconds(recipe: "Recipe", durations: Mapping[str, Sequence[float]]) -> float:
        """Estimates the duration of a run of another protocol than training.

        Args:
            recipe: the recipe.
            durations: of each timed block of a run with two epochs per part, {kind: in order}.
        """
        raise NotImplementedError

    def train(self, test: bool = True) -> Outcome:
        """Trains to the end and evaluates on the test split.

        Args:
            test: False to never read the test split.

        Returns:
            The outcome. A RunFailure and too little memory become its status. Other exceptions are raised.
        """
        with forms_taken(training=True) as training, forms_taken(training=False) as evaluation:
            self.forms = {"training": training, "evaluation": evaluation}
            while self._attempt(test):
                pass
        if self.recomputed:
            training["layers"] = Counter(recomputed=1)
        return self.outcome

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        return len(self.outcome.curves["epoch"])

    def _attempt(self, test: bool) -> bool:
        """Trains and tests. Returns whether to try again with less memory."""
        try:
            with (
                _deterministic(self.device),
                signals.deferred() if self.stops_between_epochs else contextlib.nullcontext(),
            ):
                self._train()
                if test:
                    self._test()
        except RunFailure as failure:
            self.outcome.status, self.outcome.error = failure.status, str(failure)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if self._saves_memory():
                return True
            self.outcome.status = OutOfMemory.status
            self.outcome.error = (
                f"out of memory in epoch {self.epoch + 1}: {str(error).splitlines()[0] if str(error) else 'no message'}"
            )
        return False

    def _begin(self) -> None:
        """Prepares the start of a run, before its checkpoint is read."""

    def _train(self) -> None:
        """Trains to the end, and raises RunFailure if that is not possible."""
        raise NotImplementedError

    def _test(self) -> None:
        """Sets the test metrics of the outcome."""
        raise NotImplementedError

    def _saves_memory(self) -> bool:
        """Prepares a new attempt that needs less memory. Returns False if there is none."""
        return False

    def _resume(self) -> None:
        """Resumes from the checkpoint. One that does not fit this run is renamed, and the run starts over."""
        saved = self.checkpoint.read()
        if saved is None:
            return
        try:
            self._restore(*saved)
        except (KeyError, ValueError, TypeError, AttributeError, IndexError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            self.checkpoint.set_aside(error)
            self._begin()  # discards a partly restored state

    def _restore(self, header: dict[str, Any], groups: dict[str, dict[str, Tensor]]) -> None:
        """Restores the state of a checkpoint. Raises an error of any type if it does not fit this run."""
        raise NotImplementedError

    def _report(self, values: Mapping[str, Any]) -> None:
        """Adds the values of an epoch to the curves and calls `on_epoch`."""
        for name, value in values.items():
            self.outcome.curves[name].append(value)
        if self.on_epoch:
            self.on_epoch(self.epoch, {k: v for k, v in values.items() if v is not None and k != "epoch"})

    def _over_time(self) -> bool:
        return self.time_limit is not None and self.meter.totals["train"] + self.meter.totals["eval"] > self.time_limit

    def _measured(self) -> dict[str, Any]:
        """Returns the part of a checkpoint's header that decides no number: seconds, sessions, forms of operations."""
        return {
            "totals": self.meter.totals,
            "sessions": [session.to_disk() for session in self.meter.sessions],
            "forms": self.forms,
        }

    def _restore_measured(self, header: dict[str, Any]) -> None:
        self.meter.totals.update({what: float(header["totals"][what]) for what in self.meter.totals})
        self.meter.sessions[:-1] = map(Session.from_disk, header["sessions"])
        for phase, operations in header["forms"].items():
            for operation, calls in operations.items():
                self.forms[phase].setdefault(operation, Counter()).update(calls)


@contextlib.contextmanager
def _deterministic(device: torch.device) -> Iterator[None]:
    """Allows only deterministic kernels on the CPU.

    On a GPU some scatter operations have no deterministic kernel, so two runs may differ in the last digits.
    """
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(device.type == "cpu")
    # filling memory costs time and would only hide errors
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
