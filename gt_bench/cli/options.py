"""Arguments and options that several commands have.

A module of this package imports only typer; what a command needs is imported when it runs.
"""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gt_bench.config.grid import Grid
    from gt_bench.config.search_space import SearchMethod

CellName = Annotated[str, typer.Argument(metavar="CELL", help="SUITE/DATASET/ROW; `gt-bench list` shows them")]
Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="SUITE|CELL", help="suites and cells (SUITE/DATASET/ROW); default: all"),
]
Paper = Annotated[
    str | None, typer.Argument(metavar="SUITE", help="a suite with published numbers, such as hot; default: all")
]
Plan = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="YAML: what to run, entry by entry (gt_bench/scheduling/plan_file.py)"),
]
Records = Annotated[Path, typer.Option(metavar="FOLDER", help="folder of suites with shipped records")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON (docs/json.md)")]
RECORDS = Path("suites")
# of a search; names are those of `search:` in a recipe (docs/search.md)
Sampler = Annotated[
    str | None, typer.Option(metavar="NAME", help="of the search: tpe, random, grid, gp, cmaes, nsga2, nsga3, qmc")
]
SamplerOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="argument of the sampler: n_startup_trials=5")
]
Pruner = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="of the search: none, median, percentile, hyperband, successive_halving, threshold"
    ),
]
PrunerOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="argument of the pruner: reduction_factor=2")
]
Objective = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="besides validation: parameters or seconds_per_epoch, which are minimised"),
]
SelectWithin = Annotated[
    float | None,
    typer.Option(
        metavar="FRACTION", help="with --objective: the cheapest trial this close to the best validation value"
    ),
]
WarmStart = Annotated[
    str | None,
    typer.Option(metavar="NAME,...", help="first trials of the search: defaults, records, neighbours"),
]
SearchSeeds = Annotated[
    str | None, typer.Option(metavar="SEEDS", help="of each trial, whose value is their mean: 0-2; default: 0")
]


def every_cell() -> "Grid":
    """Return the grid with the cells that `gt-bench try` made.

    Raises:
        RecipeError: params.yaml, grid.yaml or a recipe is invalid.
    """
    from gt_bench.config.grid import load_grid
    from gt_bench.config.tried import with_tried

    return with_tried(load_grid())


def print_json(content: object) -> None:
    """Print JSON as documented in docs/json.md."""
    print(json.dumps(_finite(content), indent=1, allow_nan=False))


def _finite(content: object) -> object:
    """Replace NaN and infinity by None: JSON has neither."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def search_method(
    sampler: str | None,
    sampler_option: list[str] | None,
    pruner: str | None,
    pruner_option: list[str] | None,
    objective: list[str] | None,
    select_within: float | None,
    warm_start: str | None,
    search_seeds: str | None,
) -> "SearchMethod":
    """Return the keys of `search:` that the options of a command give.

    Raises:
        RecipeError: an option is invalid.
        SettingError: seeds are invalid.
    """
    from gt_bench.config.search_options import method_in
    from gt_bench.plugins.default_recipes import seeds_in

    return method_in(
        sampler,
        sampler_option or (),
        pruner,
        pruner_option or (),
        objective or (),
        select_within,
        [name.strip() for name in warm_start.split(",")] if warm_start else (),
        seeds_in(search_seeds) if search_seeds else (),
    )
