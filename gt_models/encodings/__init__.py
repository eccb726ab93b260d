"""Positional and structural encodings of graphs: `compute(name, batch, **arguments)` gives {array name: flat tensor}.

    batch.encodings |= compute("rrwp", batch, steps=8)

Signs of eigenvectors are fixed here; models flip them while training.
"""

# mypy: disable-error-code="operator"

from typing import Any

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.encodings.columns import POSITION
from gt_models.encodings.counts import DEGREE, ORDER
from gt_models.encodings.encoding import Encoding, EncodingError
from gt_models.encodings.expander import EXPANDER
from gt_models.encodings.hops import HOPS
from gt_models.encodings.laplacian import (
    LAPLACIAN,
    SECOND_EIGENVECTOR,
    laplacian_with_repeats,
    second_eigenvector_with_repeats,
)
from gt_models.encodings.number import NUMBER
from gt_models.encodings.random_features import NEAR_ORTHOGONAL, ORTHOGONAL, RANDOM
from gt_models.encodings.random_walk import RRWP, RWSE
from gt_models.encodings.shortest_path import SHORTEST_PATH
from gt_models.suggestions import nearest

__all__ = ["ENCODINGS", "Encoding", "EncodingError", "compute", "compute_with_flags", "find_encoding"]

_WALKS, _RANDOM, _COUNTS = (RRWP, RWSE), (ORTHOGONAL, NEAR_ORTHOGONAL, RANDOM), (DEGREE, ORDER)
_FEATURES, _NODES = (POSITION, HOPS), (EXPANDER, NUMBER)
ENCODINGS: dict[str, Encoding] = {
    e.name: e for e in (LAPLACIAN, SECOND_EIGENVECTOR, *_WALKS, SHORTEST_PATH, *_RANDOM, *_COUNTS, *_FEATURES, *_NODES)
}
# what is not unique in an encoding: (arrays, bool [B]) in place of arrays
_FLAGGED = {"laplacian": laplacian_with_repeats, "second-eigenvector": second_eigenvector_with_repeats}


def find_encoding(name: str) -> Encoding:
    """Encoding `name`.

    Raises:
        EncodingError: unknown name; the message has the nearest one.
    """
    if name not in ENCODINGS:
        raise EncodingError(
            f"no encoding named {name!r}{nearest(name, ENCODINGS)}; known: {', '.join(sorted(ENCODINGS))}"
        )
    return ENCODINGS[name]


def compute(
    name: str, batch: GraphBatch | Any, *, graphs: Tensor | None = None, dtype: torch.dtype = torch.float32, **arguments
) -> dict[str, Tensor]:
    """Arrays of encoding `name` for every graph of `batch`, on its device; floating ones in `dtype`.

    `batch`: a GraphBatch, or a torch_geometric Data or Batch.
    `graphs`, long [B], are ids of the graphs: random features depend on them (0 .. B - 1 if absent). Raises
    EncodingError.
    """
    return compute_with_flags(name, batch, graphs=graphs, dtype=dtype, **arguments)[0]


def compute_with_flags(
    name: str, batch: GraphBatch | Any, *, graphs: Tensor | None = None, dtype: torch.dtype = torch.float32, **arguments
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The arrays of `compute`, and the graphs with a property by its name, bool [B].

    "repeated_eigenvalue": an eigenvector that is used belongs to a repeated eigenvalue, so that only its eigenspace is
    determined by the graph.
    """
    encoding, batch = find_encoding(name), GraphBatch.of(batch)
    complete = encoding.arguments(arguments)
    if name in _FLAGGED:
        arrays, repeated = _FLAGGED[name](batch, **complete, dtype=dtype)
        return arrays, {"repeated_eigenvalue": repeated}
    identity = {"graphs": graphs} if encoding.random else {}
    return encoding.function(batch, **complete, **identity, dtype=dtype), {}
