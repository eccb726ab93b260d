"""Run cells: some, all that are missing, on this machine or a cluster; a model on a dataset; searches; forecasts.

`WHICH` is the text of the help on when to use which command.
"""

import contextlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from gt_bench.cli.options import (
    AsJson,
    CellName,
    Names,
    SearchOptions,
    UserDataOptions,
    every_cell,
    listed,
    with_groups,
)
from gt_bench.utils.format import print_json, print_text

WHICH = (
    "When to use which: `reproduce SUITE` (or `dvc repro`) runs a suite from download to leaderboard; `train CELL` "
    "trains cells whose data are already prepared; `work` fills a given time with missing runs on this machine; "
    "`sweep` submits missing runs to Slurm; `try` runs a model on a dataset without a recipe."
)


def train(
    names: Annotated[list[str], typer.Argument(metavar="SUITE|CELL", help="suites and cells (SUITE/DATASET/ROW)")],
    jobs: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="cells that train at once; above 1, free cores run further seeds of them"
        ),
    ] = 1,
    predictions: Annotated[
        bool,
        typer.Option("--predictions", help="compute runs again whose predictions are not stored (`gt-bench score`)"),
    ] = False,
) -> None:
    """Train cells whose data and encodings are prepared (`dvc repro train@CELL` prepares them)."""
    from gt_bench.pipeline.stage import say_notes
    from gt_bench.tracking.uri import is_installed
    from gt_bench.utils.errors import DatasetError

    grid = every_cell()
    if predictions:
        grid = grid.model_copy(update={"run": grid.run.model_copy(update={"require_predictions": True})})
    cells = grid.chosen(names)
    datasets = dict.fromkeys(cell.dataset for cell in cells)
    if missing := [name for name in datasets if not Path("data/packed", name, "header.json").exists()]:
        remedy = f"`gt-bench work {' '.join(names)}` prepares data and trains"
        raise DatasetError(f"no dataset {', '.join(missing)}", file="data/packed", value=missing, remedy=remedy)
    say_notes(cells)
    # both load torch
    from gt_bench.pipeline.train import train_cell
    from gt_bench.pipeline.train_cells import train_cells

    lost = []
    if len(cells) == 1 and jobs == 1:
        train_cell(cells[0], grid)
    else:
        lost = train_cells(cells, grid, jobs)
    if "mlflow" in grid.run.trackers and is_installed():
        from gt_bench.tracking.sync import track_cells

        track_cells(cells)
    if lost:
        print_text(f"{len(cells) - len(lost)} of {len(cells)} cells are trained; run the same command again to resume")
        raise typer.Exit(1)


@with_groups
def try_(
    model: Annotated[
        str, typer.Argument(metavar="MODEL[,MODEL]", help="a name, or path/to/file.py:MyModel; several: every pair")
    ],
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET[,DATASET]",
            help="a name, a folder of CSV, an npz file, path/to/file.py:load, or pyg:Planetoid/Cora",
        ),
    ],
    *,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="a dotted key of a recipe: optimizer.lr=0.01; may be repeated"),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="SEEDS", help="0-9, or 0,2,5; otherwise the default seeds")
    ] = None,
    epochs: Annotated[int | None, typer.Option(metavar="N", min=1, help="the same as --set epochs=N")] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="MODEL,...", help="also train these by the same protocol: splits, seeds, epochs, trials"),
    ] = None,
    search: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="first search hyperparameters on validation, with N trials")
    ] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="with --search: model.hidden=16,32,64, model.layers=1..4, model.scale=0.01..1:log",
        ),
    ] = None,
    search_options: SearchOptions,
    ensemble: Annotated[
        bool,
        typer.Option(
            "--ensemble", help="with --search: compare default, tuned, and an ensemble of the best trials of MODEL"
        ),
    ] = False,
    members: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="with --ensemble: trials that are trained with all seeds as its candidates; default: 5",
        ),
    ] = None,
    data_options: UserDataOptions,
    save: Annotated[
        str | None, typer.Option(metavar="SUITE", help="write the recipe that was used to suites/SUITE/recipes/")
    ] = None,
    as_json: AsJson = False,
    debug: Annotated[
        Literal["overfit", "profile", "nan", "one-batch"] | None,
        typer.Option(
            help="a few steps instead of a run: memorise a batch, profile, find the first NaN, shapes of a batch"
        ),
    ] = None,
) -> None:
    """Train any model on any dataset by default settings, and compare it with all results on this dataset.

    Several models or datasets, separated by commas: every pair is run, with one table at the end. A pair that fails
    leaves the others; exit 1. The default settings are in gt_bench/plugins/defaults.yaml.
    """
    from gt_bench.api.names import check_names
    from gt_bench.api.sweep import show as show_each
    from gt_bench.api.sweep import try_each
    from gt_bench.config.option_text import OptionError, seeds_in, values_in
    from gt_bench.config.search_options import options_of
    from gt_bench.config.space_text import space_in
    from gt_bench.reports.dataset_comparison import Comparison, shown

    method, data = search_options.method(), data_options.stated()
    given = values_in("--set", set_ or (), "optimizer.lr=0.01")
    if epochs is not None and "epochs" in given:
        raise OptionError("--set gives epochs too", place="--epochs", value=epochs, remedy="leave one out")
    if epochs is not None:
        given["epochs"] = epochs
    if members is not None and not ensemble:
        raise OptionError("is for --ensemble", place="--members", value=members, remedy="add --ensemble")
    which = None if seeds is None else seeds_in(seeds)
    models, datasets = listed([model]), listed([dataset])
    pairs = len(models) * len(datasets)
    if debug is not None:
        others = {"--search": search, "--against": against, "--space": space, "--save": save, "--ensemble": ensemble}
        others |= dict.fromkeys(options_of(method)[:1], True)
        if taken := [name for name, value in others.items() if value]:
            problem = f"stores no run and cannot be combined with {taken[0]}"
            raise OptionError(problem, place="--debug", value=debug, remedy="remove one")
    if pairs == 1 or debug is not None:
        check_names(model, dataset, data)
    from gt_bench.api.evaluate import check_suite, debug_pair, try_pair  # loads torch
    from gt_bench.api.evaluate import save as save_recipe

    if save is not None:
        check_suite(save)
    if debug is not None:
        if not debug_pair(model, dataset, debug, given, which[0] if which else 0, data):
            raise typer.Exit(1)
        return
    if which and len(which) == 1 and which[0] > 0:
        print_text(f"--seeds {seeds}: seed {seeds} alone; {seeds} seeds are 0-{which[0] - 1}", file=sys.stderr)
    if pairs > 1 and (against or ensemble):
        option = "--against" if against else "--ensemble"
        raise OptionError(f"expected one model and one dataset (given: {pairs} pairs)", place=option)

    def compare(model: str, dataset: str) -> Comparison:
        return try_pair(
            model,
            dataset,
            given,
            which,
            search,
            against=listed([against] if against else []),
            space=dict(map(space_in, space or [])),
            data=data,
            method=method,
            members=(5 if members is None else members) if ensemble else None,
        )

    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        comparisons, failed = try_each(models, datasets, compare) if pairs > 1 else ([compare(model, dataset)], [])
    if as_json:
        content = [
            {"dataset": each.dataset, "recipe": each.recipe, "rows": each.rows}
            | ({"tuned": each.tuned.content()} if each.tuned else {})
            for each in comparisons
        ]
        print_json(content if pairs > 1 else content[0])
    elif pairs > 1:
        show_each(comparisons, failed, pairs)
    else:
        shown(comparisons[0], [f"recipe: {comparisons[0].recipe}"])
    if save is not None:
        for each in comparisons:
            print_text(f"saved: {save_recipe(each.recipe, save)}", file=sys.stderr if as_json else None)
    if comparisons and not as_json:
        names = " ".join(dict.fromkeys(each.dataset for each in comparisons))
        print_text(f"next: gt-bench board {names}, or gt-bench page for plots of all results")
    if failed:
        raise typer.Exit(1)


def work(
    names: Names = None,
    hours: Annotated[
        float | None, typer.Option(metavar="HOURS", help="stop after this time; default: when all is done")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="runs at once, each with the threads of its recipe; default: the number of cores"
        ),
    ] = None,
) -> None:
    """Compute missing runs in parallel on this machine, the longest first.

    With --hours: the papers' own numbers first, then the shortest runs, and none that cannot end in time by its
    forecast. Exit 1 if a run failed.
    """
    from gt_bench.config.grid import load_grid
    from gt_bench.leaderboard.coverage import has_own_number
    from gt_bench.scheduling.local_queue import work as run_queue

    grid = load_grid()
    if not run_queue(grid.chosen(names or []), grid, hours, jobs, is_first=has_own_number) and hours is None:
        raise typer.Exit(1)


def sweep(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="SUITE|CELL", help="suites and cells (SUITE/DATASET/ROW)")
    ] = None,
    cluster: Annotated[
        str, typer.Option(metavar="CLUSTER", help="slurm, or local: in parallel on this machine, as `gt-bench work`")
    ] = "slurm",
    at_most: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="jobs at once; default: 16 on slurm; local: by cores and memory", show_default=False
        ),
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="show what would be submitted")] = False,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="with --dry-run: time a few steps of each cell here, which takes seconds per cell"
        ),
    ] = False,
) -> None:
    """Submit all missing runs to a cluster and follow them (docs/cluster.md).

    Run it again to submit what is still missing. Exit 1 if a run is missing at the end.
    """
    from gt_bench.config.grid import load_grid
    from gt_bench.config.option_text import OptionError
    from gt_bench.config.schema import RecipeError
    from gt_bench.scheduling.dry_run import show_dry_run
    from gt_bench.scheduling.local_queue import work as run_queue
    from gt_bench.scheduling.slurm import Slurm
    from gt_bench.scheduling.slurm_sweep import AT_MOST
    from gt_bench.scheduling.slurm_sweep import sweep as submit

    if measure and not dry:
        raise OptionError("is for --dry-run", place="--measure", remedy="add --dry-run")
    if cluster not in ("slurm", "local"):
        raise OptionError("expected slurm or local", place="--cluster", value=cluster)
    if at_most is not None and at_most < 1:
        raise OptionError("give how many jobs run at once, 1 or more", place="--at-most", value=at_most)
    if not names:
        raise RecipeError("a sweep of nothing", remedy="name suites or cells; `gt-bench list` shows all")
    grid = load_grid()
    cells = grid.chosen(names)
    if dry:
        show_dry_run(cells, grid, measure)
    elif not (
        run_queue(cells, grid, jobs=at_most)
        if cluster == "local"
        else submit(cells, grid, Slurm(Path("store/sweep")), at_most or AT_MOST)
    ):
        raise typer.Exit(1)


@with_groups
def tune(
    cell: CellName,
    *,
    search_options: SearchOptions,
) -> None:
    """Run the hyperparameter search of a cell; an interrupted search is resumed.

    Options replace the keys of `search:` in its recipe, as `search:` in params.yaml does.
    """
    from gt_bench.pipeline.stage import say_notes
    from gt_bench.pipeline.tune import tune_cell

    grid = every_cell()
    chosen = grid.find(cell)
    method = search_options.method()
    if method.model_fields_set:
        both = grid.search[chosen.cell].merged(method) if chosen.cell in grid.search else method
        grid = grid.model_copy(update={"search": {**grid.search, chosen.cell: type(method).model_validate(both)}})
    say_notes([chosen])
    tune_cell(chosen, grid)


def forecast(
    names: Names = None,
    seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="time for steps of each phase of a cell")
    ] = 3.0,
    report: Annotated[
        bool, typer.Option(help="as Markdown, with the median error over cells that were run here")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Estimate time, memory and disk space of cells on this device from a few steps of each.

    The actual cost is shown next to the estimate if it is known. Exit 1 if no cell has a forecast.
    """
    from gt_bench.forecasting.estimate import forecast as forecast_cells
    from gt_bench.forecasting.report import markdown, show

    grid = every_cell()
    forecasts = forecast_cells(
        grid.chosen(names or []), grid, budget=seconds, say=lambda line: print_text(line, file=sys.stderr, flush=True)
    )
    if as_json:
        print_json([asdict(each) | {"total_seconds": each.total_seconds} for each in forecasts])
    elif report:
        print_text(markdown(forecasts), end="")
    else:
        show(forecasts)
    if all(each.problem for each in forecasts):
        raise typer.Exit(1)


def reproduce(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="a paper or set of cells; `gt-bench suite list` shows them")
    ],
) -> None:
    """Run a suite with DVC, from download to leaderboard; the same as `make reproduce SUITE=...`."""
    from gt_bench.pipeline.reproduce import main

    if status := main([suite]):
        raise typer.Exit(status)
