"""The run store: digest of (recipe, seed, split, data, encodings, versions) -> record. A finished run is never repeated, whoever asks and when.

store/<first two digits>/<digest>/record.json       what the run left behind (see `new_record`)
store/<first two digits>/<digest>/checkpoint.*      only while it is unfinished
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from filelock import FileLock

from gt_bench.config.recipe import digest_of
from gt_bench.schemas import Digests, Record, Settings
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import UnfitFile, hold, make_folder, read_bytes, read_text, write_json

SCHEMA = 2
FINAL = ("ok", "diverged")


class StoreError(UserError, RuntimeError):
    """A file of the store is no record; the message names it and the remedy."""


def run_digest(
    recipe: Settings, seed: int, split: int, digests: Digests, versions: Mapping[str, int], test: bool = True
) -> str:
    """What decides a run, as one sha256: its key.

    Args:
        recipe: `Recipe.decisive()`.
        digests: those of a record; that of the recipe does not count, since `recipe` does.
        versions: by component the declared version of what computes the run (gt_bench/utils/versions.py).
        test: False for a trial of a search, which never reads the test split.
    """
    key = {"recipe": recipe, "seed": seed, "split": split, "versions": versions} | {
        k: v for k, v in digests.items() if k != "recipe"
    }
    return digest_of(key if test else key | {"test": False})


def sealed(record: Record) -> Record:
    """The record with the checksum of its deterministic part, so that an edited number is found even where it contradicts no other."""
    return record | {"checksum": digest_of(record["deterministic"])}


def fault_of(record: Record) -> str | None:
    """Why a record cannot be used at all: half of it is missing, or its numbers are not those that were written."""
    lacking = [key for key in ("deterministic", "measured") if not isinstance(record.get(key), dict)]
    if lacking or "status" not in record["deterministic"]:
        return f"lacks {', '.join(lacking) or 'its status'}"
    if "checksum" in record and digest_of(record["deterministic"]) != record["checksum"]:
        return "its deterministic part does not have the checksum that it names: it was edited or damaged"
    return None


class Store:
    """Records by digest under `root`. Safe for several processes."""

    def __init__(self, root: str | Path = "store"):
        self.root = Path(root)

    def folder(self, digest: str) -> Path:
        """Where the run's files are, whether it exists or not."""
        return self.root / digest[:2] / digest

    def get(self, digest: str) -> Record | None:
        """The record of `digest`, or None. Raises StoreError for a file that is no record."""
        path = self.folder(digest) / "record.json"
        try:
            record = json.loads(read_text(path))
            if record["digest"] != digest:
                raise ValueError(f"holds the record of {record['digest']}")
            if fault := fault_of(record):
                raise ValueError(fault)
            return record
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, UnicodeDecodeError, RecursionError) as error:
            raise StoreError(f"{path}: not a record ({error}); delete the file and run the cell again") from None

    def settled(self, digest: str, *, time_limit: float | None, memory_limit: float | None) -> Record | None:
        """The record if running again could not change it: ok and diverged always; timed-out and oom only under no higher limit."""
        record = self.get(digest)
        if record is None:
            return None
        status, measured = record["deterministic"]["status"], record["measured"]
        if status == "timed-out" and (time_limit is None or time_limit > (measured["time_limit_seconds"] or 0)):
            return None
        if status == "oom" and memory_limit is not None and memory_limit > measured["memory_limit_mib"]:
            return None
        return record

    def put(self, record: Record) -> Path:
        """Writes a record atomically and removes the run's checkpoint, but for a timed-out run, which goes on from it under a longer limit.
        Raises WriteError, leaving every file as it was."""
        folder = self.folder(record["digest"])
        path = write_json(folder / "record.json", record)
        if record["deterministic"]["status"] != "timed-out":
            self.remove_checkpoints(record["digest"])
        return path

    def remove_checkpoints(self, digest: str) -> None:
        """Removes a run's checkpoint, and one that was set aside."""
        for checkpoint in self.folder(digest).glob("checkpoint.*"):
            checkpoint.unlink(missing_ok=True)

    def digests(self) -> Iterator[str]:
        """Of all folders of runs, in order; a run that is not finished has one without a record. One of 256 folders at a time is listed."""
        for folder in _names(self.root):
            if len(folder) == 2:
                yield from (digest for digest in _names(self.root / folder) if digest.startswith(folder))

    def records(self, *holding: str) -> Iterator[Record]:
        """All records, in order of digest; only those whose file holds each of these texts, such as digests: the others are not parsed. Raises
        StoreError."""
        texts = [text.encode() for text in holding]
        for digest in self.digests():
            if texts and not _holds(self.folder(digest) / "record.json", texts):
                continue
            record = self.get(digest)
            if record is not None:
                yield record

    @contextlib.contextmanager
    def lock(self, digest: str) -> Iterator[None]:
        """Held while a run is computed: a second process that asks for the same run waits and then finds its record. Raises WriteError."""
        lock = hold(FileLock(make_folder(self.folder(digest)) / "lock"))
        try:
            yield
        finally:
            lock.release()


def _names(folder: Path) -> list[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        return sorted(os.listdir(folder))
    return []


def _holds(path: Path, texts: list[bytes]) -> bool:
    try:
        content = read_bytes(path)
    except FileNotFoundError:
        return False
    except UnfitFile:  # whoever reads it says so
        return True
    return all(text in content for text in texts)
