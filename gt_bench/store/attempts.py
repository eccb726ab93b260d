"""History of a cell: each result that training wrote is an attempt, identified by its runs.

    store/cells/<suite>/<dataset>/<row>.jsonl     one result per line, in order of time

The current result is in results/<cell>.json. An attempt whose runs are a subset of those of a later attempt, for
example one with more seeds, is part of the later one.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gt_bench.records.cell import CellResult
from gt_bench.records.run import RunRecord
from gt_bench.store.run_store import Store, StoreError
from gt_bench.utils.digest import digest_of
from gt_bench.utils.io import read_bytes, read_text, write_bytes


def attempt_id(result: CellResult) -> str:
    """Returns the digest of an attempt's runs, in any order."""
    return digest_of(sorted(result.runs))


def remember(result: CellResult, store: Store) -> None:
    """Appends a result with runs to its cell's attempts, unless the last attempt is the same.

    A damaged file is renamed first.

    Raises:
        WriteError: the file cannot be written.
    """
    path = _path(result.cell, store)
    try:
        _read(path)
        content = read_bytes(path) if path.exists() else b""
    except _DAMAGED as error:
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        path.rename(aside)
        print(
            f"{path}: not a list of attempts ({error}); renamed to {aside.name}, a new list is started",
            file=sys.stderr,
            flush=True,
        )
        content = b""
    line = (json.dumps(result.to_disk()) + "\n").encode()
    if result.runs and not content.endswith(b"\n" + line) and content != line:
        write_bytes(path, content + line)


def attempts(cell: str, store: Store) -> list[CellResult]:
    """Returns the attempts of a cell, oldest first, each in its last version.

    Raises:
        StoreError: the file is damaged.
    """
    path = _path(cell, store)
    try:
        found: list[CellResult] = []
        for result in reversed(_read(path)):
            if not any(set(result.runs) <= set(later.runs) for later in found):
                found.append(result)
    except _DAMAGED as error:
        remedy = "delete it: the records remain, and the next training starts a new list"
        raise StoreError(f"not a list of attempts ({error})", file=path, remedy=remedy) from None
    return found[::-1]


_DAMAGED = (ValueError, RecursionError)


def _read(path: Path) -> list[CellResult]:
    """Reads all results of a file. Raises one of `_DAMAGED` if it is not a list of attempts."""
    text = read_text(path) if path.exists() else ""
    if text and not text.endswith("\n"):
        raise ValueError("its last line is cut off")
    return [CellResult.from_disk(json.loads(line)) for line in text.splitlines()]


def superseded(result: CellResult, store: Store) -> list[tuple[CellResult, list[RunRecord]]]:
    """Returns the attempts of a cell before its current result, each with its records that are in the store.

    Raises:
        StoreError: the list of attempts or a record is damaged.
    """
    earlier = [one for one in attempts(result.cell, store) if not set(one.runs) <= set(result.runs)]
    found = [(one, records_of(one, store)) for one in earlier]
    return [(one, records) for one, records in found if records]


def records_of(result: CellResult, store: Store) -> list[RunRecord]:
    """Returns the records of a result that are in the store.

    Raises:
        StoreError: a record is damaged.
    """
    return [record for digest in result.runs if (record := store.get(digest))]


def when(records: Sequence[RunRecord]) -> str:
    """Returns the minute in which the last of these runs ended, in UTC: "2026-11-20 10:05"."""
    return max(record.measured.finished for record in records)[:16].replace("T", " ")


def _path(cell: str, store: Store) -> Path:
    return store.root / "cells" / f"{cell}.jsonl"
