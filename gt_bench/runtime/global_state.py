"""State of the whole process that a user-supplied model must not change: other runs and later epochs depend on it."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType

import torch
from torch.nn.modules import module

from gt_bench.utils.code_digest import is_user_code
from gt_bench.utils.errors import UserError

DETERMINISTIC = "torch's deterministic mode"
HOOKS = tuple(name for name in vars(module) if name.startswith("_global_") and hasattr(getattr(module, name), "keys"))
REMEDIES = {
    "torch's default dtype": "pass dtype=... where a tensor is created",
    "torch's gradient mode": "write `with torch.no_grad():` around code that needs no gradient",
    "torch's global hooks": "register the hook on one module: self.layer.register_forward_hook(...)",
    "the working directory": "use absolute paths",
    "torch's number of threads": "set `threads:` in the recipe",
}


# modules whose functions and classes compute runs; those of gt_models do, too
COMPUTING = ("torch", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.optim", "torch_geometric.nn")


class ReplacedCode(UserError, RuntimeError):
    """A program has replaced a function of a library that computes runs."""


def global_state() -> dict[str, object]:
    """Return the state that must not change, by name."""
    return {
        "torch's default dtype": torch.get_default_dtype(),
        "torch's default device": torch.get_default_device(),
        "torch's gradient mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        DETERMINISTIC: torch.are_deterministic_algorithms_enabled(),
        "torch's precision of matrix products": torch.get_float32_matmul_precision(),
        "torch's number of threads": torch.get_num_threads(),
        "torch's global hooks": tuple(tuple(getattr(module, name)) for name in HOOKS),
        "functions of torch": tuple(id(getattr(owner, name)) for owner, name in _WATCHED),
        "the working directory": os.getcwd(),
        "the handler of SIGTERM": signal.getsignal(signal.SIGTERM),
    }


@contextmanager
def unchanged_process() -> Iterator[list[str]]:
    """Yield a list that names, after the block, the state that the block changed; restore that state if possible."""
    before, changed = global_state(), list[str]()
    hooks = {name: dict(getattr(module, name)) for name in HOOKS}
    functions = [getattr(owner, name) for owner, name in _WATCHED]
    try:
        yield changed
    finally:
        after = global_state()
        changed += [what for what, value in before.items() if value != after[what]]
        if changed:
            torch.set_default_dtype(before["torch's default dtype"])  # type: ignore[arg-type]
            torch.set_grad_enabled(before["torch's gradient mode"][0])  # type: ignore[index]
            torch.set_num_threads(before["torch's number of threads"])  # type: ignore[arg-type]
            os.chdir(before["the working directory"])  # type: ignore[arg-type]
            for name, content in hooks.items():
                getattr(module, name).clear()
                getattr(module, name).update(content)
            for (owner, name), function in zip(_WATCHED, functions, strict=True):
                setattr(owner, name, function)


@contextmanager
def standard_process() -> Iterator[None]:
    """Use torch's defaults inside the block, whatever a notebook or script has set: numbers of runs depend on them.

    Raises:
        ReplacedCode: the program has replaced a function or class of torch, torch_geometric or gt_models.
    """
    if (replaced := next(_replaced(), None)) is not None:
        raise ReplacedCode(
            f"{replaced}: this program has replaced it, and runs of every model would compute with it; start a new "
            "process without the replacement, or replace it in a class that is passed to evaluate"
        )
    dtype, device, precision = (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.get_float32_matmul_precision(),
    )
    hooks = {name: dict(getattr(module, name)) for name in HOOKS}
    torch.set_default_dtype(torch.float32)
    if device.type != "cpu":
        torch.set_default_device(None)
    torch.set_float32_matmul_precision("highest")
    for name in hooks:
        getattr(module, name).clear()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)
        if device.type != "cpu":
            torch.set_default_device(device)
        torch.set_float32_matmul_precision(precision)
        for name, content in hooks.items():
            getattr(module, name).update(content)


def _replaced() -> Iterator[str]:
    """Yield the names of functions and classes of libraries that are now the user's."""
    for key, found in list(sys.modules.items()):
        if key not in COMPUTING and not key.startswith("gt_models"):
            continue
        library = key.partition(".")[0]
        for name, value in list(vars(found).items()):
            places = {f"{key}.{name}": value}
            if isinstance(value, type) and value.__module__.partition(".")[0] == library:
                places = {f"{value.__module__}.{value.__qualname__}.{one}": vars(value)[one] for one in vars(value)}
            for place, one in places.items():
                if isinstance(one, FunctionType):
                    # the library may be one that the user edits, or generate code elsewhere
                    module = str(one.__globals__.get("__name__"))
                    foreign = is_user_code(one.__code__) and module.partition(".")[0] != library
                else:
                    foreign = isinstance(one, type) and one.__module__ == "__main__"
                if foreign:
                    yield place


# Functions that a model is most likely to replace in order to change how all others compute.
_WATCHED = tuple(
    (owner, name)
    for owner in (torch.nn.functional, torch, torch.Tensor)
    for name in (
        "relu", "dropout", "softmax", "linear", "layer_norm", "matmul", "sigmoid", "tanh", "cross_entropy", "gelu",
        "mm", "add", "exp",
    )
    if hasattr(owner, name)
)  # fmt: skip
