"""Degrees of nodes (centrality of Graphormer, Ying et al. 2021, Section 3.1.1; PPGT) and sizes of graphs (PPGT)."""

import torch
from torch import Tensor

from gt_models.batch import GraphBatch
from gt_models.encodings.encoding import Encoding


def degree(batch: GraphBatch, *, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """{"degree": long [N, 2]}: incoming and outgoing edges as stored; repeated edges and self-loops count."""
    source, target = batch.edge_index
    counts = [torch.bincount(ends, minlength=batch.num_nodes) for ends in (target, source)]
    return {"degree": torch.stack(counts, 1)}


def order(batch: GraphBatch, *, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """{"order": long [B, 1]}: nodes of each graph."""
    return {"order": batch.sizes[:, None].clone()}


DEGREE = Encoding("degree", degree, ("degree",), lambda: {"degree": 2}, on_the_fly=True)
ORDER = Encoding("order", order, ("order",), lambda: {"order": 1}, on_the_fly=True)
