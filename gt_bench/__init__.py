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
    from gt_bench.schemas import Row

__all__ = ["evaluate", "load_results"]


def evaluate(
    model: str | type[nn.Module],
    dataset: str | Any,
    seeds: int | Sequence[int] = 3,
    *,
    set: Mapping[str, object] | None = None,
    search: int | None = None,
    space: Mapping[str, object] | None = None,
    against: Sequence[str] = (),
    task: str | None = None,
    metric: str | None = None,
    undirected: bool | None = None,
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
        space: of the search: dotted keys with a list of choices, or with {"low": ..., "high": ..., "log": True}.
        against: names of further models that are trained by the same protocol.
        task, metric: of user-supplied data, where their targets would say otherwise.
        undirected: of user-supplied data: whether the reverse of each edge is added where it is missing.
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
    data = dataset if isinstance(dataset, str) else held(dataset, name, task, metric, undirected)
    spaces = {key: {"choices": values} if isinstance(values, list) else values for key, values in (space or {}).items()}
    return try_pair(
        chosen,
        data,
        dict(set or {}),
        which,
        search,
        against=against,
        space=spaces,
        task=task,
        metric=metric,
        undirected=undirected,
        grid=grid.model_copy(update={"run": run}),
    )


def load_results(suite: str | None = None, dataset: str | None = None) -> list[Row]:
    """The rows of all leaderboards: of this folder, shipped with the benchmark, and of what `gt-bench try` made.

    Args:
        suite: only this one; `tried` has what `gt-bench try` and `evaluate` made.
        dataset: only this one.

    Returns:
        A dict per row with the keys of `gt_bench.schemas.Row` in raw units (a percentage is a fraction); `source` is "own" or
        "shipped", both where there are both. `pandas.DataFrame(load_results())` makes a table of them.

    Raises:
        gt_bench.utils.errors.UserError: for a suite or a dataset that does not exist.
    """
    from gt_bench.reports.all_results import load_rows

    return load_rows(suite, dataset)
