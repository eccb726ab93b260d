"""Several yes-or-no labels for every graph; unlabelled entries are not numbers."""

from gt_bench.tasks.base import LOSSES, Task


class GraphMultilabel(Task):
    """Logits [B, labels]."""

    default_loss = "bce"
    losses = {name: LOSSES[name] for name in ("bce",)}


TASK = GraphMultilabel
