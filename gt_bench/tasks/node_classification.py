"""A class for every node, in one large graph with node splits or in many graphs with graph splits."""

from gt_bench.tasks.base import LOSSES, Task


class NodeClassification(Task):
    """Logits [N, classes]."""

    default_loss = "cross-entropy"
    losses = {name: LOSSES[name] for name in ("cross-entropy", "weighted-cross-entropy", "bce-one-hot")}


TASK = NodeClassification
