"""A class for every graph."""

from gt_bench.tasks.base import LOSSES, Task


class GraphClassification(Task):
    """Logits [B, classes]."""

    default_loss = "cross-entropy"
    losses = {name: LOSSES[name] for name in ("cross-entropy", "weighted-cross-entropy", "bce-one-hot")}


TASK = GraphClassification
