"""Graph transformers as plain torch modules: `create_model(name, ...)` and `list_models()` are the whole face.

The library knows nothing of files, pipelines or trackers. Every model takes a `GraphBatch`, or any torch_geometric `Data` or `Batch`.
"""

from gt_models.batch import GraphBatch, MissingEncoding
from gt_models.registry import create_model, list_models, model_info, register_model

__all__ = ["GraphBatch", "MissingEncoding", "create_model", "list_models", "model_info", "register_model"]
