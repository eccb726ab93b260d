"""Cache of what was computed about a shipped file: its rows, and whether they are stale.

Validating 600 records and computing the verdicts of 110 rows takes four seconds of each command that shows results.

    .golden/shipped/SUITE-DATASET-ROW.json    next to the package, for files that are shipped with it

Inputs are compared by size and time of files. Rows depend on the shipped file, gt_bench, recipes and published numbers
of the benchmark, and on what this folder has of the dataset; whether they are stale also on gt_models, and on the
comparisons of golden values that `gt-bench check` stores.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from gt_bench.config.grid import Cell, Grid
from gt_bench.leaderboard.row import Row
from gt_bench.records.state import Stale
from gt_bench.utils.code_digest import ROOT
from gt_bench.utils.digest import digest_of
from gt_bench.utils.io import WriteError, write_json
from gt_bench.utils.paths import INSTALLED

FOLDER = INSTALLED / ".golden" / "shipped"
DECIDING = ("suites",)  # folders with data of the benchmark


class Known(NamedTuple):
    """Cached content of a valid shipped file.

    Attributes:
        rows: its rows without claims.
        stale: why they are stale. None if that must be computed.
        unchecked: whether golden values must be compared to know it.
    """

    rows: list[Row]
    stale: list[Stale] | None
    unchecked: bool = False


def recall(path: Path, cell: Cell, grid: Grid) -> Known | None:
    """Returns the cached entry of the file as it is now; None if it must be computed."""
    if not _kept(path):
        return None
    try:
        content = json.loads(_file_of(cell).read_text(encoding="utf-8"))
        if content["key"] != _key(path, cell, grid):
            return None
        known = _known().validate_python(content["known"])
        return known if content["models"] == models_stamp() else Known(known.rows, None)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remember(path: Path, cell: Cell, grid: Grid, known: Known) -> None:
    """Writes the entry to the cache."""
    if _kept(path):
        key = {"key": _key(path, cell, grid), "models": models_stamp()}
        content = key | {"known": _known().dump_python(known, mode="json")}
        with contextlib.suppress(WriteError):  # an installed package may be read-only
            write_json(_file_of(cell), content)


@cache
def _known() -> TypeAdapter[Known]:
    return TypeAdapter(Known)


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
    return digest_of(sorted(_stamps([ROOT / "gt_bench", *(INSTALLED / name for name in DECIDING)])))


@cache
def models_stamp() -> str:
    """Returns the same of gt_models and of comparisons of golden values, which decide whether rows are stale."""
    compared = map(_stamp, (ROOT / ".golden").glob("[0-9a-f]*.json"))
    return digest_of(sorted([*_stamps([ROOT / "gt_models"]), *compared]))


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
