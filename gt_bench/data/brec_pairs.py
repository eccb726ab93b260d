"""The pairs of BREC as adjacency matrices, from the packed dataset."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gt_bench.data.packed import DatasetUnavailable, PackedDataset


def brec_pairs(data: Path) -> list[tuple[Any, Any]] | None:
    """Adjacency matrices [n, n] of both sides of each of BREC's 400 pairs; None where the dataset is not there."""
    data_set = packed(data, "brec")
    if data_set is None:
        return None
    pair, control = (data_set.array(name).numpy() for name in ("pair", "control"))
    nodes, edges, source, target = (
        data_set.array(name).numpy() for name in ("node_ptr", "edge_ptr", "source", "target")
    )

    def adjacency(graph: int) -> NDArray[np.float64]:
        matrix = np.zeros((int(nodes[graph + 1] - nodes[graph]),) * 2)
        span = slice(int(edges[graph]), int(edges[graph + 1]))
        matrix[source[span].astype(np.int64), target[span].astype(np.int64)] = 1
        return matrix

    first = [np.flatnonzero((pair == number) & (control == 0))[:2] for number in range(int(pair.max()) + 1)]
    return [(adjacency(a), adjacency(b)) for a, b in first]


def packed(data: Path, name: str) -> PackedDataset | None:
    """The dataset `name` of `data`; None where it is not there."""
    try:
        return PackedDataset.open(data / "packed" / name)
    except DatasetUnavailable:
        return None
