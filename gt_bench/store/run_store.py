"""The run store: records by the digest of recipe, seed, split, data, encodings and versions.

A finished run is never computed again.

    store/<first two digits>/<digest>/record.json       the record (`gt_bench.records.run.RunRecord`)
    store/<first two digits>/<digest>/checkpoint.*      while the run is not finished
"""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from gt_bench.records.run import Curves, Digests, RunRecord
from gt_bench.utils.digest import digest_of
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import UnfitFile, held, make_folder, read_bytes, read_text, write_errors, write_json
from gt_bench.utils.json_types import Settings

SCHEMA: Final = 2
FINAL = ("ok", "diverged")


class StoreError(UserError, RuntimeError):
    """A file of the store is damaged. The message names the file and the remedy."""


def run_digest(
    recipe: Settings, seed: int, split: int, digests: Digests, versions: Mapping[str, int], test: bool = True
) -> str:
    """Returns the key of a run: a sha256 of everything that decides its numbers.

    Args:
        recipe: `Recipe.decisive()`.
        seed: seed of the run.
        split: index of the split.
        digests: digests of the record. The one of the recipe is ignored, because `recipe` is part of the key.
        versions: declared version of each component that computes the run (gt_bench/utils/versions.py).
        test: False for a trial of a search, which never reads the test split.
    """
    key = {"recipe": recipe, "seed": seed, "split": split, "versions": versions} | {
        k: v for k, v in digests.to_disk().items() if k != "recipe"
    }
    return digest_of(key if test else key | {"test": False})


def sealed(record: RunRecord) -> RunRecord:
    """Returns the record with the checksum of its deterministic part, to detect edited numbers."""
    return record.model_copy(update={"checksum": digest_of(record.run.to_disk())})


def fault_of(record: RunRecord) -> str | None:
    """Returns that the checksum of a record does not match, otherwise None."""
    if record.checksum is not None and digest_of(record.run.to_disk()) != record.checksum:
        return "its checksum does not match its deterministic part: it was edited or damaged"
    return None


def best_run(records: Sequence[RunRecord]) -> RunRecord | None:
    """Returns the record that represents a cell: the best on validation, never on test.

    Returns:
        The first record with status "ok" and the best validation metric, or the first with status "ok" if no run has a
        validation metric. None if no run has status "ok".
    """
    good = [r for r in records if r.run.status == "ok"]
    validated = [(val, r) for r in good if (val := r.run.val) is not None and math.isfinite(val)]
    if not validated:
        return good[0] if good else None
    better = max if good[0].run.direction == "max" else min
    return better(validated, key=lambda scored: scored[0])[1]


def curves_reached(folder: Path) -> Curves:
    """Returns the curves of an unfinished run up to its checkpoint.

    Args:
        folder: folder of the run.

    Returns:
        {quantity: one value per epoch}. Empty if there is no readable checkpoint.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / "checkpoint.safetensors", framework="pt") as file:
            return {name: list(curve) for name, curve in json.loads(file.metadata()["header"])["curves"].items()}
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError):
        return {}


class Store:
    """Records by digest below a folder. Safe for concurrent processes.

    Args:
        root: the folder.
    """

    def __init__(self, root: str | Path = "store"):
        self.root = Path(root)

    def folder(self, digest: str) -> Path:
        """Returns the folder of a run. It need not exist."""
        return self.root / digest[:2] / digest

    def get(self, digest: str) -> RunRecord | None:
        """Reads the record of a run.

        Returns:
            The record, or None if there is none.

        Raises:
            StoreError: the file is damaged, edited, or the record of another run.
        """
        path = self.folder(digest) / "record.json"
        try:
            record = RunRecord.from_disk(json.loads(read_text(path)))
            if record.digest != digest:
                raise ValueError(f"contains the record of {record.digest}")
            if fault := fault_of(record):
                raise ValueError(fault)
            return record
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            remedy = "delete the file and run the cell again"
            raise StoreError(f"not a record ({error})", file=path, remedy=remedy) from None

    def settled(self, digest: str, *, time_limit: float | None, memory_limit: float | None) -> RunRecord | None:
        """Returns the record of a run if running it again could not change it, otherwise None.

        Records with status "ok" and "diverged" are always settled. Those with status "timed-out" and "oom" are settled
        unless a limit was raised.

        Args:
            digest: key of the run.
            time_limit: current limit in seconds; None for no limit.
            memory_limit: current limit in MiB; None for no limit.
        """
        record = self.get(digest)
        if record is None:
            return None
        status, measured = record.run.status, record.measured
        if status == "timed-out" and (time_limit is None or time_limit > (measured.time_limit_seconds or 0)):
            return None
        if status == "oom" and memory_limit is not None and memory_limit > measured.memory_limit_mib:
            return None
        return record

    def put(self, record: RunRecord) -> Path:
        """Writes a record atomically and removes the run's checkpoint.

        The checkpoint of a timed-out run remains, because the run resumes from it under a higher limit.

        Returns:
            The file of the record.

        Raises:
            WriteError: the file cannot be written. Every file is unchanged.
        """
        folder = self.folder(record.digest)
        path = write_json(folder / "record.json", record.to_disk())
        if record.run.status != "timed-out":
            self.remove_checkpoints(record.digest)
        return path

    def remove_checkpoints(self, digest: str) -> None:
        """Removes the checkpoint of a run, and a damaged one."""
        for checkpoint in self.folder(digest).glob("checkpoint.*"):
            checkpoint.unlink(missing_ok=True)

    def digests(self) -> Iterator[str]:
        """Yields the digests of all runs in order, also of unfinished runs without a record."""
        for folder in _names(self.root):
            if len(folder) == 2:
                yield from (digest for digest in _names(self.root / folder) if digest.startswith(folder))

    def records(self, *holding: str) -> Iterator[RunRecord]:
        """Yields all records in the order of their digests.

        Args:
            *holding: texts, for example digests. Only records whose file contains all of them are parsed and returned.

        Raises:
            StoreError: a record is damaged.
        """
        texts = [text.encode() for text in holding]
        for digest in self.digests():
            if texts and not _contains(self.folder(digest) / "record.json", texts):
                continue
            record = self.get(digest)
            if record is not None:
                yield record

    def lock(self, digest: str) -> contextlib.AbstractContextManager[None]:
        """Locks a run while it is computed: a second process waits and then finds the record.

        Raises:
            WriteError: the lock file cannot be written.
        """
        return held(make_folder(self.folder(digest)) / "lock")

    def is_locked(self, digest: str) -> bool:
        """Returns whether another process is computing a run.

        Raises:
            WriteError: the lock file cannot be written.
        """
        path = make_folder(self.folder(digest)) / "lock"
        with write_errors(path):
            try:
                with FileLock(path, timeout=0):
                    return False
            except Timeout:
                return True


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(os.listdir(folder))
    return []


def _contains(path: Path, texts: list[bytes]) -> bool:
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return False
    except UnfitFile:  # `get` reports it
        return True
    return all(text in content for text in texts)
