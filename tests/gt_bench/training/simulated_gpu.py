"""A GPU that computes nothing: devices, copies and waits of a training run, tested without a GPU.

Tensors on it are on torch's meta device: they have a shape and a type, but no values. To the program they are on
`cuda:0`. An operation on tensors of two devices raises an error, as on a GPU, in the forward and in the backward pass.
Tensors on the CPU have values. What the program reads from the GPU is made up.
"""

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

GPU = torch.device("cuda", 0)
META = torch.device("meta")
ROOT = Path(__file__).parents[3]
# operations whose result has a size that depends on values
SIZED_BY_VALUES = {"nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount"}
# operations that accept indices on the CPU, and that copy between devices
MIXED = {"index", "index_put_", "_index_put_impl_", "copy_", "_to_copy"}
FREE = 2**34  # bytes


class MixedDevices(Exception):
    """An operation on tensors of both devices."""


class _Names(TorchFunctionMode):
    """Translates between the names of the devices."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == Tensor.device.__get__:
            device = func(*args)
            return GPU if device == META else device
        if func == Tensor.is_cuda.__get__:
            return Tensor.device.__get__(*args) == META
        kwargs = {**(kwargs or {})}
        device = kwargs.get("device")
        if device is not None:
            kwargs["device"] = device = _translated(torch.device(device))
        if func in (torch.tensor, torch.as_tensor) and device == META and not isinstance(args[0], Tensor):
            return func(*args, **kwargs | {"device": None}).to(META)  # a copy, which is seen
        if func == Tensor.to:
            args = tuple(torch.device(a) if isinstance(a, str) else a for a in args)
        return func(*tree_map(_translated, args), **kwargs)


def _translated(value: Any) -> Any:
    return META if isinstance(value, torch.device) and value.type == "cuda" else value


def _pinned(tensor: Tensor) -> Tensor:
    if tensor.is_meta:
        raise RuntimeError("only dense CPU tensors can be pinned")
    return tensor


class _Operations(TorchDispatchMode):
    """Checks operations, and notes those for which the program waits."""

    def __init__(self, waits: list[tuple[str, str]]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        there = [t.is_meta for t in tensors]
        name = func.overloadpacket.__name__
        if not any(there):
            if name == "_to_copy" and kwargs.get("device") == META and not kwargs.get("non_blocking"):
                self._wait("copy to the GPU")
            return func(*args, **kwargs)
        if any(t.dim() for t, on_gpu in zip(tensors, there, strict=True) if not on_gpu) and name not in MIXED:
            raise MixedDevices(f"{name} of {[(list(t.shape), str(t.device)) for t in tensors]}, at {_caller()}")
        if name in SIZED_BY_VALUES:
            raise AssertionError(f"the size of the result of {name} depends on values on the GPU, at {_caller()}")
        if name == "index" and any(t is not None and t.dtype == torch.bool for t in args[1]):
            raise AssertionError(f"the number of selected rows depends on values on the GPU, at {_caller()}")
        if name in ("allclose", "equal"):
            self._wait(name)
            return True
        if name == "_local_scalar_dense":
            self._wait(name)
            return torch.ones((), dtype=args[0].dtype).item()
        if name == "_to_copy" and kwargs.get("device", META) != META:
            self._wait("copy to the CPU")
            return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        if name == "copy_" and len(set(there)) == 2:
            self._wait("copy_ between devices")
            return args[0] if there[0] else args[0].fill_(1)
        return func(*args, **kwargs)

    def _wait(self, what: str) -> None:
        self.waits.append((what, _caller()))


def _caller() -> str:
    """Returns file and line of the innermost frame of the project."""
    for frame in reversed(traceback.extract_stack()):
        if frame.filename.startswith((f"{ROOT}/gt_bench", f"{ROOT}/gt_models")):
            return f"{Path(frame.filename).relative_to(ROOT)}:{frame.lineno}"
    return "torch"


class Stream:
    """A stream of the GPU, on which nothing happens."""

    def __init__(self, device: Any = None) -> None:
        pass

    def wait_stream(self, other: "Stream") -> None:
        """Does nothing."""


@contextlib.contextmanager
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    """Makes `GPU` available until the end of the block.

    Yields:
        (what, file and line) of each place at which the program waited for the GPU.
    """
    waits: list[tuple[str, str]] = []
    for name, value in {
        "mem_get_info": lambda device=None: (FREE, 2 * FREE),
        "Stream": Stream,
        "stream": lambda stream: contextlib.nullcontext(stream),
        "current_stream": Stream,
        "get_device_properties": lambda device=None: SimpleNamespace(total_memory=2 * FREE),
        "get_per_process_memory_fraction": lambda device=None: 1.0,
        "memory_reserved": lambda device=None: 0,
        "get_rng_state": lambda device=None: torch.zeros(0),
        "set_rng_state": lambda state, device=None: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    run_backward = torch.autograd._engine_run_backward

    def backward(*arguments: Any, **settings: Any) -> Any:
        with _Names():  # torch suspends the mode during a call of `backward`
            return run_backward(*arguments, **settings)

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", backward)
    monkeypatch.setattr(Tensor, "pin_memory", _pinned)  # also in other threads
    monkeypatch.setattr(Tensor, "record_stream", lambda tensor, stream: None)
    with _Operations(waits), _Names():
        yield waits
