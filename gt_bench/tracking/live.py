"""Live tracking of a cell in MLflow while it trains.

The tracking store mirrors the records, and no run depends on it. After a cell has trained for LIVE_AFTER seconds, a
second process (gt_bench/tracking/live_worker.py) sends everything to MLflow: a slow or failing store costs the training
no time, memory or error. Shorter cells are tracked by the leaderboard stage, because the second process would take
longer than the cell.
"""

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gt_bench.records.cell import CellResult
from gt_bench.records.run import RunRecord
from gt_bench.runtime.fresh_process import child_environment
from gt_bench.tracking.uri import tracking_uri, warn

if TYPE_CHECKING:
    from gt_bench.config.grid import Cell

LIVE_AFTER = 120.0
CLOSE_SECONDS = 120.0  # 60 s are not enough on a busy machine
WARNED = 3  # exit status of the second process after it has printed a warning


Message = dict[str, Any]  # `do`: a method of `Follower`, and its arguments; JSON


class Live:
    """Track one cell while it trains, if that takes long enough.

    No method raises or blocks, except `close`, which waits for at most CLOSE_SECONDS. If MLflow cannot be used, one
    warning on stderr names the URI and what to do.

    Args:
        cell: with suite, dataset, model and cell.
        recipe: as in the cell's result.
        dataset: with the keys name and digest of the packed dataset.
        after: seconds until the second process starts, unless the cell is closed before.
    """

    def __init__(
        self, cell: "Cell", recipe: Mapping[str, object], dataset: Mapping[str, object], after: float = LIVE_AFTER
    ):
        self.suite, self.uri = cell.suite, tracking_uri()
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._process: subprocess.Popen[str] | None = None
        self._lock, self._closed, self._deaf = threading.Lock(), False, False
        named = {k: getattr(cell, k) for k in ("cell", "suite", "dataset", "model")}
        self._send(do="open", uri=self.uri, cell=named, recipe=recipe, dataset=[dataset["name"], dataset["digest"]])
        self._timer = threading.Timer(after, self._track)
        self._timer.daemon = True
        self._timer.start()

    def start_seed(self, seed: int, digest: str) -> None:
        """Report that the run of a seed starts or resumes."""
        self._send(do="seed", seed=seed, digest=digest)

    def log_epoch(self, digest: str, epoch: int, values: Mapping[str, float]) -> None:
        """Report the metrics of an epoch."""
        self._send(do="epoch", digest=digest, epoch=epoch, values=dict(values), time=int(time.time() * 1000))

    def finish_seed(self, record: RunRecord) -> None:
        """Report that the run of a seed is complete; its record replaces what was tracked."""
        self._send(do="finish", record=record.to_disk())

    def close(
        self, result: CellResult, records: Sequence[RunRecord],
        earlier: Sequence[tuple[CellResult, Sequence[RunRecord]]] = (), store: Path | None = None,
    ) -> None:  # fmt: skip
        """Complete the cell if it was tracked; the tracking store then has what `complete` would write.

        Args:
            result: of the cell.
            records: of the result.
            earlier: results and records of earlier attempts.
            store: folder of the store, with weights.
        """
        self._timer.cancel()
        with self._lock:
            self._closed = True
        if self._process is None:
            return
        attempts = [(one.to_disk(), [record.to_disk() for record in its]) for one, its in ((result, records), *earlier)]
        self._send(do="close", attempts=attempts, store=store and str(store))
        process, self._process = self._process, None
        try:
            status = process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            warn(self.uri, self.suite, f"no answer within {CLOSE_SECONDS:.0f} s")
            return
        if status not in (0, WARNED):
            warn(self.uri, self.suite, f"the tracking process ended with status {status}")

    def _send(self, **message: object) -> None:
        if not self._deaf:
            self._messages.put(message)

    def _track(self) -> None:
        with self._lock:
            if self._closed:
                return
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "gt_bench.tracking.live_worker"],
                    stdin=subprocess.PIPE,
                    encoding="utf-8",
                    env=child_environment(),
                )
            except OSError as error:
                self._deaf = True
                warn(self.uri, self.suite, str(error))
                return
        assert self._process.stdin is not None
        self._write(self._process.stdin)

    def _write(self, pipe: IO[str]) -> None:
        # in a thread, because a pipe to a process that hangs fills up and blocks
        with contextlib.suppress(BrokenPipeError), pipe:
            while True:
                message = self._messages.get()
                pipe.write(json.dumps(message) + "\n")
                if self._messages.empty():
                    pipe.flush()
                if message["do"] == "close":
                    return
        self._deaf = True
