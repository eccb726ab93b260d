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
    from gt_bench.data.custom.description import Description

CellName = Annotated[str, typer.Argument(metavar="CELL", help="SUITE/DATASET/ROW; `gt-bench list` shows them")]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="SUITE|CELL", help="suites, SUITE/DATASET or cells SUITE/DATASET/ROW; default: all"),
]
Paper = Annotated[
    str | None, typer.Argument(metavar="SUITE", help="a suite with published numbers, such as hot; default: all")
]
Records = Annotated[Path, typer.Option(metavar="FOLDER", help="folder of suites with shipped records")]
Trust = Annotated[bool, typer.Option("--trust", help="run the checks.py of suites that are not the benchmark's")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON (docs/json_output.md)")]
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


def _of_data(*names: str, **settings: Any) -> Any:
    """Return `typer.Option` in the panel of options of user-supplied data."""
    return typer.Option(*names, rich_help_panel="User-supplied data (docs/own_data.md)", **settings)


@dataclass(frozen=True)
class UserDataOptions:
    """What is declared about user-supplied data; names are those of data.yaml."""

    task: Annotated[
        str | None, _of_data(metavar="TASK", help="node-classification, graph-regression, link-prediction, ...")
    ] = None
    metric: Annotated[
        str | None, _of_data(metavar="METRIC", help="accuracy, mae, ..., or path/to/file.py:function")
    ] = None
    target: Annotated[
        str | None, _of_data(metavar="COLUMN,...", help="the column with the targets, or several columns of numbers")
    ] = None
    id: Annotated[
        str | None, _of_data(metavar="COLUMN", help="of nodes: identifies the rows; edges name them by it")
    ] = None
    graph: Annotated[str | None, _of_data(metavar="COLUMN", help="names the graph of a row, in each table")] = None
    ends: Annotated[
        str | None, _of_data(metavar="COLUMN,COLUMN", help="of edges: their two nodes, instead of source and target")
    ] = None
    weight: Annotated[str | None, _of_data(metavar="COLUMN", help="of edges: their weight")] = None
    time: Annotated[str | None, _of_data(metavar="COLUMN", help="the times of --split temporal")] = None
    group: Annotated[str | None, _of_data(metavar="COLUMN", help="the groups of --split grouped")] = None
    categories: Annotated[
        str | None, _of_data(metavar="COLUMN,...", help="features that are categories although they are numbers")
    ] = None
    numbers: Annotated[
        str | None,
        _of_data(metavar="COLUMN,...", help="features that are quantities although they look like identifiers"),
    ] = None
    drop: Annotated[
        str | None, _of_data(metavar="COLUMN,...", help="columns, or attributes of a Data, that are not used")
    ] = None
    sep: Annotated[str | None, _of_data(metavar="CHARACTER", help="separator of CSV files: ; or tab")] = None
    decimal: Annotated[str | None, _of_data(metavar="CHARACTER", help="decimal mark of CSV files")] = None
    thousands: Annotated[str | None, _of_data(metavar="CHARACTER", help="thousands separator of CSV files")] = None
    encoding: Annotated[str | None, _of_data(metavar="NAME", help="encoding of CSV files: latin-1, utf-16, ...")] = None
    missing: Annotated[
        str | None,
        _of_data(metavar="WORD,...", help="cells of CSV files that mean a missing value, instead of NA, nan, ..."),
    ] = None
    undirected: Annotated[
        bool | None,
        _of_data("--undirected/--directed", help="whether the reverse of each edge is added where it is missing"),
    ] = None
    first_id: Annotated[
        int | None, _of_data(metavar="0|1", help="the number of the first node, where edges name nodes by number")
    ] = None
    isolated: Annotated[
        bool | None, _of_data("--isolated/--no-isolated", help="it is meant that most nodes have no edge")
    ] = None
    bipartite: Annotated[
        bool | None,
        _of_data(
            "--bipartite/--no-bipartite", help="of link prediction: whether negatives join the two sides of the graph"
        ),
    ] = None
    negatives: Annotated[
        int | None, _of_data(metavar="N", help="of link prediction: negatives per edge on validation and test")
    ] = None
    split: Annotated[
        str | None,
        _of_data(
            metavar="SPLIT", help="random:0.6,0.2,0.2, temporal:COLUMN, grouped:COLUMN, k-fold:10 (docs/own_data.md)"
        ),
    ] = None
    num_splits: Annotated[int | None, _of_data(metavar="N", help="number of random or grouped splits")] = None
    inductive: Annotated[
        bool | None,
        _of_data("--inductive/--transductive", help="whether training sees neither validation nor test nodes"),
    ] = None

    def stated(self) -> "Description":
        """Return what the options declare about the data.

        Raises:
            DatasetError, RecipeError: an option is invalid.
        """
        from gt_bench.data.custom.description import Description

        return Description.parsed(vars(self), "options of the data")


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


def listed(values: list[str] | None) -> list[str]:
    """Return names that are repeated or separated by commas, each once."""
    names = [name.strip() for value in values or () for name in value.split(",") if name.strip()]
    return list(dict.fromkeys(names))
