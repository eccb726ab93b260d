"""Look at data before anything is trained."""

from pathlib import Path
from typing import Annotated

import typer

from gt_bench.cli.options import AsJson, UserDataOptions, with_groups
from gt_bench.utils.format import print_json, print_text


@with_groups
def describe(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET", help="a name, a folder of CSV, an npz file, path/to/file.py:load, or pyg:Planetoid/Cora"
        ),
    ],
    *,
    write: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="write the data.yaml that declares what the table shows"),
    ] = None,
    data_options: UserDataOptions,
    as_json: AsJson = False,
) -> None:
    """Show how user-supplied data are read: each column with its role, type, values and missing cells."""
    from gt_bench.api.dataset_summary import described, summary, written

    header, reader = described(dataset, data_options.stated())
    if as_json:
        print_json({"dataset": header.name, "columns": header.provenance.get("columns", []), "notes": header.notes})
    else:
        print_text("\n".join([*summary(header), *(f"{header.name}: note: {note}" for note in header.notes)]))
    if write is not None:
        written(write, reader, header)
