"""Graph transformers as plain torch modules: `create_model(name, ...)` and `list_models()` are the whole face.

The library knows nothing of files, pipelines or trackers. Every model takes a `GraphBatch`, or any torch_geometric `Data` or `Batch`.
"""

from importlib import import_module

# name -> where it is defined; resolved on first use, so that reading the registry does not cost an import of torch
_HOMES = {
    "GraphBatch": "gt_models.batch",
    "MissingEncoding": "gt_models.batch",
    "create_model": "gt_models.registry",
    "list_models": "gt_models.registry",
    "model_info": "gt_models.registry",
    "register_model": "gt_models.registry",
}
__all__ = [*_HOMES]


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'gt_models' has no attribute {name!r}")
