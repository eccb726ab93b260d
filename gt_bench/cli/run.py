"""Run: cells, a pair of your own, everything that is missing, here or on a cluster; searches; and how long all that takes."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gt_bench.cli.options import CellName, Names, Plan, every_cell
from gt_bench.utils.format import print_text


class Debug(StrEnum):
    """What `gt-bench try --debug` does."""

    overfit = "overfit"
    profile = "profile"
    nan = "nan"
    one_batch = "one-batch"


def train(
    names: Annotated[list[str], typer.Argument(help="cells (suite/dataset/row) and suites")],
    jobs: Annotated[int, typer.Option(help="cells that train at once, each in a process of its own")] = 1,
    predictions: Annotated[
        bool,
        typer.Option("--predictions", help="compute runs again whose predictions are not stored (`gt-bench score`)"),
    ] = False,
) -> None:
    """Trains cells. Data and encodings must be there (`dvc repro train@CELL` sees to it)."""
    from gt_bench.experiment.cell import say_notes
    from gt_bench.pipeline.train import train_cell
    from gt_bench.scheduling.train_cells import train_cells
    from gt_bench.tracking.uri import is_installed

    grid = every_cell()
    if predictions:
        grid = grid.model_copy(update={"run": grid.run.model_copy(update={"require_predictions": True})})
    cells = grid.chosen(names)
    say_notes(cells)
    lost = []
    if len(cells) == 1 and jobs == 1:
        train_cell(cells[0], grid)
    else:
        lost = train_cells(cells, grid, jobs)
    if grid.run.tracking and is_installed():
        from gt_bench.tracking.sync import track_cells

        track_cells(cells)
    if lost:
        print_text(f"{len(cells) - len(lost)} of {len(cells)} cells are trained; the same command goes on")
        raise typer.Exit(1)


def try_(
    model: Annotated[str, typer.Argument(help="a name, or path/to/file.py:MyModel")],
    dataset: Annotated[
        str, typer.Argument(help="a name, a folder of CSV, an npz file, path/to/file.py:load, or pyg:Planetoid/Cora")
    ],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="a dotted key of a recipe: optimizer.lr=0.01")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="0-9, or 0,2,5; otherwise the defaults'")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="the same as --set epochs=N")] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="MODEL,...", help="train these too, by the same protocol: splits, seeds, epochs, trials"),
    ] = None,
    search: Annotated[int | None, typer.Option(min=1, metavar="TRIALS", help="search on validation first")] = None,
    space: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="of --search: model.hidden=16,32,64, model.layers=1..4, optimizer.lr=1e-4..1e-2:log",
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="of data of your own: node-classification, graph-regression, ...")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="of data of your own: accuracy, mae, ...")] = None,
    undirected: Annotated[
        bool | None,
        typer.Option(
            "--undirected/--directed", help="of data of your own: add the reverse of each edge where it is missing"
        ),
    ] = None,
    save: Annotated[
        str | None, typer.Option(metavar="SUITE", help="write the recipe that was used into suites/SUITE/recipes/")
    ] = None,
    debug: Annotated[
        Debug | None,
        typer.Option(
            help="a few steps instead of a run: memorise a batch, profile, find the first NaN, shapes of a batch"
        ),
    ] = None,
) -> None:
    """Any model on any dataset without a recipe, by the defaults of gt_bench/plugins/defaults.yaml; then a table of all that is known there."""
    from gt_bench.api.evaluate import check_suite, try_pair
    from gt_bench.api.evaluate import save as save_recipe
    from gt_bench.config.space_text import space_in
    from gt_bench.plugins.default_recipes import seeds_in, settings
    from gt_bench.reports.comparison import shown

    if save is not None:
        check_suite(save)
    given = settings(set_ or [])
    if epochs is not None:
        given["epochs"] = epochs
    if debug is not None:
        from gt_bench.api.evaluate import debug_pair
        from gt_bench.config.schema import RecipeError

        others = {"--search": search, "--against": against, "--space": space, "--save": save}
        if taken := [name for name, value in others.items() if value]:
            raise RecipeError(
                f"--debug {debug.value}: stores no run and cannot be combined with {taken[0]}; remove one"
            )
        seed = 0 if seeds is None else seeds_in(seeds)[0]
        told = {"task": task, "metric": metric}
        if not debug_pair(model, dataset, debug.value, given, seed, **told, undirected=undirected):
            raise typer.Exit(1)
        return
    found = try_pair(
        model,
        dataset,
        given,
        None if seeds is None else seeds_in(seeds),
        search,
        against=[name.strip() for name in against.split(",")] if against else (),
        space=dict(map(space_in, space or [])),
        task=task,
        metric=metric,
        undirected=undirected,
    )
    shown(found, [f"recipe: {found.recipe}"])
    if save is not None:
        print_text(f"saved: {save_recipe(found.recipe, save)}")


def work(
    names: Names = None,
    hours: Annotated[float | None, typer.Option(help="work so long; without it until all is done")] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="runs at once, each with the threads that its recipe says; as many as there are cores"),
    ] = None,
    plan: Plan = None,
    export: Annotated[Path, typer.Option(help="folder for the records of finished cells")] = Path("suites"),
) -> None:
    """Computes missing runs, those of the highest value first (gt_bench/scheduling/planner.py), side by side, until the hours are over. Exits 1 where
    something is left that could not be done."""
    from gt_bench.config.grid import load_grid
    from gt_bench.scheduling.local_queue import work as run_queue
    from gt_bench.scheduling.plan_file import entries_of

    grid = load_grid()
    if not run_queue(entries_of(names or [], plan, grid), grid, hours, jobs, export) and hours is None:
        raise typer.Exit(1)


def sweep(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="SUITE|CELL...", help="suites and cells (suite/dataset/row)")
    ] = None,
    cluster: Annotated[
        str, typer.Option(help="slurm, or local: side by side on this machine (as `gt-bench work`)")
    ] = "slurm",
    at_most: Annotated[
        int | None,
        typer.Option(
            help="jobs that run at once; slurm: 16; local: as many as cores and memory hold", show_default=False
        ),
    ] = None,
    plan: Plan = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="show what would be submitted, and end")] = False,
) -> None:
    """Submits every missing run to a cluster and follows it (docs/cluster.md). Stopped and started again, it submits only what is still missing.
    Exits 1 where something is left."""
    from gt_bench.config.grid import load_grid
    from gt_bench.config.schema import RecipeError
    from gt_bench.scheduling.local_queue import work as run_queue
    from gt_bench.scheduling.plan_file import entries_of
    from gt_bench.scheduling.slurm import Slurm
    from gt_bench.scheduling.slurm_sweep import AT_MOST, show_dry_run
    from gt_bench.scheduling.slurm_sweep import sweep as submit

    if cluster not in ("slurm", "local"):
        raise RecipeError(f"--cluster {cluster}: expected slurm or local")
    if at_most is not None and at_most < 1:
        raise RecipeError(f"--at-most {at_most}: give how many jobs run at once, 1 or more")
    if not names and plan is None:
        raise RecipeError("a sweep of nothing: name suites or cells, or give --plan; `gt-bench list` shows all")
    grid = load_grid()
    entries = entries_of(names or [], plan, grid)
    if dry:
        show_dry_run(entries, grid)
    elif not (
        run_queue(entries, grid, jobs=at_most)
        if cluster == "local"
        else submit(entries, grid, Slurm(Path("store/sweep")), at_most or AT_MOST)
    ):
        raise typer.Exit(1)


def tune(cell: CellName) -> None:
    """The search of one cell, continued where it was."""
    from gt_bench.experiment.cell import say_notes
    from gt_bench.pipeline.tune import tune_cell

    grid = every_cell()
    found = grid.find(cell)
    say_notes([found])
    tune_cell(found, grid)


def forecast(
    names: Names = None,
    seconds: Annotated[float, typer.Option(min=0, help="spent on timed steps of each phase of a cell")] = 3.0,
    report: Annotated[
        bool, typer.Option(help="as Markdown, with the median error over cells that were run here")
    ] = False,
) -> None:
    """Hours, memory and disk of cells on this device, from a few steps of each; beside what they took, where they were run here. Exits 1 where no
    cell has a forecast."""
    from gt_bench.forecasting.estimate import forecast as forecast_cells
    from gt_bench.forecasting.report import markdown, show

    grid = every_cell()
    found = forecast_cells(
        grid.chosen(names or []), grid, budget=seconds, say=lambda line: print_text(line, file=sys.stderr, flush=True)
    )
    if report:
        print_text(markdown(found), end="")
    else:
        show(found)
    if all(one.problem for one in found):
        raise typer.Exit(1)


def reproduce(suite: Annotated[str, typer.Argument(metavar="SUITE", help="`gt-bench list` has them")]) -> None:
    """The whole chain of a suite with DVC, from download to leaderboard; the same as `make reproduce SUITE=...`."""
    from gt_bench.scheduling.reproduce import main

    if status := main([suite]):
        raise typer.Exit(status)
