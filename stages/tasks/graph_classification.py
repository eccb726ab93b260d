"""A class for every graph."""

from stages.tasks.task import Task


class GraphClassification(Task):
    default_loss = "cross-entropy"


TASK = GraphClassification
