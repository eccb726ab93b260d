"""Graph transformers and baselines, as plain torch modules.

    list_models()                             names of all models
    model_info("edge-transformer")            levels, cost, expressivity, encodings, paper, arguments
    create_model("ppgt", in_dim=7, out_dim=2, level="graph")
    transforms.AddEncodings.for_model(model)  a transform that adds the encodings that the model reads
    encodings.compute("rrwp", data, steps=8)  one encoding as flat tensors

The input of every model is a torch_geometric `Data` or `Batch`, or a `GraphBatch`. The package does not depend on
recipes, DVC or MLflow.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for editors
    from gt_models import encodings, transforms
    from gt_models.api import create_model, model_info
    from gt_models.batch import GraphBatch, MissingEncoding
    from gt_models.registry import list_models, register_model

# {name: module that defines it}, imported on first use: reading the registry does not import torch
_MODULE_OF = {
    "GraphBatch": "gt_models.batch",
    "MissingEncoding": "gt_models.batch",
    "create_model": "gt_models.api",
    "list_models": "gt_models.registry",
    "model_info": "gt_models.api",
    "register_model": "gt_models.registry",
}
_SUBMODULES = ("encodings", "transforms")
__all__ = [
    "GraphBatch",
    "MissingEncoding",
    "create_model",
    "encodings",
    "list_models",
    "model_info",
    "register_model",
    "transforms",
]


def __getattr__(name: str) -> object:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    if name in _SUBMODULES:
        return import_module(f"gt_models.{name}")
    raise AttributeError(f"module 'gt_models' has no attribute {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
