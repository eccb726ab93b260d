"""Best weights of a finished run, kept for runs that start from them."""

from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

FILE = "weights.safetensors"


@torch.no_grad()
def load_weights(model: nn.Module, folder: Path, how: Literal["all", "common"]) -> list[str]:
    """Copies the weights in `folder` into `model`; returns the names of what was copied.

    "all": the two have the same names and shapes. "common": what has the same name and shape in both, at least one parameter.
    Raises ValueError where that is not so, or the file is absent or damaged.
    """
    path = folder / FILE
    try:
        source = load_file(path)
    except (FileNotFoundError, SafetensorError) as error:
        raise ValueError(f"{path}: no readable weights ({error})") from None
    target = model.state_dict()
    common = [name for name in target if name in source and source[name].shape == target[name].shape]
    different = sorted((source.keys() | target.keys()) - set(common))
    if how == "all" and different:
        raise ValueError(
            f"the model and the one it starts from differ in {', '.join(different[:5])}{' ...' if different[5:] else ''}"
        )
    if not set(common) & {name for name, _ in model.named_parameters()}:
        raise ValueError("the model has no parameter in common with the one it starts from")
    model.load_state_dict({name: source[name] for name in common}, strict=False)
    return common
