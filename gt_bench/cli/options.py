"""Arguments and options that several commands have.

A module of this package imports only typer; what a command needs is imported when it runs.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from gt_bench.config.grid import Grid
    from gt_bench.config.search_section import SearchMethod
    from gt_bench.plugins.data_options import DataOptions

CellName = Annotated[str, typer.Argument(metavar="CELL", help="SUITE/DATASET/ROW; `gt-bench list` shows them")]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="SUITE|CELL", help="suites and cells (SUITE/DATASET/ROW); default: all"),
]
Paper = Annotated[
    str | None, typer.Argument(metavar="SUITE", help="a suite with published numbers, such as hot; default: all")
]
Records = Annotated[Path, typer.Option(metavar="FOLDER", help="folder of suites with shipped records")]
Trust = Annotated[bool, typer.Option("--trust", help="run the checks.py of suites that are not the benchmark's")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON (docs/json.md)")]
RECORDS = Path("suites")


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search, of several commands; names are those of `search:` in a recipe (docs/search.md)."""

    sampler: Annotated[
        str | None, typer.Option(metavar="NAME", help="of the search: tpe, random, grid, gp, cmaes, nsga2, nsga3, qmc")
    ] = None
    sampler_option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="argument of the sampler: n_startup_trials=5")
    ] = None
    pruner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="of the search: none, median, percentile, hyperband, successive_halving, threshold"
        ),
    ] = None
    pruner_option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="argument of the pruner: reduction_factor=2")
    ] = None
    objective: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="besides validation: parameters or seconds_per_epoch, which are minimised"),
    ] = None
    select_within: Annotated[
        float | None,
        typer.Option(
            metavar="FRACTION", help="with --objective: the cheapest trial this close to the best validation value"
        ),
    ] = None
    warm_start: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="first trials of the search: defaults, records, neighbours"),
    ] = None
    search_seeds: Annotated[
        str | None, typer.Option(metavar="SEEDS", help="of each trial, whose value is their mean: 0-2; default: 0")
    ] = None

    def method(self) -> "SearchMethod":
        """Return the keys of `search:` that are given.

        Raises:
            OptionError, RecipeError: an option is invalid.
        """
        from gt_bench.config.search_options import method_in

        return method_in(**vars(self))


@dataclass(frozen=True)
class UserDataOptions:
    """Options that describe user-supplied data."""

    task: Annotated[
        str | None,
        typer.Option(
            metavar="TASK", help="of user-supplied data: node-classification, graph-regression, link-prediction, ..."
        ),
    ] = None
    metric: Annotated[
        str | None,
        typer.Option(metavar="METRIC", help="of user-supplied data: accuracy, mae, ..., or path/to/file.py:function"),
    ] = None
    undirected: Annotated[
        bool | None,
        typer.Option(
            "--undirected/--directed", help="of user-supplied data: add the reverse of each edge where it is missing"
        ),
    ] = None
    split: Annotated[
        str | None,
        typer.Option(
            metavar="SPLIT",
            help="of user-supplied data: random:0.6,0.2,0.2, temporal:COLUMN, grouped:COLUMN, k-fold:10 "
            "(docs/add_a_dataset.md)",
        ),
    ] = None
    inductive: Annotated[
        bool | None,
        typer.Option(
            "--inductive/--transductive",
            help="of user-supplied data: training sees neither validation nor test nodes",
        ),
    ] = None

    def stated(self) -> "DataOptions":
        """Return what the options state about the data.

        Raises:
            DatasetError, RecipeError: an option is invalid.
        """
        from gt_bench.plugins.data_options import DataOptions

        return DataOptions.parsed(vars(self))


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command whose type is a dataclass of options by the fields of the dataclass."""
    groups: dict[str, Any] = {name: kind for name, kind in get_type_hints(command).items() if is_dataclass(kind)}
    parameters, annotations = [], {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        for one in (
            inspect.signature(groups[name], eval_str=True).parameters.values() if name in groups else [parameter]
        ):
            parameters.append(one.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            annotations[one.name] = one.annotation

    @functools.wraps(command)
    def expanded(**values: Any) -> None:
        for name, kind in groups.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        command(**values)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = annotations
    return expanded


def every_cell() -> "Grid":
    """Return the grid with the cells that `gt-bench try` made.

    Raises:
        RecipeError: params.yaml, grid.yaml or a recipe is invalid.
    """
    from gt_bench.config.grid import load_grid
    from gt_bench.config.tried import with_tried

    return with_tried(load_grid())
