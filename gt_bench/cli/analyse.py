"""Compare and judge: questions to all results at once."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from gt_bench.cli.options import RECORDS, AsJson, Records, every_cell, listed
from gt_bench.utils.format import print_json, print_text


def rank(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="SUITE|CELL", help="suites and cells; all if none is named")
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset", "--datasets", metavar="DATASET", help="only these datasets; comma-separated or repeated"
        ),
    ] = None,
    models: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="only these models; comma-separated or repeated")
    ] = None,
    source: Annotated[
        Literal["runs", "own", "shipped", "published", "all"],
        typer.Option(
            help="runs: own results, shipped ones where they are missing; all: published numbers where both are missing"
        ),
    ] = "runs",
    missing: Annotated[
        Literal["pairs", "worst"],
        typer.Option(help="pairs: compare where both have a result; worst: a missing result loses"),
    ] = "pairs",
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK", help="only datasets of this task, such as node-classification or regression"),
    ] = None,
    nodes: Annotated[str | None, typer.Option(metavar="LOW..HIGH", help="mean number of nodes per graph")] = None,
    graphs: Annotated[str | None, typer.Option(metavar="LOW..HIGH", help="number of graphs")] = None,
    homophily: Annotated[
        str | None, typer.Option(metavar="LOW..HIGH", help="class homophily (Lim et al. 2021) of the packed data")
    ] = None,
    parameters_max: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="only results with at most this many")
    ] = None,
    at_least: Annotated[
        int, typer.Option(metavar="N", min=1, help="only models with results on at least this many datasets")
    ] = 2,
    metric: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="only this metric; by default, of each dataset that of most models"),
    ] = None,
    draws: Annotated[int, typer.Option(metavar="N", min=50, help="draws of the bootstrap")] = 200,
    records: Records = RECORDS,
    as_json: AsJson = False,
) -> None:
    """Rank models over datasets: Bradley-Terry strengths, win rates, average ranks with their critical difference."""
    from gt_bench.analysis import rank as ranking
    from gt_bench.analysis import rank_text
    from gt_bench.analysis.dataset_numbers import chosen, entries
    from gt_bench.analysis.datasets import Filter, range_in
    from gt_bench.config.option_text import OptionError
    from gt_bench.config.schema import RecipeError, nearest

    grid = every_cell()
    cells = grid.chosen(names or [])
    datasets = listed(dataset)
    known = list(dict.fromkeys(cell.dataset for cell in cells))
    for name in datasets:
        if name not in known:
            problem = f"no cell {'of ' + ', '.join(names) + ' ' if names else ''}has this dataset{nearest(name, known)}"
            raise OptionError(problem, place="--dataset", value=name, remedy="`gt-bench list` shows the cells")
    accepts = Filter(
        datasets,
        task or (),
        nodes=range_in("--nodes", nodes),
        graphs=range_in("--graphs", graphs),
        homophily=range_in("--homophily", homophily),
    )
    if parameters_max is not None and source == "published":
        problem = "published numbers have no number of parameters"
        raise OptionError(problem, place="--parameters-max", value=parameters_max, remedy="use --source runs")
    numbers, problems = entries(grid, cells, accepts, source, records)
    for problem in problems:
        print_text(problem, file=sys.stderr)
    kept, remarks = chosen(numbers, listed(models), parameters_max)
    reasons = dict.fromkeys(accepts.unknown.values())
    remarks += [
        f"datasets left out, {why}: {', '.join(name for name, its in accepts.unknown.items() if its == why)}"
        for why in reasons
    ]
    try:
        result = ranking.rank(kept, missing, draws, grid.run.verdict.level, at_least, metric)
    except RecipeError as error:
        remedy = "\n".join([error.remedy, *remarks])
        raise RecipeError(error.problem, place=error.place, remedy=remedy) from None
    if as_json:
        print_json(rank_text.as_json(result, source, remarks))
    else:
        rank_text.show(result, source, remarks, grid.run.verdict.level)


def ablate(
    factor: Annotated[
        str | None,
        typer.Argument(
            metavar="FACTOR",
            help="a dotted key of recipes, such as model.dropout or encodings.rrwp; without it: a list",
        ),
    ] = None,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="SUITE|CELL", help="suites and cells; all if none is named")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="write a forest plot: .png, .svg or .pdf")] = None,
    design: Annotated[
        Literal["one-at-a-time", "random"] | None,
        typer.Option(help="write recipes of new cells: CELLs with each of --values, or in random recipes"),
    ] = None,
    values: Annotated[str | None, typer.Option(metavar="VALUES", help="of the factor: 0.0,0.25,0.5")] = None,
    over: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUES", help="drawn at random: model.num_layers=2,4,8")
    ] = None,
    draws: Annotated[int, typer.Option(metavar="N", min=1, help="of a random design, per CELL")] = 5,
    seed: Annotated[int, typer.Option(metavar="N", help="of a random design")] = 0,
    into: Annotated[str, typer.Option(metavar="SUITE", help="suite of the new cells")] = "ablation",
    records: Records = RECORDS,
    as_json: AsJson = False,
) -> None:
    """Show the effect of one recipe value or encoding, over pairs of cells that differ in nothing else.

    Uses own and shipped records. Nothing is computed. With --design, write the cells that such pairs need instead.
    """
    from gt_bench.analysis.ablate import show
    from gt_bench.config.option_text import OptionError

    grid = every_cell()
    if design is not None:
        from gt_bench.suites.ablation_design import design as make

        if not (factor and names and values):
            problem = "expected a factor, the cells whose recipes are varied, and --values"
            raise OptionError(problem, place="--design", value=design)
        for line in make(factor, grid.chosen(names), design, values, over or [], draws, seed, into):
            print_text(line)
        return
    if given := [option for option, value in (("--values", values), ("--over", over)) if value]:
        remedy = "add --design one-at-a-time or --design random"
        raise OptionError("is given and no design", place=given[0], remedy=remedy)
    for problem in show(factor, grid, grid.chosen(names or []), plot, as_json, records):
        print_text(problem, file=sys.stderr)


def match(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="a name, or path/to/file.py:MyModel")],
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="a name; the data need not be on disk")],
    parameters: Annotated[str, typer.Option(metavar="N", help="the budget: 500k, 1.5M or 500000")],
    by: Annotated[
        str | None, typer.Option(metavar="ARGUMENT", help="the argument that is chosen; the width if not given")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="of the recipe: model.num_layers=4")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the width at which a model has a number of parameters on a dataset, and print the lines for a recipe.

    The width is a multiple of the number of heads.
    """
    from gt_bench.api.names import check_names

    check_names(model, dataset)
    from gt_bench.api.match import show  # loads torch

    show(model, dataset, parameters, by, set_ or [], as_json)
