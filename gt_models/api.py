"""Models by name, for users of the library."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from gt_models import registry
from gt_models.metadata import METADATA, Metadata

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class ModelCard(registry.ModelInfo):
    """What a model states about itself (`ModelInfo`), and what its paper proves about it.

    Attributes:
        expressivity: which graphs it can distinguish, as proved in its paper.
    """

    expressivity: str = "not stated"

    @property
    def arguments(self) -> dict[str, str]:
        """Arguments of the constructor, {name: "type = default"}."""
        found = {}
        for name, parameter in inspect.signature(self.cls).parameters.items():
            kind = "" if parameter.annotation is parameter.empty else inspect.formatannotation(parameter.annotation)
            default = "" if parameter.default is parameter.empty else f"= {parameter.default!r}"
            found[name] = " ".join(part for part in (kind, default) if part)
        return found

    def __str__(self) -> str:
        lines = {
            "predicts for": ", ".join(self.levels),
            "time per layer": f"{self.cost}   (n nodes, m edges, width d)",
            "expressivity": self.expressivity,
            "encodings": ", ".join(self.encodings) or "none",
            "paper": self.paper or "none",
        }
        arguments = [f"  {name}: {text}" for name, text in self.arguments.items()]
        return "\n".join([self.name, *(f"  {key}: {text}" for key, text in lines.items()), "arguments:", *arguments])


def model_info(name: str) -> ModelCard:
    """Returns the description of a model, which can be printed.

    Raises:
        KeyError: unknown name; the message has the nearest one.
    """
    info = registry.model_info(name)
    facts = METADATA.get(name.removesuffix("-released"), Metadata())
    stated = {field.name: getattr(info, field.name) for field in fields(info)}
    return ModelCard(**stated | {"paper": info.paper or facts.paper}, expressivity=facts.expressivity)


def create_model(name: str, *, pretrained: str | None = None, **arguments: Any) -> nn.Module:
    """Builds a model. `print(model_info(name))` lists its arguments.

    Args:
        name: of `list_models()`.
        pretrained: name of a trained model, for the package that loads it (`gt_models.registry.pretrained_loader`). For
            the benchmark: a cell (suite/dataset/row) of the grid around the working directory. The model is built from
            the cell's recipe with the weights of its run that is best on validation.
        arguments: `in_dim` (int: width of continuous node features; list: one vocabulary size per categorical column),
            `out_dim`, `level`, and the model's hyperparameters. None with `pretrained`, which determines them.

    Raises:
        KeyError: unknown name; the message has the nearest one.
        TypeError: unknown argument, or arguments with `pretrained`.
        ValueError: values that the model rejects, a trained model of another name, no saved weights, or no package that
            loads them.
    """
    if pretrained is None:
        return registry.create_model(name, **arguments)
    if arguments:
        raise TypeError(
            f"create_model: pretrained={pretrained!r} determines the arguments; remove {', '.join(arguments)}"
        )
    registry.model_module(name)
    return registry.pretrained_loader()(name, pretrained)
