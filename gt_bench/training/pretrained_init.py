"""Initialises a model with the saved weights of another run (`start:` of a recipe)."""

from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from gt_bench.records.run import WEIGHTS


@torch.no_grad()
def load_weights(model: nn.Module, folder: Path, how: Literal["all", "common"]) -> list[str]:
    """Copies saved weights into a model.

    Args:
        model: the model.
        folder: folder of the run that saved the weights.
        how: "all" if both models must have the same names and shapes. "common" to copy only entries whose name and
            shape are the same in both, among them at least one parameter.

    Returns:
        The names of the entries that were copied.

    Raises:
        ValueError: the models do not match, or the file is missing or damaged.
    """
    path = folder / WEIGHTS
    try:
        source = load_file(path)
    except (FileNotFoundError, SafetensorError) as error:
        raise ValueError(f"{path}: no readable weights ({error})") from None
    target = model.state_dict()
    common = [name for name in target if name in source and source[name].shape == target[name].shape]
    different = sorted((source.keys() | target.keys()) - set(common))
    if how == "all" and different:
        listed = ", ".join(different[:5]) + (" ..." if different[5:] else "")
        raise ValueError(f"the model and the one it starts from differ in {listed}")
    if not set(common) & {name for name, _ in model.named_parameters()}:
        raise ValueError("the model has no parameter in common with the one it starts from")
    model.load_state_dict({name: source[name] for name in common}, strict=False)
    return common
