"""The benchmark in Python, for notebooks and scripts.

    from gt_bench import evaluate
    evaluate(MyModel, "texas", seeds=3)

returns the table that `gt-bench try` prints. Data, records and the MLflow store are in data/, store/ and mlruns/ of the
current folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gt_models.registry import register_pretrained

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from gt_bench.reports.dataset_comparison import Comparison

__all__ = ["evaluate", "load_results", "load_runs"]

# The entry point of pyproject.toml registers the same function. This line also works in an environment that was
# installed before the entry point was declared.
register_pretrained("gt_bench.experiment.pretrained:model_of")


def evaluate(
    model: str | type[nn.Module],
    dataset: str | Any,
    seeds: int | Sequence[int] = 3,
    *,
    set: Mapping[str, object] | None = None,
    search: int | None = None,
    space: Mapping[str, object] | None = None,
    method: Mapping[str, object] | None = None,
    ensemble: bool = False,
    against: Sequence[str] = (),
    name: str = "own-data",
    track: bool = True,
    **declared: Any,
) -> Comparison:
    """Train a model on a dataset and compare it with all own and shipped results on it. Stored runs are not repeated.

    Args:
        model: a class, a name of `gt_models.list_models()`, "path/to/file.py:MyModel", or one of an installed package.
        dataset: a name, any other DATASET of `gt-bench try`, a torch_geometric `Data` or a list of them, DataFrames
            {"nodes": ..., "edges": ...} (and "graphs") of pandas or polars, a networkx graph, or a list of graphs.
        seeds: number of seeds, or a list of them.
        set: dotted keys of a recipe that differ from the defaults: {"optimizer.lr": 0.01, "model.hidden_dim": 128}.
        search: number of trials of a hyperparameter search on validation, which runs first.
        space: space of the search: dotted keys with a list of choices, or with {"low": ..., "high": ..., "log": True}.
        method: sampler, pruner and other keys of `search:` of a recipe (docs/search.md): {"sampler": "gp"}.
        ensemble: with `search`: also train the default settings and the best trials; the attribute `tuned` of the
            comparison has the columns default, tuned, and tuned and ensembled.
        against: names of further models that are trained by the same protocol.
        name: name of a dataset that is not given by its name or path, in tables and files.
        track: whether runs are logged to MLflow, in the experiment `tried`.
        declared: what is declared about user-supplied data, with the keys of data.yaml (docs/own_data.md): task="...",
            metric="...", target="price", undirected=True, split="temporal:year", ...

    Returns:
        The comparison: `print` it, or use `rows`, `mean`, `to_pandas()` and `to_latex()`.

    Raises:
        gt_bench.utils.errors.UserError: model or data cannot be used; the message names the reason and the remedy.
    """
    from pathlib import Path

    from gt_bench.api.arguments import checked, noting_options
    from gt_bench.api.ensemble import MEMBERS
    from gt_bench.api.evaluate import try_pair
    from gt_bench.config.grid import load_grid
    from gt_bench.plugins.datasets import store_data
    from gt_bench.plugins.models import from_class
    from gt_bench.runtime.torch_defaults import torch_defaults

    given: dict[str, Any] = {
        "seeds": seeds,
        "set": set,
        "search": search,
        "space": space,
        "method": method,
        "ensemble": ensemble,
    }
    chosen = checked(given | declared | {"against": against, "name": name, "track": track})
    grid = load_grid()
    # one process: a notebook has threads already, which no fork survives
    run = grid.run.model_copy(update={"parallel": 1, "tracking": chosen.track and grid.run.tracking})
    with noting_options(), torch_defaults():
        return try_pair(
            model if isinstance(model, str) else from_class(model).name,
            str(dataset) if isinstance(dataset, str | Path) else store_data(dataset, chosen.name, chosen.data),
            chosen.set,
            chosen.seeds,
            chosen.search,
            against=chosen.against,
            space=chosen.space,
            data=chosen.data,
            grid=grid.model_copy(update={"run": run}),
            method=chosen.method,
            members=MEMBERS if chosen.ensemble else None,
        )


def load_results(suite: str | None = None, dataset: str | None = None) -> pd.DataFrame:
    """Return all leaderboards as a table: own and shipped results, and those of `gt-bench try`.

    Args:
        suite: only this suite; `tried` has the results of `gt-bench try` and `evaluate`.
        dataset: only this dataset.

    Returns:
        A row per cell and source. Numbers are in raw units (a percentage is a fraction). A value that does not exist is
        missing (NaN or None). The columns are always these:

        - cell, suite, dataset, model: SUITE/DATASET/ROW and its parts
        - metric, direction, unit: of the test metric; "max" or "min"; "percent", "deviations" (of the targets, if these
          are standardised) or "none"
        - mean, std, std_ddof, values: over the runs that succeeded (population deviation, ddof 0), and one value per
          run
        - runs, seeds, status, reason, reduced: runs that succeeded, seeds of the recipe; "ok" or why not; cuts
        - published_printed, published_mean, published_std, published_runs, published_source, published_place: the
          number of the paper
        - difference, interval_low, interval_high: mean minus published mean, with its 95 % confidence interval
        - verdict, provisional, margin, margin_std, power, excluded_gap, p_difference, p_equivalence, q_difference,
          seeds_needed: comparison with the published number (docs/statistics.md)
        - claim, claim_rival, claim_low, claim_high, claim_more_seeds: whether the method is ahead of the next one, as
          the paper claims, with the interval of the difference
        - chance, expected, expected_limit, expected_margin, expected_because, as_expected, tests: of rows whose value
          theory predicts
        - parameters, seconds_per_epoch, peak_memory_mib, device: cost of a run; seconds are medians, memory in MiB
        - chosen_on_test: whether the epoch was chosen on the test split (`select: test`), as some authors do
        - flags, notes, digests: remarks, and the digests of the records
        - contributed: who contributed the records and what was verified (docs/submit.md); None: the maintainers' own
        - default_mean, default_std, default_hours, tuned_hours, trials, ensemble_mean, ensemble_std, ensemble_hours: of
          `gt-bench try --search N --ensemble`; the tuned mean is `mean` (docs/search.md)
        - source: "own" or "shipped"; a cell that has both has two rows

    Raises:
        gt_bench.utils.errors.UserError: the suite or the dataset does not exist.
    """
    from gt_bench.api import all_results

    return all_results.load_results(suite, dataset)


def load_runs(suite: str | None = None, dataset: str | None = None) -> pd.DataFrame:
    """Return all records as a table: a row per run (a seed of a cell), own and shipped.

    Args:
        suite: only this suite; `tried` has the runs of `gt-bench try` and `evaluate`.
        dataset: only this dataset.

    Returns:
        Numbers are in raw units (a percentage is a fraction). A value that does not exist is missing. The columns are
        always these:

        - cell, suite, dataset, model, source: SUITE/DATASET/ROW and its parts; "own" or "shipped"
        - seed, split, status, error: seed and number of the split; "ok", or how the run failed and why
        - metric, direction, val, test, best_epoch: the metric at the epoch that is best on validation
        - epochs, curves: number of trained epochs; a list per measured curve, with an entry per epoch
        - test_metrics: all test metrics of the run, by name
        - parameters, device, cpu, torch: size of the model; hardware and version
        - seconds, train_seconds_per_epoch, eval_seconds_per_epoch, peak_memory_mib: cost; memory in MiB
        - started, finished, commit: times in ISO 8601, and the commit of the code ("dirty" if it was changed)
        - verified, by: of contributed records (docs/submit.md)
        - recipe, digest: all settings, nested; identity of the run

    Raises:
        gt_bench.utils.errors.UserError: the suite or the dataset does not exist.
    """
    from gt_bench.api import all_results

    return all_results.load_runs(suite, dataset)
