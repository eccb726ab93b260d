"""Flat pairs of a batch: where edges and nodes are among them, and the linear map of their states."""

from torch import Tensor, nn

from gt_models.batch import GraphBatch
from gt_models.kernels.pair_linear import pair_linear


def edge_pairs(batch: GraphBatch) -> Tensor:
    """The pair (source, target) of each edge, long [E]."""
    graph, source, target = batch.edge_slots()
    return batch.pair_ptr[graph] + source * batch.sizes[graph] + target


def node_pairs(batch: GraphBatch) -> Tensor:
    """The pair (i, i) of each node, long [N]."""
    return batch.pair_ptr[batch.batch] + batch.local * (batch.sizes[batch.batch] + 1)


class PairLinear(nn.Linear):
    """nn.Linear, [P, in] -> [P, out], in the form that `pair_linear` takes: pairs are many, and most of a step is their products."""

    def forward(self, x: Tensor) -> Tensor:
        """[P, in] -> [P, out]."""
        return pair_linear(x, self.weight, self.bias)
