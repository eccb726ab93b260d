"""Flat pairs of a batch: where edges and nodes are among them."""

from torch import Tensor

from gt_models.batch import GraphBatch


def edge_pairs(batch: GraphBatch) -> Tensor:
    """The pair (source, target) of each edge, long [E]."""
    graph, source, target = batch.edge_slots()
    return batch.pair_ptr[graph] + source * batch.sizes[graph] + target


def node_pairs(batch: GraphBatch) -> Tensor:
    """The pair (i, i) of each node, long [N]."""
    return batch.pair_ptr[batch.batch] + batch.local * (batch.sizes[batch.batch] + 1)
