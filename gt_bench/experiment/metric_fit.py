"""Whether a task's metric is defined on what it will be computed on: the validation and test parts of a split."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import torch

from gt_bench.config.schema import RecipeError
from gt_bench.tasks.base import Task
from gt_bench.tasks.metrics import why_undefined

if TYPE_CHECKING:
    from gt_bench.data.packed import PackedDataset

PARTS: tuple[Literal["val", "test"], ...] = ("val", "test")


def check_metric(packed: "PackedDataset", task: Task, splits: Iterable[int], path: str) -> None:
    """Raises RecipeError, which names part and split, where the metric is undefined on one of these splits. Tasks with batches or a protocol of their own
    are left out."""
    header = packed.header
    if (
        task.loader
        or task.runner
        or not header.num_splits
        or header.level not in ("node", "graph")
        or header.split_kind == "hyperedge"
    ):
        return
    y = packed.array("y")
    for split in sorted(set(splits)):
        for part in PARTS:
            ids = packed.split(part, split)
            if header.level == "node" and header.split_kind == "graph":
                rows = (
                    torch.zeros(packed.num_graphs, dtype=torch.bool)
                    .index_fill(0, ids, True)
                    .repeat_interleave(packed.sizes)
                )
            else:
                rows = ids
            reason = why_undefined(task.metric, y[rows]) if len(ids) else None  # the loader says that a part is empty
            if reason:
                other = "give another split, in which the part has both, or another metric: accuracy"
                if header.task == "graph-multilabel":
                    other = "give another split, in which a label has both values in the part"
                raise RecipeError(
                    f"{path}: dataset {header.name!r}: the {part} part of split {split} {reason}: {task.metric} is not defined there; {other}"
                )
