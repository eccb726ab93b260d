"""One or several numbers for every node, in one large graph with node splits or in many graphs with graph splits."""

from gt_bench.tasks.graph_regression import GraphRegression


class NodeRegression(GraphRegression):
    """Numbers [N, targets]; what is said of unlabelled entries holds here too."""


TASK = NodeRegression
