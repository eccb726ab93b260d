"""Tasks by name, as in the header of a dataset. A task is the loss, the metrics and the evaluation protocol."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gt_bench.config.tasks import TASKS, task_module

if TYPE_CHECKING:
    from gt_bench.tasks.base import Task


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
