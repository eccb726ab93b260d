"""Positional and structural encodings of graphs: `compute(name, batch, **arguments)` gives {array name: flat tensor}.

    batch.encodings |= compute("rrwp", batch, steps=8)

Signs of eigenvectors are fixed here; models flip them while training.
"""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.encodings.encoding import Encoding, EncodingError, nearest
from gt_models.encodings.laplacian import LAPLACIAN, SECOND_EIGENVECTOR
from gt_models.encodings.random_walk import RRWP, RWSE

__all__ = ["ENCODINGS", "Encoding", "EncodingError", "compute", "find_encoding"]

ENCODINGS: dict[str, Encoding] = {e.name: e for e in (LAPLACIAN, SECOND_EIGENVECTOR, RRWP, RWSE)}


def find_encoding(name: str) -> Encoding:
    """Encoding `name`. Raises EncodingError with the nearest name."""
    if name not in ENCODINGS:
        raise EncodingError(f"no encoding named {name!r}{nearest(name, ENCODINGS)}; known: {', '.join(sorted(ENCODINGS))}")
    return ENCODINGS[name]


def compute(name: str, batch: GraphBatch, *, dtype: torch.dtype = torch.float32, **arguments) -> dict[str, Tensor]:
    """Arrays of encoding `name` for every graph of `batch`, on its device; floating ones in `dtype`. Raises EncodingError."""
    encoding = find_encoding(name)
    return encoding.function(batch, **encoding.arguments(arguments), dtype=dtype)
