"""Helpers of tests of records: train, export and change a cell."""

import gzip
import json
from pathlib import Path

from typer.testing import CliRunner

from gt_bench.cli import app
from gt_bench.config.grid import load_grid
from gt_bench.data.packed import PackedHeader
from gt_bench.data.packed_writer import write_header
from gt_bench.pipeline.train import train_cell
from gt_bench.provenance.transfer import export_cell
from gt_bench.utils.digest import digest_of

CELL = "small/web/mlp"


def edit_header(**changes):
    """Change the header of the packed `web`."""
    folder = Path("data/packed/web")
    write_header(
        folder, PackedHeader.model_validate_json((folder / "header.json").read_bytes()).model_copy(update=changes)
    )


def train():
    """Train CELL with the current grid."""
    grid = load_grid()
    return train_cell(grid.find(CELL), grid)


def export(**options) -> Path:
    """Export CELL."""
    return export_cell(load_grid().find(CELL), **options)


def rewrite(path: Path, change) -> None:
    """Apply `change` to the content of an exported file."""
    content = json.loads(gzip.decompress(path.read_bytes()))
    change(content)
    path.write_bytes(gzip.compress(json.dumps(content).encode()))


def resealed(record: dict) -> dict:
    """The content of an edited record with the checksum of its new numbers."""
    return record | {"checksum": digest_of(record["deterministic"])}


def run(*arguments: str):
    """Run `gt-bench` with these arguments."""
    return CliRunner().invoke(app.app, list(arguments))


def in_first(change):
    """A change of the first record, for `rewrite`."""

    def applied(content):
        change(content["records"][0])

    return applied
