"""A cell in MLflow while it trains. The tracking store is a mirror of the records and never on the path of a run: once a cell has trained for LIVE_AFTER
seconds a second process (gt_bench/tracking/live_worker.py) does all the talking to MLflow, so that a store that is slow, down or dying costs the training neither
time nor memory nor an error. A shorter cell has no such process (it would take longer than the cell): the leaderboard of its suite tracks all of them in one.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gt_bench.schemas import Record, Result
from gt_bench.tracking.uri import tracking_uri, warn

if TYPE_CHECKING:
    from gt_bench.config.grid import Cell

LIVE_AFTER = 120.0
CLOSE_SECONDS = 120.0  # on a busy machine a tracker at work was killed after 60
WARNED = 3  # exit status of the second process once it has said what is wrong


Message = dict[str, Any]  # by JSON: what the follower is to `do`, and the arguments of its method of that name


class Live:
    """Tracks one cell while it trains, if that takes long enough. No method raises, blocks, or takes more than microseconds, save `close`, which
    waits for what is outstanding, at most CLOSE_SECONDS. When MLflow cannot be used, one warning on stderr names the URI and the remedy.

    Args:
        cell: with suite, dataset, model and cell.
        recipe: as in the cell's result.
        dataset: name and digest of the packed dataset, and what else is known of it.
        after: seconds until the process that tracks begins; a cell that is closed before has none.
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
        """A seed's run begins, or goes on."""
        self._send(do="seed", seed=seed, digest=digest)

    def log_epoch(self, digest: str, epoch: int, values: Mapping[str, float]) -> None:
        """One point of each curve."""
        self._send(do="epoch", digest=digest, epoch=epoch, values=dict(values), time=int(time.time() * 1000))

    def finish_seed(self, record: Record) -> None:
        """The seed's run is complete: its record replaces what was tracked."""
        self._send(do="finish", record=record)

    def close(
        self, result: Result, records: Sequence[Record],
        earlier: Sequence[tuple[Result, Sequence[Record]]] = (), store: Path | None = None,
    ) -> None:  # fmt: skip
        """Completes the cell, where it was tracked at all. Afterwards the store holds what `complete` would write."""
        self._timer.cancel()
        with self._lock:
            self._closed = True
        if self._process is None:
            return
        self._send(do="close", result=result, records=list(records), earlier=list(earlier), store=store and str(store))
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
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        with self._lock:
            if self._closed:
                return
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "gt_bench.tracking.live_worker"],
                    stdin=subprocess.PIPE,
                    encoding="utf-8",
                    env=os.environ | {"PYTHONPATH": path},
                )
            except OSError as error:
                self._deaf = True
                warn(self.uri, self.suite, str(error))
                return
        assert self._process.stdin is not None  # a pipe, as asked for
        self._write(self._process.stdin)

    def _write(self, pipe: IO[str]) -> None:
        # in a thread of its own, because a pipe to a process that hangs fills up and blocks
        with contextlib.suppress(BrokenPipeError), pipe:
            while True:
                message = self._messages.get()
                pipe.write(json.dumps(message) + "\n")
                if self._messages.empty():
                    pipe.flush()
                if message["do"] == "close":
                    return
        self._deaf = True
