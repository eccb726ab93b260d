"""Checkpoints: the state of a run in one safetensors file with a JSON header, written atomically.

A killed run resumes from its checkpoint and produces bit-identical results.
"""

# mypy: disable-error-code="arg-type, union-attr"

import errno
import hashlib
import json
import math
import re
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from gt_bench.training.failures import StateError
from gt_bench.utils.io import atomic_file

LIBRARIES = ("torch", "torch_geometric", "gt_models", "gt_bench")
OF_MODULES = frozenset(vars(nn.Module()))  # attributes of each module


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Returns the state of an optimiser as named tensors: "<parameter number>.<quantity>"."""
    return {
        f"{i}.{key}": torch.as_tensor(value)
        for i, state in optimizer.state_dict()["state"].items()
        for key, value in state.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Loads a state that `flatten_optimizer` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value.clone()
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def with_plain_state(model: nn.Module) -> nn.Module:
    """Returns a model, whose parameters and buffers are converted to a real type and saved later.

    Raises:
        StateError: its state has values other than tensors, or complex tensors, of which a conversion discards a part.
    """
    for name, value in {**dict(model.named_buffers()), **model.state_dict()}.items():
        if not isinstance(value, Tensor):
            raise StateError(
                f"model {type(model).__name__}: {name} of its state_dict is a {type(value).__name__}, which cannot be "
                "saved; use self.register_buffer(name, tensor) instead of get_extra_state"
            )
        if value.is_complex():
            raise StateError(
                f"model {type(model).__name__}: {name} is complex, which is not supported; use a real tensor of shape "
                "[..., 2], and torch.view_as_complex(...) in forward"
            )
    return model


def state_shapes(model: nn.Module) -> dict[str, list[int]]:
    """Returns {name: shape} of the state_dict of a model."""
    return {name: list(tensor.shape) for name, tensor in model.state_dict().items()}


def check_shapes(model: nn.Module, before: dict[str, list[int]]) -> None:
    """Check that the state of a model can be loaded into a new one, whose `state_shapes` were `before`.

    Raises:
        StateError: it cannot.
    """
    now = state_shapes(model)
    if now != before:
        name = next(name for name in {**now, **before} if now.get(name) != before.get(name))
        shown = [str(shapes[name]) if name in shapes else "missing" for shapes in (before, now)]
        raise StateError(
            f"model {type(model).__name__}: {name} of its state_dict is {shown[0]} after the constructor and "
            f"{shown[1]} after an epoch: the optimiser does not train it, and a new model cannot load it; create "
            "all parameters and buffers in the constructor, with their final shape"
        )


class OutsideState:
    """Attributes of a user-supplied model that its state_dict does not have: counters, tensors, random generators.

    Modules of libraries have no such state.

    Args:
        model: the model, newly initialised.
    """

    def __init__(self, model: nn.Module):
        self._modules = {
            name: module
            for name, module in model.named_modules()
            if type(module).__module__.partition(".")[0] not in LIBRARIES
        }
        state = self._found()
        self._texts = {place: _json_text(value) for place, value in state.items()}
        self._tensors = {place: (value, value._version) for place, value in state.items() if isinstance(value, Tensor)}

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
        """Returns what has changed, as three dicts with keys such as "module.attribute".

        Returns:
            values that JSON represents; tensors that took the place of others; and what changed in place: tensors, and
            states of torch's generators. A tensor that changed in place may be a view of a parameter.
        """
        plain: dict[str, Any] = {}
        replaced: dict[str, Tensor] = {}
        changed: dict[str, Tensor] = {}
        for place, value in self._found().items():
            if isinstance(value, torch.Generator):
                changed[place] = value.get_state()
            elif isinstance(value, np.random.Generator):
                state = value.bit_generator.state  # that of some has arrays
                plain[place] = json.loads(json.dumps(state, default=lambda array: array.tolist()))
            elif isinstance(value, Tensor):
                old, version = self._tensors.get(place, (None, 0))
                if value.layout is not torch.strided or value.is_complex():  # safetensors has no such tensors
                    continue
                if value is not old:
                    replaced[place] = value
                elif value._version != version:
                    changed[place] = value
            elif (text := _json_text(value)) is not None and text != self._texts.get(place):
                plain[place] = value
        return plain, replaced, changed

    @torch.no_grad()
    def restore(self, plain: dict[str, Any], replaced: dict[str, Tensor], changed: dict[str, Tensor]) -> None:
        """Restores what `read` returned. Tensors are on the device of the model."""
        state = self._found()
        for place, saved in (plain | replaced | changed).items():
            value, (module, _, name) = state.get(place), place.rpartition(".")
            if isinstance(value, torch.Generator):
                value.set_state(saved.cpu())
            elif isinstance(value, np.random.Generator):
                value.bit_generator.state = saved
            elif isinstance(value, Tensor) and place in changed:
                value.copy_(saved)
            else:
                setattr(self._modules[module], name, saved)

    def _found(self) -> dict[str, object]:
        return {
            f"{place}.{name}": value
            for place, module in self._modules.items()
            for name, value in {
                **{name: value for name, value in vars(module).items() if name not in OF_MODULES},
                **{name: module._buffers[name] for name in module._non_persistent_buffers_set},
            }.items()
        }


def _json_text(value: object) -> str | None:
    """Return a value as JSON; None if it would not be the same after it was read again."""
    return json.dumps(value) if _is_json(value) else None


def _is_json(value: object) -> bool:
    if type(value) is list:
        return all(map(_is_json, value))
    if type(value) is dict:
        return all(type(key) is str and _is_json(one) for key, one in value.items())
    return type(value) in (bool, int, str, type(None)) or (type(value) is float and math.isfinite(value))


class Checkpoint:
    """A checkpoint file: groups of named tensors and a JSON header.

    Args:
        path: the file. None for a run without checkpoints.
        seconds: minimum time between writes; see `due`.

    Attributes:
        cost: duration of the last write in seconds.
    """

    def __init__(self, path: Path | None, seconds: float = 60.0):
        self.path = path
        self.seconds = seconds
        self.cost = 0.0
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether `seconds` have passed since the last write."""
        return self.path is not None and time.monotonic() - self._last >= self.seconds

    def write(self, header: dict[str, Any], groups: dict[str, dict[str, Tensor]]) -> None:
        """Writes the checkpoint.

        Args:
            header: JSON content.
            groups: {name of the group: {name: tensor}}.

        Raises:
            WriteError: the file cannot be written, for example because the disk is full.
        """
        began = time.monotonic()
        tensors = {
            f"{group}/{name}": t.detach().cpu().contiguous().clone()
            for group, named in groups.items()
            for name, t in named.items()
        }
        text = json.dumps(header | {"groups": sorted(groups)})
        with atomic_file(self.path) as temporary:
            try:
                save_file(tensors, temporary, {"header": text, "sha256": _digest(text, tensors)})
            except SafetensorError as error:  # its text is all that it keeps of an error of the system
                number = re.search(r"os error (\d+)", str(error))
                raise OSError(int(number[1]) if number else errno.EIO, str(error)) from None
        self._last = time.monotonic()
        self.cost = self._last - began

    def read(self) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]] | None:
        """Reads the checkpoint. A damaged one is renamed, so that the run starts over.

        Returns:
            (header, groups) as `write` takes them, or None if there is no usable checkpoint.
        """
        if self.path is None or not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (a safetensors file is no mapping)
            if metadata.get("sha256") != _digest(metadata["header"], tensors):
                raise ValueError("its sha256 does not match its content")
            header = json.loads(metadata["header"])
            groups: dict[str, dict[str, Tensor]] = {group: {} for group in header.pop("groups")}
            for key, tensor in tensors.items():
                group, name = key.split("/", 1)
                groups[group][name] = tensor
            return header, groups
        except (SafetensorError, OSError, KeyError, ValueError, TypeError, AttributeError) as error:
            self.set_aside(error)
            return None

    def set_aside(self, error: BaseException) -> None:
        """Renames an unusable checkpoint to checkpoint.damaged and prints why."""
        aside = self.path.with_suffix(".damaged")
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside)
        if self.path.is_dir():
            aside.unlink(missing_ok=True)
        self.path.replace(aside)
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        print(f"{self.path}: unusable checkpoint ({reason}); renamed to {aside.name}, the run starts over", flush=True)


def _digest(header: str, tensors: dict[str, Tensor]) -> str:
    """Returns the sha256 of the header and of every tensor's name, type, shape and bytes."""
    digest = hashlib.sha256(header.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
