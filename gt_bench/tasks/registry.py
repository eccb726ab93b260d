"""Tasks by name, as in the header of a dataset. A task is the loss, the metrics and the evaluation protocol."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gt_bench.tasks.base import Task

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


def task_module(name: str) -> str:
    """Returns the dotted name of the module of a task.

    Raises:
        KeyError: there is no such task. The message lists the known ones.
    """
    if name not in TASKS:
        raise KeyError(f"no task named {name!r:.200}; known: {', '.join(TASKS)}")
    return TASKS[name].partition(":")[0]


def create_task(name: str, metric: str, loss: str | None = None, also: Sequence[str] = ()) -> Task:
    """Creates a task.

    Args:
        name: name of the task.
        metric: metric that selects the best epoch.
        loss: loss for training. None for the default of the task.
        also: metrics that are reported in addition.

    Raises:
        KeyError: there is no such task, or it does not have this metric or loss.
    """
    return getattr(importlib.import_module(task_module(name)), TASKS[name].partition(":")[2])(metric, loss, also)
