"""The names of tasks, the module and the class of each, and the metrics of those that user-supplied data can have."""

# name -> module:class; modules are imported on first use
TASKS = {
    "basis-approximation": "gt_bench.tasks.basis_approximation:BasisApproximation",
    "brec": "gt_bench.tasks.brec:Brec",
    "configuration-ranking": "gt_bench.tasks.configuration_ranking:ConfigurationRanking",
    "edge-classification": "gt_bench.tasks.edges:EdgeClassification",
    "edge-regression": "gt_bench.tasks.edges:EdgeRegression",
    "graph-classification": "gt_bench.tasks.standard:Classification",
    "graph-multilabel": "gt_bench.tasks.standard:Multilabel",
    "graph-regression": "gt_bench.tasks.standard:Regression",
    "hyperedge-prediction": "gt_bench.tasks.hyperedge_prediction:HyperedgePrediction",
    "isomorphism": "gt_bench.tasks.isomorphism:Isomorphism",
    "link-prediction": "gt_bench.tasks.link_prediction:LinkPrediction",
    "node-classification": "gt_bench.tasks.standard:Classification",
    "node-regression": "gt_bench.tasks.standard:Regression",
    "set-to-graph": "gt_bench.tasks.set_to_graph:SetToGraph",
}
LINK = "link-prediction"
TWO_CLASSES = ("roc-auc", "ap", "f1-binary")  # metrics of two classes, of which 1 is the positive one
_CLASSES = ("accuracy", "balanced-accuracy", "f1-macro", "f1-micro", *TWO_CLASSES)
_NUMBERS = ("mae", "mse", "rmse", "r2")
METRICS = {  # task -> its metrics, the usual one first; in addition `file.py:function`
    "edge-classification": _CLASSES,
    "edge-regression": _NUMBERS,
    "graph-classification": _CLASSES,
    "graph-multilabel": ("ap", "roc-auc", "f1-macro", "f1-micro"),
    "graph-regression": _NUMBERS,
    LINK: ("mrr", *(f"hits@{k}" for k in (1, 3, 5, 10, 20, 50, 100)), "roc-auc", "ap"),
    "node-classification": _CLASSES,
    "node-regression": _NUMBERS,
}


def task_module(name: str) -> str:
    """Returns the dotted name of the module of a task.

    Raises:
        KeyError: there is no such task. The message lists the known ones.
    """
    if name not in TASKS:
        raise KeyError(f"no task named {name!r:.200}; known: {', '.join(TASKS)}")
    return TASKS[name].partition(":")[0]
