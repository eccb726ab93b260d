"""The training loop: trains a model, selects an epoch on validation, and evaluates it once on the test split.

The selected epoch is the best one on validation, or the last one if the recipe has `select: last`. With `select: test`,
which only repeats what some authors did, the test split takes the place of validation, in the curves too. Random
generators are seeded by (seed, epoch) at the start of each epoch. A run that resumes from a checkpoint is therefore
bit-identical to one that was never interrupted.
"""

# mypy: disable-error-code="attr-defined, operator"

import math
import time
from typing import Any, cast

import torch
from torch import Tensor, nn

from gt_bench.runtime import signals
from gt_bench.training.activation_checkpointing import recompute
from gt_bench.training.checkpoint import (
    OutsideState,
    check_shapes,
    flatten_optimizer,
    restore_optimizer,
    state_shapes,
    with_plain_state,
)
from gt_bench.training.evaluation import Evaluator
from gt_bench.training.failures import Diverged, StateError, TimedOut, WrongOutput
from gt_bench.training.loader import Loader, seed_generators
from gt_bench.training.optim import create_optimizer, lr_factor
from gt_bench.training.runner import Outcome, Runner
from gt_bench.training.static_batches import COMPILATIONS, StaticForward, choose_sizes, sizes_of_batches

DTYPES = {"float32": torch.float32, "bf16": torch.float32, "float64": torch.float64}


class Run(Runner):
    """Trains a model, selects an epoch on validation and evaluates it on the test split.

    If a training step does not fit into memory, the run resumes from its checkpoint, or starts again, with activation
    checkpointing.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.evaluator = Evaluator(self.recipe, self.task, self.loader, self.seed)
        # between a loss and the same loss computed again: sums on a GPU are not deterministic
        self.tolerance = 1e-5 if self.device.type == "cpu" else 0.02
        self.selects_on = "test" if self.recipe.select == "test" else "val"
        self.phases = list(self.recipe.phases)
        self.ends = [sum(p.epochs for p in self.phases[: i + 1]) for i in range(len(self.phases))]  # last epoch of each

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

    def _train(self) -> None:
        self._begin()
        self._resume()
        total = self.recipe.total_epochs
        while self.epoch < total and not self._stops_early():
            began = time.monotonic()
            self._enter_phase()
            seed_generators(self.device, "epoch", self.seed, self.epoch)
            with self.meter.timing("train"):
                lr, loss = self._train_epoch()
            values = {"epoch": self.epoch + 1, "lr": lr, "train_loss": loss, "val_loss": None, "val": None}
            due = (self.epoch + 1) % self.recipe.eval_every == 0 and self.epoch >= (self.recipe.eval_after or 0)
            if due or self.epoch + 1 == total:
                with self.meter.timing("eval"):
                    scores = self._evaluate(self.selects_on)
                values |= {"val_loss": scores["loss"], "val": scores[self.task.metric]}
            self._select(values["val"], self.epoch + 1)
            self._report(values)
            took = time.monotonic() - began
            # an epoch longer than the grace period of a signal is lost if the run is killed: save often
            is_long = took > signals.GRACE and self.checkpoint.cost < 0.02 * took
            if self.checkpoint.due or signals.pending() or is_long:
                self._save()
            if self.epoch < total and self._over_time():
                self._save()
                raise TimedOut(f"{self.epoch} of {total} epochs took longer than the limit of {self.time_limit:.0f} s")
            if signals.pending() and self.epoch < total:
                signals.leave()

    def _stops_early(self) -> bool:
        best = self.outcome.best_epoch
        return bool(self.recipe.patience and best and self.epoch - best >= self.recipe.patience)

    def _begin(self) -> None:
        """Initialises the model and its optimiser."""
        seed_generators(self.device, "init", self.seed)
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
            output, target = self.evaluator.predict(self.model, batch, rows)
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

    def _select(self, value: float | None, epoch: int) -> None:
        """Makes an epoch the selected one, and copies its weights, if its validation metric is better."""
        best, direction = self.outcome.val, self.task.direction
        if value is not None and (
            best is None or self.recipe.select == "last" or (value > best if direction == "max" else value < best)
        ):
            self.outcome.val, self.outcome.best_epoch = value, epoch
            now = {"model": self.model.state_dict()}
            # if a later phase starts from the best weights
            if any(phase.reload_best for phase, end in zip(self.phases[1:], self.ends, strict=False) if epoch <= end):
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
        if self.kept.parts:
            self._keep_validation()

    def _evaluate(self, part: str, final: bool = False) -> dict[str, float]:
        """Evaluates the weights of the last epoch, or finally the selected ones, whose outputs are kept."""
        outputs, targets = self.evaluator.outputs(self.model, part, self.epoch)
        epoch = self.outcome.best_epoch if final else self.epoch + 1
        scores = self.evaluator.scores(part, outputs, targets, epoch)
        if final:
            self.kept.add(part, outputs, targets)
        return scores

    def _keep_validation(self) -> None:
        """Evaluates the tested weights on validation once more, to keep their outputs. It decides no number.

        Raises:
            StateError: the loss is not that of the selected epoch, so the test metrics are not of that epoch.
        """
        place = self.outcome.best_epoch - 1
        with self.meter.timing("test"):
            outputs, targets = self.evaluator.outputs(self.model, "val", place)
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
        self.kept.add("val", outputs, targets)

    def _saves_memory(self) -> bool:
        model = getattr(self, "model", None)  # building it may have failed
        if self.recomputed or self.recipe.compile or model is None or not model.training or not recompute(model):
            return False
        self.recomputed, self.outcome, self.best = True, Outcome(), {}
        del self.model, self.optimizer
        return True

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


@torch.no_grad()
def _copy(tensors: dict[str, Tensor], into: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies tensors, into the memory of `into` if it has the same names."""
    if not into or into.keys() != tensors.keys():  # the optimiser may have no state
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}
    torch._foreach_copy_(list(into.values()), [tensors[name].detach() for name in into])
    return into
