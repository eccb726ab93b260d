"""Which node of its graph a node is, for models that have weights of single nodes (LINKX)."""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.encodings.encoding import Encoding


def number(batch: GraphBatch, *, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """{"number": long [N, 1]}: 0 .. n - 1 in each graph; a part of a graph keeps the numbers of the whole."""
    return {"number": batch.local[:, None].clone()}


NUMBER = Encoding("number", number, ("number",), lambda: {"number": 1})
