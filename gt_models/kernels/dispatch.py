"""Dispatch of operations: the fastest form that accepts the call runs, else the reference.

An operation is a function, which a model or another kernel calls, or a method of a module, to which `attach` gives
faster forms.
"""

# mypy: disable-error-code="misc"

import contextlib
import importlib
import pkgutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import _StopRecomputationError

from gt_models.layers.accelerated import ATTACHED, differs, plain
from gt_models.layers.static_shapes import stands_for_numbers

REFERENCE = "reference"
# between a form and the reference on a small call. In half precision each rounds its intermediate results differently:
# for fused attention by up to three units of rounding (`eps`)
TOLERANCES = {
    torch.float64: 1e-9, torch.float32: 2e-4,
    torch.bfloat16: 8 * torch.finfo(torch.bfloat16).eps, torch.float16: 8 * torch.finfo(torch.float16).eps,
}  # fmt: skip


class _State:
    """State of the process, shared by threads: backward passes on a GPU run in other threads.

    Attributes:
        asked: form by operation, as requested by `use`; "" means every operation.
        taken: for each active `forms_taken`, which calls it counts, and their numbers by operation and form.
        reasons: why forms were not used, while `explain` collects them.
    """

    asked: ClassVar[dict[str, str]] = {}
    taken: ClassVar[tuple[tuple[bool | None, dict[str, Counter[str]]], ...]] = ()
    reasons: ClassVar[dict[str, dict[str, set[str]]] | None] = None


@dataclass(frozen=True)
class Form:
    """A fast form of an operation.

    Attributes:
        name: "numba", "triton", ...
        load: imports and returns the function, which has the arguments of the reference. Called at first use; may
            raise ImportError.
        why_not: called with the operation's arguments; why this form cannot run with them, None if it
            can. For a form of a module's method: `reads` checks the child modules.
        devices, dtypes: of the tensors that it accepts; all floating tensors of a call have one dtype.
    """

    name: str
    load: Callable[[], Callable[..., Any]]
    why_not: Callable[..., str | None] = lambda *_, **__: None
    devices: tuple[str, ...] = ("cpu",)
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64)

    def reason(
        self, args: Sequence[Any], kwargs: dict[str, Any], tensors: Sequence[Tensor] | None = None
    ) -> str | None:
        """Why not this form, in words; None where it can run.

        Args:
            args: of the call.
            kwargs: of the call.
            tensors: of the call, if the caller has collected them.
        """
        tensors = _tensors(args, kwargs) if tensors is None else tensors
        for device in {t.device.type for t in tensors}.difference(self.devices):
            return f"runs on {' and '.join(self.devices)}, not on {device}"
        kinds = {t.dtype for t in tensors if t.is_floating_point()}
        if len(kinds) > 1:
            return f"wants one dtype, not {' and '.join(sorted(map(str, kinds)))}"
        for kind in kinds.difference(self.dtypes):
            return f"takes {' and '.join(map(str, self.dtypes))}, not {kind}"
        return self.why_not(*args, **kwargs)


class Operation:
    """An operation: calling it runs the first of `forms` that accepts the arguments, else `reference`.

    Args:
        name: of the operation, as records and `explain` show it.
        reference: the definition in plain torch, on every device and dtype, differentiable, compilable.
        forms: fast forms, fastest first.
        example: called with the arguments of a call; returns (args, kwargs) of a small call of the same widths, dtype
            and device. Before its first use on a device, outputs and gradients of a form are compared with the
            reference on this call. A form that fails or differs is disabled with a warning, and the reference runs.

    A form that `use` requests and that cannot run raises ValueError with the reason.
    """

    def __init__(
        self,
        name: str,
        reference: Callable[..., Any],
        forms: Sequence[Form] = (),
        example: Callable[..., tuple[Sequence[Any], dict[str, Any]]] | None = None,
    ):
        self.name, self.reference, self.forms, self.example = name, reference, tuple(forms), example
        self.__doc__ = reference.__doc__
        self._loaded: dict[str, Callable[..., Any]] = {}
        self._failed: dict[
            tuple[str, str, torch.dtype | None], str | None
        ] = {}  # (form, device, dtype) -> why it is disabled
        OPERATIONS[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the first form that accepts the call, else the reference."""
        # a compiler can differentiate, export and fuse plain operations, and cannot look into a kernel
        if torch.compiler.is_compiling():
            return self.reference(*args, **kwargs)
        form = self.choose(args, kwargs)
        failure: Exception | None = None
        if form is not None:
            try:
                return self._counted(form.name, self._loaded[form.name](*args, **kwargs))
            # the reference needs no less memory; the other is how activation checkpointing ends its second forward
            except (torch.OutOfMemoryError, _StopRecomputationError):
                raise
            except Exception as error:
                if self.name in _State.asked:
                    raise
                failure = error
        # a call that is wrong in itself fails here too, with the error of the definition
        result = self.reference(*args, **kwargs)
        if form is not None and failure is not None:
            self._put_aside(form, _tensors(args, kwargs), f"it fails ({_summary(failure)})")
            self._count(f"{form.name} failed")
        return self._counted(REFERENCE, result)

    def _counted(self, form: str, result: Any) -> Any:
        self._count(form)
        return result

    def _count(self, form: str) -> None:
        for wanted, taken in _State.taken:
            if wanted is None or wanted == torch.is_grad_enabled():
                taken.setdefault(self.name, Counter())[form] += 1

    def choose(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Form | None:
        """The form that runs this call; None is the reference."""
        tensors = _tensors(args, kwargs)
        if traced(*tensors):
            return None
        by_name = _State.asked.get(self.name)
        asked = by_name or _State.asked.get("")
        if asked == REFERENCE:
            return None
        if by_name and by_name not in {form.name for form in self.forms}:
            raise ValueError(
                f"{self.name} has no form {asked!r}; it has: {', '.join([REFERENCE, *(f.name for f in self.forms)])}"
            )
        for form in self.forms:
            if asked and form.name != asked:
                continue
            reason = self.why_not(form, args, kwargs, tensors)
            if reason is None:
                return form
            if by_name:
                raise ValueError(f"{self.name}: the form {asked!r} cannot run here: {reason}")
            if _State.reasons is not None:
                _State.reasons.setdefault(self.name, {}).setdefault(form.name, set()).add(reason)
        return None

    def why_not(self, form: Form, args: Sequence[Any], kwargs: dict[str, Any], tensors: Sequence[Tensor]) -> str | None:
        """Why `form` cannot take these arguments, in words; None where it can, which is then loaded and checked."""
        reason = form.reason(args, kwargs, tensors)
        if reason is not None:
            return reason
        if form.name not in self._loaded:
            try:
                self._loaded[form.name] = form.load()
            except ImportError as error:
                return f"{error.name or error} is not installed"
        key = self._key(form, tensors)
        if key not in self._failed:
            self._failed[key] = None
            reason = None if self.example is None else self._check(form, args, kwargs)
            if reason is not None:
                self._put_aside(form, tensors, reason)
        return self._failed[key]

    @staticmethod
    def _key(form: Form, tensors: Sequence[Tensor]) -> tuple[str, str, torch.dtype | None]:
        dtype = next((t.dtype for t in tensors if t.is_floating_point()), None)
        return form.name, str(tensors[0].device) if tensors else "cpu", dtype

    def _put_aside(self, form: Form, tensors: Sequence[Tensor], reason: str) -> None:
        """Do not use the form again on this device and dtype."""
        key = self._key(form, tensors)
        self._failed[key] = reason
        warnings.warn(f"{self.name}: {form.name} is not used on {key[1]}: {reason}", RuntimeWarning, stacklevel=5)

    def _check(self, form: Form, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
        """Outputs and gradients of `form` and reference on a small call.

        What is wrong with the form, None if nothing.
        """
        devices = [t.device for t in args if isinstance(t, Tensor) and t.is_cuda][:1]
        kinds = {"cpu", *(device.type for device in devices)}
        with (
            contextlib.ExitStack() as plain,
            torch.random.fork_rng(devices),
            torch.inference_mode(False),
            torch.enable_grad(),
            # activation checkpointing around the caller must not count what the check saves
            torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
        ):
            for kind in kinds:  # the result counts for later calls too, which may be outside the caller's autocast
                plain.enter_context(torch.autocast(kind, enabled=False))
            torch.manual_seed(0)
            small, named = self.example(*args, **kwargs)
            state = torch.random.get_rng_state()
            results = []
            for function in (self.reference, self._loaded[form.name]):
                torch.random.set_rng_state(state)
                try:
                    results.append(_outputs_and_gradients(function, small, named))
                except Exception as error:
                    if function is self.reference:
                        raise
                    return f"it fails ({_summary(error)})"
        for expected, found in zip(*results, strict=True):
            tolerance = TOLERANCES[expected.dtype]
            if not torch.allclose(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True):
                return f"it differs from the reference by {(found - expected).abs().max().item():.1e}"
        return None


OPERATIONS: dict[str, Operation] = {}


def attach(cls: type[nn.Module], method: str, name: str, forms: Sequence[Form]) -> Operation:
    """Let the first of `forms` that can take a call replace a method of exactly this class.

    Subclasses keep the plain method.

    Args:
        cls: the class of the module.
        method: name of a method that is marked as `@accelerated`. Its equations in plain torch are the definition.
        name: of the operation, as records and `explain` show it.
        forms: fast forms, fastest first; they and their `why_not` are called with the module and the arguments of the
            method.

    Returns:
        The operation: call it with the module and the arguments of the method.

    Raises:
        ValueError: the method is not marked as `@accelerated`.
    """
    ATTACHED[cls, method] = operation = Operation(name, plain(cls, method), forms)
    return operation


def reads(module: nn.Module, children: Mapping[str, type | tuple[type, ...]]) -> str | None:
    """Why a form that reads parameters of child modules without calling them cannot replace this module's method.

    None if it can.

    A form may read a child only if a call of it would do nothing else: the child has exactly an expected type (an
    adapter, a quantized layer and a parametrization have others), no hooks and no `forward` of its own.

    Args:
        module: the module whose method the form replaces.
        children: by dotted name the types that each may have; `NoneType` for a child that may be None.
    """
    for name, types in children.items():
        child: Any = module
        for part in name.split("."):
            child = getattr(child, part)
        if reason := differs(name, child, types):
            return reason
    return None


def traced(*tensors: Tensor) -> bool:
    """Whether operations are recorded or transformed, which a kernel cannot follow.

    That is so in torch.func, torch.jit.trace and a dispatch mode (fake tensors, counters of operations), and for
    tensors of a subclass.
    """
    return stands_for_numbers(*tensors) or torch._C._len_torch_dispatch_stack() > 0 or torch.jit.is_tracing()


@contextlib.contextmanager
def use(form: str | None = None, /, **by_operation: str) -> Iterator[None]:
    """Context manager: choose the form of operations.

        use("reference")                   every operation by its definition
        use(graph_attention="numba")       one operation in this form

    Args:
        form: form of every operation that has it and can run in it.
        by_operation: form by operation. If it cannot run, the operation raises ValueError.
    """
    with _set("asked", _State.asked | ({"": form} if form else {}) | by_operation):
        yield


@contextlib.contextmanager
def forms_taken(training: bool | None = None) -> Iterator[dict[str, Counter[str]]]:
    """Context manager: count the calls of each operation by form, {operation: {form: calls}}.

    Args:
        training: count only calls with gradients enabled (True) or disabled (False). None counts all.
    """
    taken: dict[str, Counter[str]] = {}
    with _set("taken", (*_State.taken, (training, taken))):
        yield taken


def all_operations() -> dict[str, Operation]:
    """Every operation of this package by name."""
    for module in pkgutil.walk_packages([str(Path(__file__).parent)], f"{__package__}."):
        # what needs its own package is loaded by the form that is it
        if not module.name.endswith(("_numba", "_triton", "compiled", "vectors")):
            importlib.import_module(module.name)
    return dict(OPERATIONS)


def explain(model: nn.Module, batch: Any) -> str:
    """Report which form each operation of `model` uses on `batch`, and why no faster one.

    The model is called once in its current mode (training or evaluation), without gradients.
    """
    reasons: dict[str, dict[str, set[str]]] = {}
    with _set("reasons", reasons), forms_taken() as taken, torch.random.fork_rng(), torch.no_grad():
        model(batch)
    lines = []
    for name, counts in taken.items():
        lines.append(f"{name}: {', '.join(f'{form} ({calls} calls)' for form, calls in counts.items())}")
        lines += [f"  not {form}: {'; '.join(sorted(why))}" for form, why in reasons.get(name, {}).items()]
    return "\n".join(lines) or "no operation of gt_models.kernels takes part"


@contextlib.contextmanager
def _set(name: str, value: Any) -> Iterator[None]:
    before = getattr(_State, name)
    setattr(_State, name, value)
    try:
        yield
    finally:
        setattr(_State, name, before)


def _tensors(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors among the arguments, and the parameters and buffers of modules among them."""
    found: list[Tensor] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, nn.Module):
            _add_tensors(value, found)
    return found


def _add_tensors(module: nn.Module, found: list[Tensor]) -> None:
    """Append the parameters and buffers of a module, which `parameters()` lists ten times more slowly."""
    found += [t for t in module._parameters.values() if t is not None]
    found += [t for t in module._buffers.values() if t is not None]
    for child in module._modules.values():
        if child is not None:
            _add_tensors(child, found)


def _summary(error: Exception) -> str:
    """Type and first line of an error."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def _outputs_and_gradients(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """All floating outputs, and the gradients of their weighted sum by all floating arguments that require one."""

    def fresh(value: Any) -> Any:
        return value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value

    args, kwargs = [fresh(a) for a in args], {k: fresh(v) for k, v in kwargs.items()}
    outputs = function(*args, **kwargs)
    outputs = [
        o
        for o in (outputs if isinstance(outputs, tuple) else (outputs,))
        if isinstance(o, Tensor) and o.is_floating_point()
    ]
    wanted = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor) and t.requires_grad]
    generator = torch.Generator().manual_seed(1)
    weighted = [(o * torch.randn(o.shape, generator=generator, dtype=o.dtype).to(o.device)).sum() for o in outputs]
    gradients = torch.autograd.grad(sum(weighted), wanted, allow_unused=True, materialize_grads=True) if wanted else ()
    return [o.detach() for o in outputs] + list(gradients)
