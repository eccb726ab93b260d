"""Cache of what was computed about a shipped file: its rows, and whether they are stale.

An entry is computed again only after one of its inputs has changed.

    .golden/shipped/SUITE-DATASET-ROW.json    next to the package, for files that are shipped with it

Inputs are compared by size and time of files: the shipped file, the code, recipes and published numbers of the
benchmark, and what this folder has of the dataset.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, cast

from gt_bench.config.grid import Cell, Grid
from gt_bench.records.state import CellState
from gt_bench.schemas import Json, Row
from gt_bench.utils.code_digest import ROOT
from gt_bench.utils.digest import digest_of
from gt_bench.utils.io import WriteError, write_json
from gt_bench.utils.paths import INSTALLED

FOLDER = INSTALLED / ".golden" / "shipped"
DECIDING = ("suites",)  # folders with data of the benchmark


class Known(NamedTuple):
    """Cached content of a valid shipped file: its rows without claims, and why it is stale."""

    rows: list[Row]
    stale: list[str]


def recall(path: Path, cell: Cell, grid: Grid) -> Known | None:
    """Returns the cached entry of the file as it is now; None if it must be computed."""
    if not _kept(path):
        return None
    try:
        content = json.loads(_file_of(cell).read_text(encoding="utf-8"))
        if content["key"] != _key(path, cell, grid):
            return None
        rows = [row | {"state": CellState.model_validate(row["state"])} for row in content["rows"]]
        return Known(rows, content["stale"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(path: Path, cell: Cell, grid: Grid, known: Known) -> None:
    """Writes the entry to the cache."""
    if _kept(path):
        content = {"key": _key(path, cell, grid), "rows": known.rows, "stale": known.stale}
        with contextlib.suppress(WriteError):  # an installed package may be read-only
            write_json(_file_of(cell), cast(Json, content))


def _kept(path: Path) -> bool:
    return path.resolve().is_relative_to(INSTALLED)


def _file_of(cell: Cell) -> Path:
    return FOLDER / f"{cell.key}.json"


def _key(path: Path, cell: Cell, grid: Grid) -> str:
    encodings = Path("data", "encodings", cell.dataset)
    local = [Path("data", "packed", cell.dataset, "header.json"), Path("datasets.yaml"), cell.recipe_path, encodings]
    local += sorted(encodings.glob("*")) if encodings.is_dir() else []
    stamps = [_stamp(file) for file in (path, *local)]
    return digest_of([benchmark_stamp(), stamps, cell.model_dump(), grid.run.verdict.model_dump()])


@cache
def benchmark_stamp() -> str:
    """Returns a digest of names, sizes and times of all files that decide rows, as of the first call in a process."""
    return digest_of(sorted(_stamps([ROOT / "gt_bench", ROOT / "gt_models", *(INSTALLED / name for name in DECIDING)])))


def _stamps(folders: Iterable[Path]) -> Iterator[list[str | int]]:
    for folder in folders:
        for place, names, files in os.walk(folder):
            names[:] = [name for name in names if name != "__pycache__"]
            for name in files:
                yield _stamp(Path(place, name))


def _stamp(path: Path) -> list[str | int]:
    try:
        stat = path.stat()
    except OSError:
        return [str(path)]
    return [str(path), stat.st_size, stat.st_mtime_ns]
