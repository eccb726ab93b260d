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
