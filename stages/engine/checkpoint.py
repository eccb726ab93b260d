"""Where a run stands, in one file of safetensors with a JSON header, replaced atomically: a killed run continues from it, bit for bit."""

import json
import time
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from stages.files import write_bytes


def flatten_optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """State of an optimiser as named tensors: "<parameter number>.<quantity>"."""
    return {f"{i}.{key}": torch.as_tensor(value) for i, state in optimizer.state_dict()["state"].items() for key, value in state.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `flatten_optimizer`."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = value.clone()
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


class Checkpoint:
    """Groups of named tensors and a JSON header at `path`, written at most every `seconds`. `path` None: nothing is kept."""

    def __init__(self, path: Path | None, seconds: float = 60.0):
        self.path = path
        self.seconds = seconds
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        return self.path is not None and time.monotonic() - self._last >= self.seconds

    def write(self, header: dict[str, Any], groups: dict[str, dict[str, Tensor]]) -> None:
        """Raises WriteError on a full disk."""
        tensors = {f"{group}/{name}": t.detach().cpu().contiguous().clone() for group, named in groups.items() for name, t in named.items()}
        write_bytes(self.path, save(tensors, {"header": json.dumps(header)}))
        self._last = time.monotonic()

    def read(self) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]] | None:
        """(header, groups), or None where there is no usable checkpoint; a damaged file is set aside, since the run can start over."""
        if self.path is None or not self.path.exists():
            return None
        try:
            groups: dict[str, dict[str, Tensor]] = {}
            with safe_open(self.path, framework="pt") as file:
                header = json.loads(file.metadata()["header"])
                for key in file.keys():  # noqa: SIM118 (a safetensors file is no mapping)
                    group, name = key.split("/", 1)
                    groups.setdefault(group, {})[name] = file.get_tensor(key)
            return header, groups
        except (SafetensorError, KeyError, ValueError) as error:
            aside = self.path.with_suffix(".damaged")
            self.path.replace(aside)
            print(f"checkpoint {self.path} is damaged ({error}); set aside as {aside.name}, the run starts over", flush=True)
            return None
