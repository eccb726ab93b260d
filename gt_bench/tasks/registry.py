"""What a dataset asks of a model: loss, evaluation protocol, metric. One file per task, named like the task in the dataset's header."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gt_bench.tasks.base import Task

_FOLDER = Path(__file__).parent
_OTHERS = {"__init__", "base", "metrics", "registry"}  # modules that are not tasks


def task_module(name: str) -> str:
    """Dotted name of the file that holds task `name`. Raises KeyError listing the known tasks."""
    file = name.replace("-", "_")
    if not (_FOLDER / f"{file}.py").is_file() or file in _OTHERS:
        known = sorted(p.stem.replace("_", "-") for p in _FOLDER.glob("*.py") if p.stem not in _OTHERS)
        raise KeyError(f"no task named {name!r:.200}; known: {', '.join(known)}")
    return f"gt_bench.tasks.{file}"


def create_task(name: str, metric: str, loss: str | None = None, also: Sequence[str] = ()) -> Task:
    """The task `name` evaluated by `metric` and, for the report alone, by the metrics `also`; trained with `loss` (None: the task's own)."""
    return importlib.import_module(task_module(name)).TASK(metric, loss, also)
