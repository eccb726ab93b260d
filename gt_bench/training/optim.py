"""Optimisers and learning-rate schedules. A schedule is a function of the run's progress and has no state."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn


def create_optimizer(section: Any, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Creates the optimiser of a recipe.

    Args:
        section: `optimizer:` of the recipe. "adam" adds weight decay to the gradient (L2), "adamw" decouples it.
        parameters: parameters of the model.
    """
    if section.name == "sgd":
        return torch.optim.SGD(parameters, lr=section.lr, momentum=section.momentum, weight_decay=section.weight_decay)
    kind = torch.optim.AdamW if section.name == "adamw" else torch.optim.Adam
    # fused: four times faster
    return kind(
        parameters,
        lr=section.lr,
        betas=tuple(section.betas),
        eps=section.eps,
        weight_decay=section.weight_decay,
        fused=True,
    )


def lr_factor(section: Any, position: float, total: float, validation: Sequence[float | None], direction: str) -> float:
    """Returns the factor by which the base learning rate is multiplied.

    Args:
        section: `schedule:` of the recipe.
        position: number of finished epochs or steps.
        total: number of epochs or steps of the whole run.
        validation: validation metric of each finished epoch, None if it was not evaluated. Used by "plateau".
        direction: "max" or "min": which validation values are better.
    """
    if position < section.warmup:
        return max(section.start_factor, position / section.warmup)
    if section.name == "constant":
        return 1.0
    if section.name == "plateau":
        return section.factor ** _plateaus(validation, section.patience, direction)
    if section.name == "step":
        return section.factor ** int((position - section.warmup) // section.every)
    progress = min(1.0, (position - section.warmup) / max(1, (section.total or total) - section.warmup))
    shape = 0.5 * (1 + math.cos(math.pi * progress)) if section.name == "cosine" else 1 - progress
    return section.final_factor + (1 - section.final_factor) * shape


def _plateaus(validation: Sequence[float | None], patience: int, direction: str) -> int:
    """Returns how often validation has not improved for more than `patience` evaluations."""
    best, waited, count = None, 0, 0
    for value in validation:
        if value is None:
            continue
        if best is None or (value > best if direction == "max" else value < best):
            best, waited = value, 0
        elif waited >= patience:
            count, waited = count + 1, 0
        else:
            waited += 1
    return count
