"""One or several numbers for every graph."""

from stages.tasks.task import Task


class GraphRegression(Task):
    default_loss = "l1"


TASK = GraphRegression
