"""One or several numbers for every graph."""

from stages.tasks.task import LOSSES, Task


class GraphRegression(Task):
    """Numbers [B, targets]."""

    default_loss = "l1"
    losses = {name: LOSSES[name] for name in ("l1", "mse")}


TASK = GraphRegression
