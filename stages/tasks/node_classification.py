"""A class for every node, in one large graph with node splits or in many graphs with graph splits."""

from stages.tasks.task import Task


class NodeClassification(Task):
    default_loss = "cross-entropy"


TASK = NodeClassification
