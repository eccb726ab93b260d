"""What a node's neighbourhood of each radius has on average (Hop2Token of NAGphormer, Chen et al., ICLR 2023)."""

import numpy as np
import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.encodings.encoding import Encoding, EncodingError
from gt_models.encodings.laplacian import laplacian


def hops(
    batch: GraphBatch,
    *,
    columns: int,
    steps: int = 3,
    eigenvectors: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """{"hops": [N, (steps + 1) * (columns + eigenvectors)]}: x, A x, ..., A^steps x next to each other.

    A = D^-1/2 (A_0 + I) D^-1/2 of the whole graph.

    Args:
        batch: graphs with continuous features.
        columns: of the node features, all of them (a width that is known before a graph is seen).
        steps: K, the highest power.
        eigenvectors: appended to x before the first step: those of the normalised Laplacian with the lowest eigenvalues
            but for the very first.
        dtype: of the result; all is computed in float64.

    A_0 has edges by target; those that are there several times count so often; a self-loop that is there counts once.

    Raises:
        EncodingError: categorical features, or another number of columns.
    """
    if not batch.x.is_floating_point():
        raise EncodingError("encoding 'hops' averages continuous node features; these are categorical")
    if batch.x.size(1) != columns:
        raise EncodingError(
            f"encoding 'hops': columns is {columns}, and the node features have {batch.x.size(1)}. Give both "
            "`columns` and `steps`, the hops of the "
            "model (encodings.hops.steps in a recipe)"
        )
    features = [batch.x.double()]
    if eigenvectors is not None:
        lowest = laplacian(batch, k=eigenvectors + 1, normalization="sym", which="lowest", dtype=torch.float64)
        features.append(lowest["laplacian_eigenvectors"][:, 1:])
    x, operator = torch.cat(features, 1).cpu().numpy(), _propagation(batch)
    out = torch.empty(batch.num_nodes, (steps + 1) * x.shape[1], dtype=dtype)
    for step, place in enumerate(out.split(x.shape[1], 1)):
        x = operator @ x if step else x
        place.copy_(torch.from_numpy(x))
    return {"hops": out.to(batch.x.device)}


def _propagation(batch: GraphBatch):
    """D^-1/2 (A_0 + I) D^-1/2 by target, scipy's sparse [N, N]."""
    from scipy import sparse

    source, target = batch.edge_index.cpu().numpy()
    proper, nodes = source != target, np.arange(batch.num_nodes)
    source, target = np.concatenate([source[proper], nodes]), np.concatenate([target[proper], nodes])
    scale = np.bincount(target, minlength=batch.num_nodes) ** -0.5  # of one at least: the self-loop
    return sparse.csr_array((scale[target] * scale[source], (target, source)), shape=(batch.num_nodes,) * 2)


def _widths(columns: int, steps: int, eigenvectors: int | None) -> dict[str, int]:
    return {"hops": (steps + 1) * (columns + (eigenvectors or 0))}


HOPS = Encoding("hops", hops, ("hops",), _widths)
