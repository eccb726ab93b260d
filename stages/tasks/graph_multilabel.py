"""Several yes-or-no labels for every graph; unlabelled entries are not numbers."""

from stages.tasks.task import Task


class GraphMultilabel(Task):
    default_loss = "bce"


TASK = GraphMultilabel
