"""Arguments and options that several commands take. A module of this package loads typer alone: the rooms behind a command are imported when it runs."""

from pathlib import Path
from typing import Annotated

import typer

CellName = Annotated[str, typer.Argument(metavar="CELL", help="suite/dataset/row; `gt-bench list` has them")]
Names = Annotated[
    list[str] | None, typer.Argument(help="suites and cells (suite/dataset/row); all where none is named")
]
Paper = Annotated[
    str | None,
    typer.Argument(metavar="PAPER", help="a suite with published numbers, such as hot; all where none is named"),
]
Plan = Annotated[
    Path | None, typer.Option(help="YAML: what to run, entry after entry (gt_bench/scheduling/plan_file.py)")
]
Records = Annotated[Path, typer.Option(help="folder of suites whose shipped records are meant")]
AsJson = Annotated[bool, typer.Option("--json", help="the same as JSON, for programs")]
RECORDS = Path("suites")
