"""The benchmark in Python, for notebooks and scripts.

    from gt_bench import evaluate
    evaluate(MyModel, "texas", seeds=3)

gives the table that `gt-bench try` prints. Data, records and MLflow's store go to data/, store/ and mlruns/ of the current folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from gt_bench.reports.comparison import Comparison

__all__ = ["evaluate"]


def evaluate(
    model: str | type[nn.Module],
    dataset: str | Any,
    seeds: int | Sequence[int] = 3,
    *,
    set: Mapping[str, object] | None = None,
    search: int | None = None,
    task: str | None = None,
    metric: str | None = None,
    name: str = "own-data",
    track: bool = True,
) -> Comparison:
    """Trains `model` on `dataset` and returns the table of this run beside every shipped and own number there. What ran before is not repeated.

    Args:
        model: a class, a name of `gt_models.list_models()`, "path/to/file.py:MyModel", or one of an installed package.
        dataset: a name, whatever `gt-bench try` takes as DATASET, a torch_geometric `Data`, or a list of them.
        seeds: how many, or which.
        set: dotted keys of a recipe that differ from the defaults: {"optimizer.lr": 0.01, "model.hidden_dim": 128}.
        search: trials of a search on validation, before.
        task, metric: of data of one's own, where what their targets look like would say otherwise.
        name: what a `Data` is called in tables and files.
        track: whether MLflow is told, in the experiment `tried`.

    Raises gt_bench.utils.errors.UserError, whose message says what is wrong with model or data and what to write instead.
    """
    from gt_bench.api.evaluate import try_pair
    from gt_bench.config.grid import load_grid
    from gt_bench.plugins.datasets import held
    from gt_bench.plugins.models import from_class

    grid = load_grid()
    # one process: a notebook has threads already, which no fork survives
    run = grid.run.model_copy(update={"parallel": 1, "tracking": track and grid.run.tracking})
    which = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    chosen = model if isinstance(model, str) else from_class(model).name
    data = dataset if isinstance(dataset, str) else held(dataset, name, task, metric)
    return try_pair(
        chosen, data, dict(set or {}), which, search, task=task, metric=metric, bar=False, grid=grid.model_copy(update={"run": run})
    )  # fmt: skip
