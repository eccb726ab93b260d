"""Columns of the node features that are also an encoding: the positions of superpixels (PPGT, Appendix B.3)."""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.encodings.encoding import Encoding, EncodingError


def position(batch: GraphBatch, *, count: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """{"position": [N, count]}: the last `count` columns of the node features.

    Raises:
        EncodingError: there are fewer.
    """
    width = batch.x.size(1) if batch.x.dim() > 1 else 1
    if not 1 <= count <= width:
        raise EncodingError(f"encoding 'position' asks for the last {count} columns; the node features have {width}")
    return {"position": batch.x.view(-1, width)[:, width - count :].to(dtype)}


POSITION = Encoding("position", position, ("position",), lambda count: {"position": count}, on_the_fly=True)
