"""Eigenvectors of the Laplacian as input: their signs are arbitrary, so training draws them; some are dropped."""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch


def laplacian_eigenvectors(batch: GraphBatch, width: int, flip: bool) -> Tensor:
    """The encoding "laplacian_eigenvectors", [N, width].

    With `flip`, each eigenvector of each graph has a random sign.
    """
    vectors = batch.encoding("laplacian_eigenvectors", width)
    if not flip:
        return vectors
    signs = torch.randint(0, 2, (batch.num_graphs, width), device=vectors.device) * 2 - 1
    return vectors * signs.to(vectors.dtype)[batch.batch]


def drop_eigenvectors(vectors: Tensor, rate: float, owner: Tensor, num_graphs: int) -> Tensor:
    """Channel dropout (Tompson et al. 2015).

    Each eigenvector of each graph is dropped with probability `rate`, the rest scaled up.
    """
    keep = (torch.rand(num_graphs, vectors.size(1), device=vectors.device) >= rate).to(vectors.dtype) / (1.0 - rate)
    return vectors * keep[owner]
