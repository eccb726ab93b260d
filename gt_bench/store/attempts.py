"""What a cell was found to be, attempt after attempt: each result that training wrote, kept beside the records that it names.

    store/cells/<suite>/<dataset>/<row>.jsonl     a result a line, in order of time; results/<cell>.json is the current one

An attempt is known by its runs. One whose runs are all among those of a later one (more seeds, say) is part of that one.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gt_bench.config.recipe import digest_of
from gt_bench.schemas import Record, Result
from gt_bench.store.archive import result_problems
from gt_bench.store.run_store import Store, StoreError
from gt_bench.utils.io import read_bytes, read_text, write_bytes


def attempt_id(result: Result) -> str:
    """What an attempt is known by: the digest of its runs, whatever their order."""
    return digest_of(sorted(result["runs"]))


def remember(result: Result, store: Store) -> None:
    """Adds a result with runs to its cell's attempts, unless the last one is the same; a file that is no list of attempts is set aside first.
    Raises WriteError."""
    path = _path(result["cell"], store)
    try:
        _read(path)
        held = read_bytes(path) if path.exists() else b""
    except _DAMAGED as error:
        aside = path.with_name(f"{path.name}.damaged-{time.time_ns()}")
        path.rename(aside)
        print(
            f"{path}: not a list of attempts ({error}); set aside as {aside.name}, and begun again",
            file=sys.stderr,
            flush=True,
        )
        held = b""
    line = (json.dumps(result) + "\n").encode()
    if result["runs"] and not held.endswith(b"\n" + line) and held != line:
        write_bytes(path, held + line)


def attempts(cell: str, store: Store) -> list[Result]:
    """The cell's attempts, oldest first, each as it was last written. Raises StoreError for a file that cannot be read."""
    path = _path(cell, store)
    try:
        found: list[Result] = []
        for result in reversed(_read(path)):
            if not any(set(result["runs"]) <= set(later["runs"]) for later in found):
                found.append(result)
    except _DAMAGED as error:
        raise StoreError(
            f"{path}: not a list of attempts ({error}); delete it: the records stay, and the next training begins it anew"
        ) from None
    return found[::-1]


_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def _read(path: Path) -> list[Result]:
    """Raises one of `_DAMAGED` for a file that is no list of attempts."""
    text = read_text(path) if path.exists() else ""
    if text and not text.endswith("\n"):
        raise ValueError("its last line is cut off")
    results = [json.loads(line) for line in text.splitlines()]
    for result in results:
        if wrong := result_problems(result):
            raise ValueError("; ".join(wrong))
    return results


def superseded(result: Result, store: Store) -> list[tuple[Result, list[Record]]]:
    """The attempts of a cell before its current result, each with the records of it that the store has. Raises StoreError."""
    earlier = [one for one in attempts(result["cell"], store) if not set(one["runs"]) <= set(result["runs"])]
    found = [(one, records_of(one, store)) for one in earlier]
    return [(one, records) for one, records in found if records]


def records_of(result: Result, store: Store) -> list[Record]:
    """The records that a result names, as far as the store has them. Raises StoreError for one that cannot be read."""
    return [record for digest in result["runs"] if (record := store.get(digest))]


def when(records: Sequence[Record]) -> str:
    """The minute in which the last of these runs ended, in UTC."""
    return max(record["measured"]["finished"] for record in records)[:16].replace("T", " ")


def _path(cell: str, store: Store) -> Path:
    return store.root / "cells" / f"{cell}.jsonl"
