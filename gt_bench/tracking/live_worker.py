"""The second process of live tracking: it executes the messages of gt_bench/tracking/live.py, one JSON object per line.

python -m gt_bench.tracking.live_worker < MESSAGES
"""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gt_bench.records.cell import CellNames, CellResult
from gt_bench.records.run import RunRecord
from gt_bench.runtime.signals import ignore_interrupts
from gt_bench.store.run_store import Store
from gt_bench.tracking.live import WARNED, Message
from gt_bench.tracking.mirror import PARENT, SEAL, Mirror, tracking_errors
from gt_bench.tracking.payload import cell_name, cell_tags, hyperparameters, tracked_run
from gt_bench.tracking.sqlite import TrackingError, suite_lock
from gt_bench.tracking.uri import warn

if TYPE_CHECKING:
    from mlflow.entities import Run

FLUSH_SECONDS = 1.0


class Follower:
    """Execute the messages of `Live`: each names one of the methods.

    Args:
        uri: of the tracking store.
        cell: the cell.
        recipe: as in the cell's result.
        dataset: (name, digest) of the packed dataset.
    """

    def __init__(self, uri: str, cell: Mapping[str, str], recipe: Mapping[str, object], dataset: tuple[str, str]):
        self.uri, self.cell, self.dataset = uri, CellNames.from_disk(cell), dataset
        self.mirror = Mirror(uri, self.cell.suite)
        self.parent = self._running(cell_name(self.cell), cell_tags(self.cell), hyperparameters(recipe))
        # By digest of the running runs:
        self.current: dict[str, str] = {}  # id of the MLflow run
        self.seen: dict[str, set[tuple[str, int]]] = {}  # metrics and epochs that were tracked before a kill
        self.waiting: dict[str, list[tuple[str, float, int, int]]] = {}  # metrics that are not written yet

    def seed(self, seed: int, digest: str) -> None:
        """Start an MLflow run for a seed, or resume the one that was tracked before a kill."""
        name = f"{cell_name(self.cell)} seed {seed}"
        tags = {"gt.kind": "run", "gt.cell": self.cell.cell, "gt.digest": digest, PARENT: self.parent}
        run = self.current[digest] = self._running(name, tags, {"seed": str(seed)})
        # a killed run resumes from its last checkpoint: do not track epochs twice
        history = self.mirror.history(self.mirror.runs[run])
        self.seen[digest] = {(k, step) for k, points in history.items() for step, _ in points}
        self.waiting[digest] = []

    def epoch(self, digest: str, epoch: int, values: Mapping[str, float], time: int) -> None:
        """Collect the metrics of an epoch until `flush`. `time`: milliseconds since 1970."""
        seen = self.seen[digest]
        named = {f"curve/{k}": v for k, v in values.items()}
        self.waiting[digest] += [
            (k, v, time, epoch) for k, v in named.items() if v is not None and (k, epoch) not in seen
        ]

    def flush(self) -> None:
        """Write the collected metrics, in one request per run."""
        for digest, points in self.waiting.items():
            if points:
                self.mirror.log(self.current[digest], metrics=points)
                self.waiting[digest] = []

    def finish(self, record: Mapping[str, Any]) -> None:
        """Complete the run of a record, as its file has it."""
        ended = RunRecord.from_disk(record)
        with suite_lock(self.uri, self.cell.suite):
            self.mirror.put(tracked_run(self.cell, ended), self._fresh("run", ended.digest), self.parent)
        for by_digest in (self.current, self.seen, self.waiting):
            by_digest.pop(ended.digest, None)

    def close(self, attempts: Sequence[tuple[Any, Sequence[Any]]], store: str | None) -> None:
        """Complete the cell, its earlier attempts and the views, as `complete` does.

        Args:
            attempts: the result and its records, then those of earlier attempts, as their files have them.
            store: folder of the store, with weights.
        """
        (result, records), *earlier = [
            (CellResult.from_disk(one), [RunRecord.from_disk(record) for record in its]) for one, its in attempts
        ]
        with suite_lock(self.uri, self.cell.suite):
            self._fresh("cell")
            self.mirror.put_cell(result, records, None, earlier, Store(store) if store else None)
            self.mirror.put_views()

    def interrupted(self) -> None:
        """Mark the runs as killed: the training process ended without a message."""
        for run_id in (*self.current.values(), self.parent):
            self.mirror.client.set_terminated(run_id, "KILLED")

    def _running(self, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        """Return the id of a running run: the unfinished one with these tags and parameters, else a new one."""
        mirror, run_id = self.mirror, None
        for run in mirror.find(tags["gt.kind"], tags["gt.cell"], tags.get("gt.digest")):
            if tags["gt.kind"] == "cell" and SEAL in run.data.tags:  # an earlier attempt
                continue
            if run_id is None and SEAL not in run.data.tags and params.items() <= run.data.params.items():
                run_id = run.info.run_id
                mirror.client.update_run(run_id, status="RUNNING")
                mirror.log(run_id, tags=tags)
            else:
                mirror.delete(run.info.run_id)
        if run_id is None:
            run_id = mirror.create(name, tags).info.run_id
            mirror.log(run_id, params)
            mirror.log_dataset(run_id, *self.dataset)
            mirror.runs[run_id] = mirror.client.get_run(run_id)
        return run_id

    def _fresh(self, kind: str, digest: str | None = None) -> list["Run"]:
        """Return the runs with their current state in the tracking store."""
        for run in self.mirror.find(kind, self.cell.cell, digest):
            self.mirror.runs[run.info.run_id] = self.mirror.client.get_run(run.info.run_id)
        return self.mirror.find(kind, self.cell.cell, digest)


def follow(lines: Iterable[str]) -> int:
    """Execute messages until `close` or the end of input; return the exit status.

    Metrics of epochs are collected and written about once per second.

    Args:
        lines: one JSON object per line.
    """
    messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines, messages), daemon=True).start()
    first = messages.get()
    if first is None:
        return 0
    del first["do"]
    try:
        with tracking_errors(first["uri"]):
            follower, due = Follower(**first), time.monotonic()
            while True:
                try:
                    message = messages.get(timeout=FLUSH_SECONDS)
                except queue.Empty:
                    message = {"do": "flush"}
                if message is None:
                    follower.flush()
                    follower.interrupted()
                    return 0
                do = message.pop("do")
                if do != "epoch" or time.monotonic() >= due:
                    follower.flush()
                    due = time.monotonic() + FLUSH_SECONDS
                if do != "flush":
                    getattr(follower, do)(**message)
                if do == "close":
                    return 0
    except TrackingError as error:
        warn(first["uri"], first["cell"]["suite"], str(error))
        return WARNED


def _read(lines: Iterable[str], messages: queue.SimpleQueue[Message | None]) -> None:
    for line in lines:
        # a killed process may leave an incomplete line
        if line.endswith("\n"):
            messages.put(json.loads(line))
    messages.put(None)


if __name__ == "__main__":
    ignore_interrupts()  # Ctrl-C ends the training process; this one then marks the runs as killed and ends
    os.nice(15)  # training has priority
    sys.exit(follow(sys.stdin))
