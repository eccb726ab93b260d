"""`gt-bench try MODEL DATASET --debug PRESET`: a few steps that are not stored, to find why a model does not learn.

one-batch   shapes and types of one batch, the output, the loss, and parameters without a gradient
overfit     trains on one batch without dropout: a model that cannot memorise it has a bug
nan         steps under torch's anomaly detection; names the first module whose output is not finite
profile     steps under torch's profiler; the slowest operations, and a trace for https://ui.perfetto.dev
"""

import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from gt_bench.config.schema import RecipeError
from gt_bench.experiment.compute import model_errors
from gt_bench.experiment.run import Experiment
from gt_bench.runtime.environment import Clock
from gt_bench.runtime.threads import computing_with
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.loader import seed_generators
from gt_bench.training.trainer import Run
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import make_folder
from gt_models.batch import GraphBatch

OVERFIT_STEPS, NAN_STEPS, PROFILED_STEPS, WARM_UP = 300, 100, 5, 2
MEMORISED = 0.1  # share of the first loss below which a batch counts as memorised
ROWS = 12  # operations that are listed

Say = Callable[[str], None]


@dataclass(frozen=True)
class NotFinite:
    """The first number that is not finite.

    Attributes:
        module: name of the module in the model, "" for the model itself; or of a parameter or function.
        kind: class of the module, "parameter", "loss", or "function" of the backward pass.
        what: output, gradient or loss.
        step: number of the step, from 1.
        input_finite: whether all inputs of the module were finite; None if not known.
    """

    module: str
    kind: str
    what: str
    step: int
    input_finite: bool | None


class Debugger:
    """Steps of a run outside of the store.

    Args:
        experiment: the recipe on its data.
        seed: seed of the run.

    Raises:
        RecipeError: the task has no training loop of batches, or the recipe does not fit the data.
    """

    def __init__(self, experiment: Experiment, seed: int):
        if experiment.task.runner is not None:
            task, remedy = experiment.header.task, "debug the model on another dataset"
            problem = f"the task {task} of {experiment.dataset} has a protocol without a training loop over batches"
            raise RecipeError(problem, place="--debug", value=task, remedy=remedy)
        self.experiment = experiment
        try:
            loader = experiment.loader(seed)
        except ValueError as error:
            raise RecipeError(str(error), file=experiment.path) from error
        self.run = Run(
            experiment.recipe, experiment.task, loader, experiment.initial_model(seed),
            seed=seed, meter=Clock(), checkpoint=Checkpoint(None),
        )  # fmt: skip
        self.run._begin()
        self.run._enter_phase()
        seed_generators(self.run.device, "epoch", seed, 0)
        self.model = self.run.model.train()

    def batches(self) -> Iterator[tuple[GraphBatch, Tensor | None]]:
        """Yields training batches, epoch after epoch."""
        epoch = 0
        while True:
            yield from self.run.loader.training(epoch)
            epoch += 1

    def step(self, batch: GraphBatch, rows: Tensor | None) -> float:
        """Trains one step with the first learning rate of the recipe. Returns the loss before it."""
        loss = self.loss(batch, rows)
        self.run.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip = self.run.recipe.optimizer.clip_norm
        if clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        self.run.optimizer.step()
        return float(loss.detach())

    def loss(self, batch: GraphBatch, rows: Tensor | None) -> Tensor:
        """Computes the loss of a batch.

        Raises:
            RecipeError: the model does not fit the batch.
        """
        output, target = self.output(batch, rows)
        return self.run.task.loss(output, target)

    def output(self, batch: GraphBatch, rows: Tensor | None) -> tuple[Tensor, Any]:
        """Computes outputs and targets of a batch; raises as `loss`."""
        with model_errors(self.experiment):
            return self.run.evaluator.predict(self.model, batch, rows)


def one_batch(debugger: Debugger, say: Say) -> bool:
    """Prints shapes of a training batch and of the model's output. Returns whether every parameter has a gradient."""
    batch, rows = next(debugger.batches())
    say(
        f"batch: {batch.num_graphs} graphs, {batch.num_nodes} nodes, {batch.edge_index.size(1)} edges "
        f"on {batch.x.device}"
    )
    named = {"x": batch.x, "edge_index": batch.edge_index, "ptr": batch.ptr, "edge_attr": batch.edge_attr, "y": batch.y}
    named |= {f"encodings[{name!r}]": value for name, value in batch.encodings.items()}
    named |= {f"extras[{name!r}]": value for name, value in batch.extras.items()}
    for name, value in named.items():
        if value is not None:
            say(f"  {name:<24} {_describe(value)}")
    if rows is not None:
        say(f"  rows that count          {len(rows)} of {batch.num_nodes}")
    output, target = debugger.output(batch, rows)
    loss = debugger.run.task.loss(output, target)
    loss.backward()
    say(f"output {_describe(output.detach())}")
    say(f"loss {float(loss.detach()):.4g} ({debugger.run.task.loss_name})")  # type: ignore[attr-defined]
    parameters = dict(debugger.model.named_parameters())
    norm = float(nn.utils.get_total_norm(p.grad for p in parameters.values() if p.grad is not None))
    say(f"{sum(p.numel() for p in parameters.values()):,} parameters, norm of the gradient {norm:.4g}")
    without = [name for name, p in parameters.items() if p.requires_grad and p.grad is None]
    zero = [name for name, p in parameters.items() if p.grad is not None and not bool(p.grad.any())]
    for names, what in ((without, "no gradient (not used in the output)"), (zero, "a gradient of 0 on this batch")):
        if names:
            say(f"{what}: {', '.join(names[:6])}{f' and {len(names) - 6} more' if len(names) > 6 else ''}")
    return not without


def _describe(value: Tensor) -> str:
    if value.layout != torch.strided:
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}, sparse"
    text = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if not value.numel() or value.dtype == torch.bool:
        return text
    low, high = float(value.min()), float(value.max())
    known = "" if math.isfinite(low) and math.isfinite(high) else ", not finite"
    return f"{text}, {low:.4g} to {high:.4g}{known}"


def overfit(debugger: Debugger, say: Say, steps: int = OVERFIT_STEPS) -> bool:
    """Trains on one batch without dropout, and prints the loss. Returns whether the batch was memorised."""
    for module in debugger.model.modules():
        library = type(module).__module__.startswith("gt_models.")
        if isinstance(module, _DropoutNd):
            module.p = 0.0
        elif library and isinstance(getattr(module, "rate", None), float):
            module.rate = 0.0  # type: ignore[assignment]
        elif isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0  # type: ignore[assignment]
    batch, rows = next(debugger.batches())
    say(f"one batch of {batch.num_graphs} graphs and {batch.num_nodes} nodes, {steps} steps, dropout 0")
    first = last = best = math.nan
    for number in range(steps):
        last = debugger.step(batch, rows)
        first, best = (last, last) if number == 0 else (first, min(best, last))
        if number in (0, 9, 29, 99) or number == steps - 1:
            say(f"  step {number + 1:>4}: loss {last:.4g}")
        if not math.isfinite(last):
            say(f"the loss is {last} in step {number + 1}; find the module with --debug nan, or lower optimizer.lr")
            return False
    if best <= MEMORISED * first:
        say(f"memorised: the loss fell from {first:.4g} to {best:.4g}")
        return True
    say(
        f"not memorised: the loss fell from {first:.4g} to {best:.4g}, "
        f"which is more than {MEMORISED:.0%} of the start. "
        "Usual reasons: the learning rate (--set optimizer.lr=...), a part without gradient (--debug one-batch), "
        "equal examples with different targets"
    )
    return False


def first_not_finite(debugger: Debugger, steps: int = NAN_STEPS) -> NotFinite | None:
    """Trains steps under torch's anomaly detection until a number is not finite. Returns where, or None."""
    for number, (batch, rows) in zip(range(1, steps + 1), debugger.batches(), strict=False):
        with warnings.catch_warnings(record=True) as caught, _watched(debugger.model) as found:
            warnings.simplefilter("always")
            with torch.autograd.detect_anomaly():
                try:
                    loss = debugger.loss(batch, rows)
                except UserError:  # the adapter of user-supplied models reports outputs that are not finite
                    if not found:
                        raise
                if found:
                    return NotFinite(*found[0][:3], number, found[0][3])
                if not math.isfinite(float(loss.detach())):
                    return NotFinite("", "loss", "loss", number, None)
                debugger.run.optimizer.zero_grad(set_to_none=True)
                try:
                    loss.backward()
                except RuntimeError as error:
                    if (function := re.search(r"Function '(\w+)' returned nan", str(error))) is None:
                        raise
                    return NotFinite(function[1] + _forward_line(caught), "function", "gradient", number, None)
        bad = [
            name
            for name, p in debugger.model.named_parameters()
            if p.grad is not None and not bool(p.grad.isfinite().all())
        ]
        if bad:  # infinite: anomaly detection looks for NaN alone
            return NotFinite(bad[-1], "parameter", "gradient", number, None)
        debugger.run.optimizer.step()
    return None


def _forward_line(caught: Sequence[warnings.WarningMessage]) -> str:
    """Returns the line of the forward pass that anomaly detection names, outside of torch: ", file, line n"."""
    text = "\n".join(str(warning.message) for warning in caught)
    lines = [place for place in re.findall(r'File "([^"]+)", line (\d+)', text) if "site-packages" not in place[0]]
    return f", {lines[-1][0]}, line {lines[-1][1]}" if lines else ""


@contextmanager
def _watched(model: nn.Module) -> Iterator[list[tuple[str, str, str, bool]]]:
    """Collects modules whose output is not finite, in the order in which they end: name, class, what, inputs finite."""
    found: list[tuple[str, str, str, bool]] = []
    handles = []
    for name, module in model.named_modules():

        def hook(module: nn.Module, inputs: Any, output: Any, name: str = name) -> None:
            if not found and not _finite(output):
                found.append((name, type(module).__name__, "output", _finite(inputs)))

        handles.append(module.register_forward_hook(hook))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _finite(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.is_floating_point() or value.layout != torch.strided or bool(value.isfinite().all())
    if isinstance(value, GraphBatch):
        return _finite([value.x, value.edge_attr, *value.encodings.values()])
    if isinstance(value, dict):
        return _finite(list(value.values()))
    return all(map(_finite, value)) if isinstance(value, list | tuple) else True


def nan(debugger: Debugger, say: Say) -> bool:
    """Prints the first module or parameter whose output or gradient is not finite. Returns whether all are finite."""
    found = first_not_finite(debugger)
    if found is None:
        say(f"all outputs, losses and gradients of {NAN_STEPS} training steps are finite")
        return True
    if found.kind == "loss":
        say(f"step {found.step}: the loss is not finite, although all outputs are: look at the targets and the loss")
    elif found.kind == "function":
        say(f"step {found.step}: a gradient is NaN, although all outputs are finite: backward of {found.module}")
    elif found.kind == "parameter":
        say(
            f"step {found.step}: the gradient of {found.module} is not finite, although all outputs are: "
            "for example the root or the norm of 0, or a division by a number near 0"
        )
    else:
        name = f"{found.module} ({found.kind})" if found.module else f"the model itself ({found.kind})"
        origin = (
            "its inputs are finite: the error is in this module" if found.input_finite else "its inputs are not finite"
        )
        say(f"step {found.step}: the first output that is not finite is that of {name}; {origin}")
    return False


def profile(debugger: Debugger, say: Say, folder: Path) -> bool:
    """Prints the slowest operations of a few training steps, and writes a trace. Returns True."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    gpu = debugger.run.device.type == "cuda"
    batches = debugger.batches()
    for _ in range(WARM_UP):
        debugger.step(*next(batches))
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with profiled(activities=activities, profile_memory=True, record_shapes=True) as found:
        for _ in range(PROFILED_STEPS):
            debugger.step(*next(batches))
    rows = sorted(found.key_averages(), key=lambda row: -_own_time(row, gpu))
    total = sum(_own_time(row, gpu) for row in rows) or 1.0
    say(f"{PROFILED_STEPS} training steps after {WARM_UP} for warm-up, {total / 1000 / PROFILED_STEPS:.2f} ms per step")
    say(f"  {'operation':<44}{'share':>7}{'ms/step':>10}{'calls/step':>12}")
    for row in rows[:ROWS]:
        own = _own_time(row, gpu)
        say(
            f"  {row.key[:43]:<44}{own / total:>7.1%}{own / 1000 / PROFILED_STEPS:>10.3f}"
            f"{row.count / PROFILED_STEPS:>12.1f}"
        )
    path = (
        make_folder(folder)
        / f"{debugger.experiment.recipe.model.name.rpartition(':')[2]}-{debugger.experiment.dataset}.json"
    )
    found.export_chrome_trace(str(path))
    say(f"trace: {path} (open it at https://ui.perfetto.dev)")
    return True


def _own_time(row: Any, gpu: bool) -> float:
    """Microseconds of an operation without those that it calls."""
    return float(row.self_device_time_total if gpu else row.self_cpu_time_total)


def debug(experiment: Experiment, preset: str, seed: int, say: Say, folder: Path = Path("debug")) -> bool:
    """Runs a preset.

    Args:
        experiment: the recipe on its data.
        preset: overfit, profile, nan or one-batch.
        seed: seed of the run.
        say: prints a line.
        folder: folder of traces.

    Returns:
        Whether nothing suspicious was found.

    Raises:
        RecipeError: as `Debugger`.
    """
    with computing_with(experiment.recipe.threads):
        debugger = Debugger(experiment, seed)
        if preset == "profile":
            return profile(debugger, say, folder)
        return {"overfit": overfit, "nan": nan, "one-batch": one_batch}[preset](debugger, say)
