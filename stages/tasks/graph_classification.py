"""A class for every graph."""

from stages.tasks.task import LOSSES, Task


class GraphClassification(Task):
    """Logits [B, classes]."""

    default_loss = "cross-entropy"
    losses = {name: LOSSES[name] for name in ("cross-entropy", "weighted-cross-entropy", "bce-one-hot")}


TASK = GraphClassification
