"""Shipped records: one file per cell, and the results of cells. Reading, writing and validation of the files.

    suites/SUITE/records/DATASET/ROW.json.gz    {"schema", "result", "records", "trials", "origins"}

Equal records produce equal bytes. `trials` are the runs of a cell's search. After an import, the search is repeated
from them without training. `origins` are digests of the dataset's spec and of each encoding's algorithm, which can be
compared if the data are not available.
"""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from gt_bench.config.grid import Grid
from gt_bench.records.base import FileModel
from gt_bench.records.cell import CellResult, Origins
from gt_bench.records.run import RunRecord, Verification
from gt_bench.store.record_checks import is_trial, record_problems
from gt_bench.store.run_store import SCHEMA, StoreError
from gt_bench.utils.io import read_bytes, read_text, write_bytes
from gt_bench.utils.paths import INSTALLED, SUITES, is_project, packaged_suites, place, record_file

Model = TypeVar("Model", bound=FileModel)
ROOT = SUITES
KEYS = {"schema", "result", "origins", "records", "trials"}
MAX_BYTES = 1 << 29  # size of a file after decompression


@dataclass(frozen=True)
class Shipped:
    """Content of one file.

    Attributes:
        path: the file.
        result: the result of the cell.
        records: its records, in the order of `result["runs"]`.
        origins: digests of the sources of data and encodings.
        trials: records of its search.
    """

    path: Path
    result: CellResult
    records: list[RunRecord]
    origins: Origins = field(default_factory=Origins)
    trials: list[RunRecord] = field(default_factory=list)

    @property
    def cell(self) -> str:
        """Name of the cell, suite/dataset/row."""
        return self.result.cell


def read(path: Path) -> Shipped:
    """Reads a shipped file.

    Raises:
        StoreError: the file is missing or damaged.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(read_bytes(path))) as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes after decompression")
        content = json.loads(text)
        if content["schema"] != SCHEMA:
            remedy = "export it again with this version of the benchmark"
            if type(content["schema"]) is int and content["schema"] > SCHEMA:
                remedy = "it was written by a newer version of the benchmark: update this one"
            problem = f"has schema {content['schema']!r:.80}, but this code reads schema {SCHEMA}"
            raise StoreError(problem, file=path, value=content["schema"], remedy=remedy)
        if unknown := sorted(content.keys() - KEYS):
            raise ValueError(f"unknown key {', '.join(unknown)}")
        return Shipped(
            path,
            _part(CellResult, "result", content["result"]),
            [_part(RunRecord, f"record {n}", one) for n, one in enumerate(content["records"])],
            _part(Origins, "origins", content["origins"]),
            [_part(RunRecord, f"trial {n}", one) for n, one in enumerate(content["trials"])],
        )
    except (OSError, EOFError, zlib.error, RecursionError, ValueError, KeyError, TypeError) as error:
        remedy = f"restore the file (`git checkout {path}`) or export it again"
        raise StoreError(f"not an export of records ({error})", file=path, remedy=remedy) from None


def _part(kind: type[Model], name: str, content: object) -> Model:
    try:
        return kind.from_disk(content)
    except ValueError as error:
        raise ValueError(f"its {name}: {error}") from None


def write(shipped: Shipped) -> Path:
    """Writes a shipped file.

    Returns:
        The file.

    Raises:
        WriteError: the file cannot be written.
    """
    content = {
        "schema": SCHEMA,
        "result": shipped.result.to_disk(),
        "records": [record.to_disk() for record in shipped.records],
        "origins": shipped.origins.to_disk(),
        "trials": [record.to_disk() for record in shipped.trials],
    }
    # without name and time, so that equal records produce equal bytes
    file = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=9, mtime=0) as packed:
        packed.write((json.dumps(content, separators=(",", ":"), sort_keys=True, allow_nan=True) + "\n").encode())
    return write_bytes(shipped.path, file.getvalue())


def file_of(cell: str, root: Path = ROOT) -> Path:
    """Returns the shipped file of a cell, which need not exist.

    Outside of a project, it is the installed file if `root` has none. Files are always written below `root`.
    """
    return place(record_file(cell, root))


def check_folder(root: Path) -> None:
    """Checks that a folder of shipped records exists.

    Raises:
        StoreError: it does not.
    """
    if not place(root).is_dir():
        remedy = "use --records with the folder that contains SUITE/records/DATASET/ROW.json.gz"
        raise StoreError("folder of shipped records not found", file=root, remedy=remedy)


def shipped_paths(grid: Grid, names: Sequence[str] = (), root: Path = ROOT) -> list[Path]:
    """Finds shipped files.

    Args:
        grid: the grid, in which names are looked up.
        names: suites and cells. All files, ordered by path, if empty.
        root: folder of shipped records.

    Raises:
        StoreError: the folder does not exist.
    """
    check_folder(root)
    if not names:
        folders = [root] if is_project() else [root, INSTALLED / root]
        found = {path.relative_to(folder) for folder in folders for path in folder.glob("*/records/*/*.json.gz")}
        if root == ROOT:
            found |= {
                Path(suite, path.relative_to(folder))
                for suite, folder in packaged_suites().items()
                for path in folder.glob("records/*/*.json.gz")
            }
        return [place(root / path) for path in sorted(found)]
    return [path for cell in grid.chosen(names) if (path := file_of(cell.cell, root)).exists()]


def shipped_cells(grid: Grid, names: Sequence[str] = (), root: Path = ROOT) -> Iterator[Shipped]:
    """Reads the files that `shipped_paths` returns.

    Raises:
        StoreError: a file is damaged. Raised when the iteration reaches it.
    """
    yield from (read(path) for path in shipped_paths(grid, names, root))


def read_result(path: Path, cell: str) -> CellResult | None:
    """Reads the result of a cell.

    Returns:
        The result, or None if the cell has not been trained.

    Raises:
        StoreError: the file is damaged, or the result of another cell.
    """
    try:
        result = CellResult.from_disk(json.loads(read_text(path)))
        if result.cell != cell:
            raise ValueError(f"it is the result of {result.cell}")
        return result
    except FileNotFoundError:
        return None
    except (OSError, RecursionError, ValueError) as error:
        remedy = f"delete it and run: python -m stages.train {cell}"
        raise StoreError(f"not a result ({error})", file=path, remedy=remedy) from None


def contribution_of(records: Sequence[RunRecord]) -> str | None:
    """Returns who contributed records and what was verified, as text; None if all were computed by the maintainers."""
    marked = [record for record in records if record.verified]
    if not marked:
        return None
    names = list(dict.fromkeys(record.by or "name not stated" for record in marked))
    done = [str(record.run.seed) for record in marked if record.verified == Verification.RECOMPUTED]
    verified: str = Verification.SCHEMA_ONLY
    if done:
        verified = (
            Verification.RECOMPUTED if len(done) == len(marked) else f"seed {', '.join(done)} {Verification.RECOMPUTED}"
        )
    part = "" if len(marked) == len(records) else f" ({len(marked)} of {len(records)} runs)"
    return f"contributed by {', '.join(names)}{part}; verified: {verified}"


def problems_of(shipped: Shipped, root: Path = ROOT) -> list[str]:
    """Returns what is wrong with a shipped file, one line each: its records, their order and number, its name.

    Args:
        shipped: content of the file.
        root: folder of shipped records.
    """
    cell, where = shipped.cell, shipped.path
    wrong = [f"{where}: {line}" for line in content_problems(shipped)]
    if where not in (record_file(cell, root), file_of(cell, root)):
        wrong.append(f"{where}: is the file of {cell}")
    return wrong


def content_problems(shipped: Shipped, problems: Callable[[RunRecord], list[str]] = record_problems) -> list[str]:
    """Returns what is wrong with the content of a file.

    Args:
        shipped: content of the file.
        problems: what is wrong with one record.
    """
    result = shipped.result
    if not shipped.records:
        return ["contains no record"]
    parts = (("record", shipped.records), ("trial", shipped.trials))
    wrong = [
        f"{what} {n}: {line}" for what, held in parts for n, record in enumerate(held) for line in problems(record)
    ]
    if wrong:
        return wrong
    wrong = [f"record {n}: is a search trial" for n, record in enumerate(shipped.records) if is_trial(record)]
    wrong += [f"trial {n}: is not a search trial" for n, record in enumerate(shipped.trials) if not is_trial(record)]
    digests = [r.digest for r in shipped.records]
    seeds = [r.run.seed for r in shipped.records]
    if digests != list(result.runs):
        wrong.append("its records are not the runs that its result lists")
    repeated = sorted({s for s in seeds if seeds.count(s) > 1})
    if repeated or len(set(digests)) < len(digests):
        wrong.append(f"duplicate seed {', '.join(map(str, repeated))}")
    runs = [record.run for record in (*shipped.records, *shipped.trials)]
    if any(run.dataset != result.dataset for run in runs):
        wrong.append("a record is of another dataset")
    if any((run.metric, run.direction) != (result.metric, result.direction) for run in runs):
        wrong.append("a record has another metric than its result")
    return wrong
