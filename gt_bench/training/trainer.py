"""The training loop: trains a model, selects an epoch on validation, and evaluates it once on the test split.

The selected epoch is the best one on validation, or the last one if the recipe has `select: last`. With `select: test`,
which only repeats what some authors did, the test split takes the place of validation, in the curves too. Random
generators are seeded by (seed, epoch) at the start of each epoch. A run that resumes from a checkpoint is therefore
bit-identical to one that was never interrupted.
"""

# mypy: disable-error-code="attr-defined, operator"

import contextlib
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor, nn

from gt_bench.runtime import signals
from gt_bench.training.activation_checkpointing import recompute
from gt_bench.training.checkpoint import (
    Checkpoint,
    OutsideState,
    check_shapes,
    flatten_optimizer,
    restore_optimizer,
    state_shapes,
    with_plain_state,
)
from gt_bench.training.failures import (
    Diverged,
    OutOfMemory,
    RunFailure,
    StateError,
    TimedOut,
    WrongOutput,
    is_out_of_memory,
)
from gt_bench.training.interfaces import Batches, Objective
from gt_bench.training.loader import Loader, seed_of
from gt_bench.training.optim import create_optimizer, lr_factor
from gt_bench.training.static_batches import COMPILATIONS, StaticForward, choose_sizes, sizes_of_batches
from gt_models.kernels import forms_taken

# outputs and targets of each batch
Examples = tuple[Sequence[Tensor], Sequence[Any]]
CURVES = ("epoch", "lr", "train_loss", "val_loss", "val")
DTYPES = {"float32": torch.float32, "bf16": torch.float32, "float64": torch.float64}


class Meter(Protocol):
    """Clock of the training loop. It does not influence any number of the run."""

    totals: dict[str, float]

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


class Run:
    """One run: a model, its batches and its task.

    Args:
        recipe: a `gt_bench.config.recipe.Recipe`.
        task: a `gt_bench.tasks.base.Task`.
        loader: batches of the run's split.
        build: returns a newly initialised model.
        seed: seed of the run.
        meter: measures the time of training and evaluation.
        checkpoint: file that stores the state of the run.
        time_limit: seconds of training and evaluation after which the run ends with status "timed-out". None for no
            limit.
        on_epoch: called with (epoch, {quantity: value}) after each epoch. An exception that it raises ends the run.

    Attributes:
        outcome: the result so far.
        best: weights of the selected epoch, and the state of its optimiser if a later phase needs it.
        recomputed: whether activation checkpointing is used, because the model did not fit into memory without it.
        static: padding and compilation of the model, if the recipe has `batch.static` or `compile`.
        forms: {"training" or "evaluation": {operation of `gt_models.kernels`: calls of each form}}.
        examples: {"val" or "test": outputs and targets of each batch} of the tested weights.
        examples_limit: maximum size of `examples` in bytes. 0 for none.
        examples_dropped: size in bytes, if `examples` was dropped because it exceeds the limit. Otherwise None.
    """

    # whether a signal ends the run after the current epoch, and not immediately
    stops_between_epochs = True

    def __init__(
        self,
        recipe: Any,
        task: Objective,
        loader: Batches,
        build: Callable[[], nn.Module],
        *,
        seed: int,
        meter: Meter,
        checkpoint: Checkpoint,
        time_limit: float | None = None,
        on_epoch: Callable[[int, dict[str, float]], None] | None = None,
    ):
        self.recipe, self.task, self.loader, self.build = recipe, task, loader, build
        self.seed, self.meter, self.checkpoint = seed, meter, checkpoint
        self.time_limit, self.on_epoch = time_limit, on_epoch
        self.device = loader.device
        # between a loss and the same loss computed again: sums on a GPU are not deterministic
        self.tolerance = 1e-5 if self.device.type == "cpu" else 0.02
        # a graph that does not fit on the training device as a whole is evaluated on another device
        self.eval_loader = loader.on(torch.device(recipe.eval_device)) if recipe.eval_device else loader
        self.selects_on = "test" if recipe.select == "test" else "val"
        self.outcome = Outcome()
        self.phases = list(recipe.phases)
        self.ends = [sum(p.epochs for p in self.phases[: i + 1]) for i in range(len(self.phases))]  # last epoch of each
        self.best: dict[str, dict[str, Tensor]] = {}
        self.recomputed = False
        self.static: StaticForward | None = None
        self.examples_limit = 0
        self.examples_dropped: int | None = None
        self.examples: dict[str, Examples] = {}
        self.forms: dict[str, dict[str, Counter[str]]] = {"training": {}, "evaluation": {}}

    def train(self, test: bool = True) -> Outcome:
        """Trains to the end and evaluates on the test split.

        If a training step does not fit into memory, the run resumes from its checkpoint, or starts again, with
        activation checkpointing.

        Args:
            test: False to never read the test split.

        Returns:
            The outcome. A RunFailure becomes its status. Other exceptions are raised.
        """
        with forms_taken(training=True) as training, forms_taken(training=False) as evaluation:
            self.forms = {"training": training, "evaluation": evaluation}
            while self._attempt(test):
                pass
        if self.recomputed:
            training["layers"] = Counter(recomputed=1)
        return self.outcome

    def test_weights(self, weights: dict[str, Tensor], curves: dict[str, list[Any]], best_epoch: int | None) -> Outcome:
        """Evaluates saved weights on the test split, as `train` does at its end.

        Args:
            weights: state dict of the model.
            curves: curves of the finished run.
            best_epoch: selected epoch of the finished run.
        """
        self._begin()
        self.best = {"model": weights}
        self.outcome.curves, self.outcome.best_epoch = curves, best_epoch
        self._test()
        return self.outcome

    def _attempt(self, test: bool) -> bool:
        """Trains and tests. Returns whether to try again with activation checkpointing."""
        try:
            with (
                _deterministic(self.device),
                signals.deferred() if self.stops_between_epochs else contextlib.nullcontext(),
            ):
                self._train()
                if test:
                    self._test()
                    self._add_validation()
        except RunFailure as failure:
            self.outcome.status, self.outcome.error = failure.status, str(failure)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            model = getattr(self, "model", None)  # building it may have failed
            if (
                not self.recomputed
                and not self.recipe.compile
                and type(self)._train is Run._train
                and model is not None
                and model.training
                and recompute(model)
            ):
                self.recomputed, self.outcome, self.best = True, Outcome(), {}
                del self.model, self.optimizer
                return True
            self.outcome.status = OutOfMemory.status
            self.outcome.error = (
                f"out of memory in epoch {self.epoch + 1}: {str(error).splitlines()[0] if str(error) else 'no message'}"
            )
        return False

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        return len(self.outcome.curves["epoch"])

    def _train(self) -> None:
        self._begin()
        self._resume()
        total = self.recipe.total_epochs
        while self.epoch < total and not self._stops_early():
            began = time.monotonic()
            self._enter_phase()
            self._seed_generators("epoch", self.seed, self.epoch)
            with self.meter.timing("train"):
                lr, loss = self._train_epoch()
            values = {"epoch": self.epoch + 1, "lr": lr, "train_loss": loss, "val_loss": None, "val": None}
            due = (self.epoch + 1) % self.recipe.eval_every == 0 and self.epoch >= (self.recipe.eval_after or 0)
            if due or self.epoch + 1 == total:
                with self.meter.timing("eval"):
                    scores = self._evaluate(self.selects_on)
                values |= {"val_loss": scores["loss"], "val": scores[self.task.metric]}
            self._report(values)
            took = time.monotonic() - began
            # an epoch longer than the grace period of a signal is lost if the run is killed: save often
            is_long = took > signals.GRACE and self.checkpoint.cost < 0.02 * took
            if self.checkpoint.due or signals.pending() or is_long:
                self._save()
            if (
                self.time_limit is not None
                and self.meter.totals["train"] + self.meter.totals["eval"] > self.time_limit
                and self.epoch < total
            ):
                self._save()
                raise TimedOut(f"{self.epoch} of {total} epochs took longer than the limit of {self.time_limit:.0f} s")
            if signals.pending() and self.epoch < total:
                signals.leave()

    def _report(self, values: Mapping[str, Any]) -> None:
        """Adds the values of an epoch to the curves, which may make it the best one, and calls `on_epoch`."""
        for name, value in values.items():
            self.outcome.curves[name].append(value)
        self._update_best(values["val"])
        if self.on_epoch:
            self.on_epoch(self.epoch, {k: v for k, v in values.items() if v is not None and k != "epoch"})

    def _stops_early(self) -> bool:
        best = self.outcome.best_epoch
        return bool(self.recipe.patience and best and self.epoch - best >= self.recipe.patience)

    def _begin(self) -> None:
        """Initialises the model and its optimiser."""
        self._seed_generators("init", self.seed)
        self.model = with_plain_state(self.build()).to(self.device, self.loader.dtype)
        self.shapes, self.outside = state_shapes(self.model), OutsideState(self.model)
        self.outcome.parameters = sum(p.numel() for p in self.model.parameters())
        self.optimizer = create_optimizer(self.recipe.optimizer, self.model.parameters())
        if self.recipe.batch.static or self.recipe.compile:
            # each size is compiled for training and for evaluation, in each phase
            count = COMPILATIONS // (2 * max(1, len(self.phases)))
            padded = self.recipe.batch.static and choose_sizes(sizes_of_batches(cast(Loader, self.loader)), count)
            self.static = StaticForward(self.model, padded or None, self.recipe.compile)
        self.model.register_forward_hook(self._check_output)
        if self.recomputed:
            recompute(self.model)

    def _seed_generators(self, *stream: Any) -> None:
        """Seeds the generators of torch, NumPy and Python: a user-supplied model may use any of them."""
        seed = seed_of(*stream)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        # on the CPU, torch.manual_seed would spend half a millisecond on other devices
        (torch.manual_seed if self.device.type != "cpu" else torch.default_generator.manual_seed)(seed)

    def _check_output(self, model: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        """Forward hook. Raises WrongOutput if the loss would broadcast or index classes that do not exist."""
        header = self.loader.packed.header
        expected = self.task.output_shape(arguments[0], header)
        if not isinstance(output, Tensor) or not output.is_floating_point():
            got = (
                f"{output.dtype} of shape {list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            )
        elif expected is None or output.shape == expected:
            return
        else:
            got = f"shape {list(output.shape)}"
        raise WrongOutput(
            f"model {type(model).__name__} ({type(model).__module__}) on dataset {header.name!r}: its output is {got}, "
            f"but {header.task} requires floating-point numbers of shape {list(expected or ('any',))}: one row per "
            f"target and {header.out_dim} columns (`out_dim`)"
        )

    def _train_epoch(self) -> tuple[float, float]:
        """Trains one epoch. Returns the learning rate of the first step and the mean loss per row."""
        section, schedule = self.recipe.optimizer, self.recipe.schedule
        steps = self.loader.steps_per_epoch if schedule.unit == "step" else 1
        self.model.train()
        losses, rows_seen, first_lr = [], [], None
        for step, (batch, rows) in enumerate(self.loader.training(self.epoch)):
            position = self.epoch * steps + step if schedule.unit == "step" else self.epoch
            lr = section.lr * lr_factor(
                schedule, position, self.recipe.total_epochs * steps, self.outcome.curves["val"], self.task.direction
            )
            first_lr = lr if first_lr is None else first_lr
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            output, target = self._predict(batch, rows)
            loss = self.task.loss(output, target)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if section.clip_norm is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), section.clip_norm)
            self.optimizer.step()
            losses.append(loss.detach())
            rows_seen.append(len(target))
        if not losses:
            raise ValueError("the training split is empty: an epoch has no batch")
        check_shapes(self.model, self.shapes)
        weights = torch.tensor(rows_seen, dtype=torch.float64)
        mean = float((torch.stack(losses).double().cpu() * weights).sum() / weights.sum())
        if not math.isfinite(mean):
            raise Diverged(f"the training loss is {mean} in epoch {self.epoch + 1}")
        # a gradient that is not finite makes weights not finite; outputs of a model need not show that
        if not bool(nn.utils.get_total_norm(parameter.detach() for parameter in self.model.parameters()).isfinite()):
            names = [name for name, parameter in self.model.named_parameters() if not bool(parameter.isfinite().all())]
            if names:  # otherwise only the norm overflows
                listed = ", ".join(names[:3]) + (" ..." if names[3:] else "")
                raise Diverged(f"weights are not finite after epoch {self.epoch + 1}: {listed}")
        return first_lr, mean  # type: ignore[return-value]

    def _predict(self, batch: Any, rows: Tensor | None) -> tuple[Tensor, Any]:
        signals.poll()
        device = self.device if self.model.training else self.eval_loader.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.recipe.precision == "bf16"):
            output, target = self.task.predict(self.model, batch, rows)
        return (output.float() if output.dtype == torch.bfloat16 else output), target

    def _evaluate(self, part: str, final: bool = False) -> dict[str, float]:
        outputs, targets = self._outputs(part, self.epoch)
        epoch = self.outcome.best_epoch if final else self.epoch + 1
        if not bool(torch.stack([output.isfinite().all() for output in outputs]).all()):  # waits for the device once
            raise Diverged(f"outputs on {part} are not finite in epoch {epoch}")
        scores = self.task.evaluate(list(outputs), list(targets))
        if not math.isfinite(scores["loss"]):
            raise Diverged(f"the loss on {part} is {scores['loss']} in epoch {epoch}")
        # no later epoch would count as better than NaN
        if not math.isfinite(value := scores[self.task.metric]):
            raise RunFailure(f"{self.task.metric} on {part} is {value} in epoch {epoch}: it is not defined there")
        if final and self.examples_limit:
            self._add_examples(part, outputs, targets)
        return scores

    @torch.no_grad()
    def _outputs(self, part: str, epoch: int) -> Examples:
        """Returns outputs and targets of each batch of a part, with the random numbers of epoch number `epoch`."""
        other_device = self.eval_loader.device != self.device
        if other_device:  # `to` is slow even if the model is already there
            self.model.to(self.eval_loader.device)
        self.model.eval()
        self._seed_generators("evaluate", self.seed, epoch)
        outputs, targets = zip(
            *(self._predict(batch, rows) for batch, rows in self.eval_loader.evaluation(part)), strict=True
        )
        if other_device:
            self.model.to(self.device)
        return outputs, targets

    def _add_examples(self, part: str, outputs: Sequence[Tensor], targets: Sequence[Any]) -> None:
        """Adds a part to `examples`, or drops all of them if they are too large."""
        parts = [outputs, *(stored for stored, _ in self.examples.values())]
        needed = sum(output.nbytes for part_outputs in parts for output in part_outputs)
        if needed > self.examples_limit:
            self.examples, self.examples_dropped = {}, needed
        else:
            self.examples[part] = list(outputs), list(targets)

    def _add_validation(self) -> None:
        """Evaluates the tested weights on validation once more, to keep their outputs. It decides no number.

        Raises:
            StateError: the loss is not that of the selected epoch, so the test metrics are not of that epoch.
        """
        if not self.examples or self.outcome.best_epoch is None:
            return
        place = self.outcome.best_epoch - 1
        with self.meter.timing("test"):
            outputs, targets = self._outputs("val", place)
            if self.selects_on == "val":
                loss, before = self.task.evaluate(list(outputs), list(targets))["loss"], self.outcome.curves["val_loss"]
                if not math.isclose(loss, before[place], rel_tol=self.tolerance, abs_tol=self.tolerance):
                    raise StateError(
                        f"model {type(self.model).__name__}: with the weights of epoch {place + 1}, the loss on "
                        f"validation is {loss:.6g}, and in that epoch it was {before[place]:.6g}: the model has state "
                        "outside of its state_dict (attributes, buffers with persistent=False, own random generators), "
                        "so the best epoch cannot be tested and no run can be resumed; use "
                        "self.register_buffer(name, tensor)"
                    )
        self._add_examples("val", outputs, targets)

    def _update_best(self, value: float | None) -> None:
        best, direction = self.outcome.val, self.task.direction
        if value is not None and (
            best is None or self.recipe.select == "last" or (value > best if direction == "max" else value < best)
        ):
            self.outcome.val, self.outcome.best_epoch = value, self.epoch
            now = {"model": self.model.state_dict()}
            # if a later phase starts from the best weights
            if any(
                phase.reload_best for phase, end in zip(self.phases[1:], self.ends, strict=False) if self.epoch <= end
            ):
                now["optimizer"] = flatten_optimizer(self.optimizer)
            self.best = {what: _copy(tensors, self.best.get(what, {})) for what, tensors in now.items()}

    def _enter_phase(self) -> None:
        """Sets the model's phase for epoch `self.epoch`. Loads the best weights when a `reload_best` phase starts."""
        if not self.phases:
            return
        index = next(i for i, end in enumerate(self.ends) if self.epoch < end)
        phase = self.phases[index]
        if phase.reload_best and self.best and self.epoch == (self.ends[index - 1] if index else 0):
            self.model.load_state_dict(self.best["model"])
            restore_optimizer(self.optimizer, self.best["optimizer"])
        self.model.set_phase(phase.name)

    def _test(self) -> None:
        self.model.load_state_dict(self.best["model"])
        if self.phases:
            index = next(i for i, end in enumerate(self.ends) if self.outcome.best_epoch <= end)
            self.model.set_phase(self.phases[index].name)
        with self.meter.timing("test"):
            self.outcome.test_metrics = self._evaluate("test", final=True)
        self.outcome.test = self.outcome.test_metrics[self.task.metric]

    def _save(self) -> None:
        if self.checkpoint.path is None:
            return
        header = {
            "curves": self.outcome.curves,
            "best_epoch": self.outcome.best_epoch,
            "val": self.outcome.val,
        } | self._measured()
        header["attributes"], replaced, changed = self.outside.read()
        groups = {
            "model": self.model.state_dict(),
            "optimizer": flatten_optimizer(self.optimizer),
            "replaced": replaced,
            "changed": changed,
        }
        groups |= {f"best_{name}": tensors for name, tensors in self.best.items()}
        self.checkpoint.write(header, groups)

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
        curves = {name: list(header["curves"][name]) for name in self.outcome.curves}
        if (
            not 0 < len(curves["epoch"]) <= self.recipe.total_epochs
            or len({len(curve) for curve in curves.values()}) != 1
        ):
            raise ValueError("its curves do not fit the recipe")
        best_epoch, val = header["best_epoch"], header["val"]
        if val is not None and not math.isfinite(val):
            raise ValueError(f"its best validation is {val}")
        if best_epoch is not None and "best_model" not in groups:
            raise ValueError("the weights of the best epoch are missing")
        self.model.load_state_dict(groups["model"])
        restore_optimizer(self.optimizer, groups["optimizer"])
        tensors = [
            {place: tensor.to(self.device) for place, tensor in groups.get(name, {}).items()}
            for name in ("replaced", "changed")
        ]
        self.outside.restore(header.get("attributes", {}), *tensors)
        self.best = {
            name.removeprefix("best_"): {k: v.to(self.device) for k, v in tensors.items()}
            for name, tensors in groups.items()
            if name.startswith("best_")
        }
        self._restore_measured(header)
        self.outcome.curves, self.outcome.best_epoch, self.outcome.val = curves, best_epoch, val

    def _measured(self) -> dict[str, Any]:
        """Returns the part of a checkpoint's header that does not decide a number: seconds, and forms of operations."""
        return {"totals": self.meter.totals, "forms": self.forms}

    def _restore_measured(self, header: dict[str, Any]) -> None:
        self.meter.totals.update({what: float(header["totals"][what]) for what in self.meter.totals})
        for phase, found in header.get("forms", {}).items():  # checkpoints of version 0.1 have none
            for operation, calls in found.items():
                self.forms[phase].setdefault(operation, Counter()).update(calls)


@torch.no_grad()
def _copy(tensors: dict[str, Tensor], into: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies tensors, into the memory of `into` if it has the same names."""
    if not into or into.keys() != tensors.keys():  # the optimiser may have no state
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}
    torch._foreach_copy_(list(into.values()), [tensors[name].detach() for name in into])
    return into


@contextlib.contextmanager
def _deterministic(device: torch.device) -> Iterator[None]:
    """Allows only deterministic kernels on the CPU.

    On a GPU some scatter operations have no deterministic kernel, so two runs may differ in the last digits.
    """
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(device.type == "cpu")
    # filling memory costs time and would only hide errors
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
