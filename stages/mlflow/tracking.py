"""MLflow: live while a cell trains, and complete after the fact. One experiment per suite, one run per cell, a nested run per seed.

The tracking store is a mirror of the records and never on the path of a run: while a cell trains a second process does all the talking to
MLflow, so that a store that is slow, down or dying costs the training neither time nor memory nor an error. `complete` makes the store
equal to the records whatever happened before, and does nothing where it already is.
"""

import contextlib
import csv
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.addresses import without_credentials
from stages.mlflow.content import cell_name, cell_tags, flatten, tracked_run, tracked_search
from stages.mlflow.experiment import PARENT, SEAL, Mirror, TrackingError, reported

DEFAULT_URI = "sqlite:///mlruns/mlflow.db"
CLOSE_SECONDS = 60.0
FLUSH_SECONDS = 1.0
WARNED = 3  # exit status of the second process once it has said what is wrong


def tracking_uri() -> str:
    return os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT_URI


class Live:
    """Tracks one cell while it trains. No method raises, blocks, or takes more than microseconds, save `close`, which waits for what is
    outstanding, at most CLOSE_SECONDS. When MLflow cannot be used, one warning on stderr names the URI and the remedy.

    Args:
        cell: with suite, dataset, model and cell.
        recipe: as in the cell's result.
        dataset: name and digest of the packed dataset, and what else is known of it.
        published: reference to the published number, if any (shown once the cell is complete).
    """

    def __init__(self, cell: Any, recipe: Mapping[str, Any], dataset: Mapping[str, Any], published: Mapping[str, Any] | None = None):
        self.suite, self.uri = cell.suite, tracking_uri()
        self._messages: queue.SimpleQueue = queue.SimpleQueue()
        self._process: subprocess.Popen | None = None
        self._deaf = False
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "stages.mlflow.tracking"], stdin=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
            )
        except OSError as error:
            _warn(self.uri, self.suite, str(error))
            return
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()
        named = {k: getattr(cell, k) for k in ("cell", "suite", "dataset", "model")}
        self._send(do="open", uri=self.uri, cell=named, recipe=recipe, dataset=[dataset["name"], dataset["digest"]], published=published)

    def start_seed(self, seed: int, digest: str) -> None:
        self._send(do="seed", seed=seed, digest=digest)

    def log_epoch(self, digest: str, epoch: int, values: Mapping[str, float]) -> None:
        self._send(do="epoch", digest=digest, epoch=epoch, values=dict(values), time=int(time.time() * 1000))

    def finish_seed(self, record: Mapping[str, Any]) -> None:
        self._send(do="finish", record=record)

    def close(self, result: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> None:
        """Completes the cell. Afterwards the store holds what `complete` would write."""
        self._send(do="close", result=result, records=list(records))
        if self._process is None:
            return
        process, self._process = self._process, None
        try:
            status = process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            _warn(self.uri, self.suite, f"no answer within {CLOSE_SECONDS:.0f} s")
            return
        if status not in (0, WARNED):
            _warn(self.uri, self.suite, f"the tracking process ended with status {status}")

    def _send(self, **message: Any) -> None:
        if self._process is not None and not self._deaf:
            self._messages.put(message)

    def _write(self) -> None:
        # a thread of its own, because a pipe to a process that hangs fills up and blocks
        pipe = self._process.stdin
        with contextlib.suppress(BrokenPipeError), pipe:
            while True:
                message = self._messages.get()
                pipe.write(json.dumps(message) + "\n")
                if self._messages.empty():
                    pipe.flush()
                if message["do"] == "close":
                    return
        self._deaf = True


def complete(
    suite: str,
    results: Iterable[Mapping[str, Any]],
    records: Mapping[str, Mapping[str, Any]],
    tuned: Path = Path("tuned"),
    rows: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Makes the experiment of `suite` hold exactly these results and records: what is missing is added, what is half written or differs is
    completed or replaced, what no result names is removed (runs of cells that are training right now are left alone). The trials of searches
    stand in an experiment of their own, SUITE-search.

    Args:
        records: by digest; a result's run without a record here is left out.
        tuned: folder with what the searches wrote.
        rows: of the leaderboard, whose verdicts become tags; a cell's first one counts.
    Raises:
        TrackingError: naming the URI.
    """
    uri = tracking_uri()
    with reported(uri):
        mirror = Mirror(uri, suite)
        results = list(results)
        for result in results:
            mine = [records[d] for d in result["runs"] if d in records]
            mirror.put_cell(result, mine, next((row for row in rows if row["cell"] == result["cell"]), None))
        mirror.drop_other_cells({r["cell"] for r in results})
        searches = {r["cell"]: (r, rows) for r in results if r.get("search") and (rows := _trials(r["cell"], tuned))}
        if searches:
            mirror = Mirror(uri, f"{suite}-search")
            for cell, rows in searches.values():
                _put_search(mirror, cell, rows, tuned)
            mirror.drop_other_cells(set(searches))


def track_search(cell: Any, tuned: Path = Path("tuned")) -> None:
    """Shows the trials of a cell's search in the experiment SUITE-search. A store that cannot be used costs one warning."""
    uri, named = tracking_uri(), {k: getattr(cell, k) for k in ("cell", "suite", "dataset", "model")}
    try:
        rows = _trials(cell.cell, tuned)
        if rows:
            with reported(uri):
                _put_search(Mirror(uri, f"{cell.suite}-search"), named, rows, tuned)
    except TrackingError as error:
        _warn(uri, cell.suite, str(error), "The search is done")


def _put_search(mirror: Mirror, cell: Mapping[str, Any], rows: Sequence[Mapping[str, str]], tuned: Path) -> None:
    whole, *trials = tracked_search(cell, rows, tuned)
    parent = mirror.put(whole, mirror.find("search", cell["cell"]))
    kept = {parent, *(mirror.put(trial, mirror.find("trial", cell["cell"], trial.tags["gt.digest"]), parent) for trial in trials)}
    for run in [r for r in mirror.runs.values() if r.data.tags.get("gt.cell") == cell["cell"] and r.info.run_id not in kept]:
        mirror.delete(run.info.run_id)


def _trials(cell: str, tuned: Path) -> list[dict[str, str]]:
    path = tuned / f"{cell}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Follower:
    """The far end of Live: does to MLflow what the messages say."""

    def __init__(self, uri: str, cell: Mapping[str, str], recipe: Mapping[str, Any], dataset: tuple[str, str], published: Any):
        self.cell, self.dataset = cell, dataset
        self.mirror = Mirror(uri, cell["suite"])
        self.parent = self._running(cell_name(cell), cell_tags(cell), flatten(recipe))
        # by the digest of the runs under way: its run in the store, what was tracked before it was killed, what is not written yet
        self.current: dict[str, str] = {}
        self.seen: dict[str, set[tuple[str, int]]] = {}
        self.waiting: dict[str, list[tuple[str, float, int, int]]] = {}

    def seed(self, seed: int, digest: str) -> None:
        name = f"{cell_name(self.cell)} seed {seed}"
        tags = {"gt.kind": "run", "gt.cell": self.cell["cell"], "gt.digest": digest, PARENT: self.parent}
        run = self.current[digest] = self._running(name, tags, {"seed": str(seed)})
        # a run that was killed goes on from its last checkpoint: epochs that were tracked before are not tracked twice
        held = self.mirror.history(self.mirror.runs[run])
        self.seen[digest] = {(k, step) for k, points in held.items() for step, _ in points}
        self.waiting[digest] = []

    def epoch(self, digest: str, epoch: int, values: Mapping[str, float], time: int) -> None:
        seen = self.seen[digest]
        self.waiting[digest] += [(k, v, time, epoch) for k, v in values.items() if v is not None and (k, epoch) not in seen]

    def flush(self) -> None:
        for digest, points in self.waiting.items():
            if points:
                self.mirror.log(self.current[digest], metrics=points)
                self.waiting[digest] = []

    def finish(self, record: Mapping[str, Any]) -> None:
        self.mirror.put(tracked_run(self.cell, record), self._fresh("run", record["digest"]), self.parent)
        for held in (self.current, self.seen, self.waiting):
            held.pop(record["digest"], None)

    def close(self, result: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> None:
        self._fresh("cell")
        self.mirror.put_cell(result, records)

    def interrupted(self) -> None:
        """The training process is gone without a word."""
        for run_id in (*self.current.values(), self.parent):
            self.mirror.client.set_terminated(run_id, "KILLED")

    def _running(self, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        """A run under way: the unfinished one with these tags if its parameters agree, else a new one in place of all such."""
        mirror, run_id = self.mirror, None
        for run in mirror.find(tags["gt.kind"], tags["gt.cell"], tags.get("gt.digest")):
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

    def _fresh(self, kind: str, digest: str | None = None) -> list[Any]:
        """The runs as they are in the store now, with the metrics tracked since."""
        for run in self.mirror.find(kind, self.cell["cell"], digest):
            self.mirror.runs[run.info.run_id] = self.mirror.client.get_run(run.info.run_id)
        return self.mirror.find(kind, self.cell["cell"], digest)


def follow(lines: Iterable[str]) -> int:
    """Reads messages, one JSON object a line, until `close` or the end. Epochs are written together, about one request a second."""
    messages: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines, messages), daemon=True).start()
    first = messages.get()
    if first is None:
        return 0
    del first["do"]
    try:
        with reported(first["uri"]):
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
        _warn(first["uri"], first["cell"]["suite"], str(error))
        return WARNED


def _read(lines: Iterable[str], messages: queue.SimpleQueue) -> None:
    for line in lines:
        # a process killed in the middle of a line leaves half of it
        if line.endswith("\n"):
            messages.put(json.loads(line))
    messages.put(None)


def _warn(uri: str, suite: str, reason: str, meanwhile: str = "Training goes on") -> None:
    remedy = f"python -m stages.leaderboard {suite}"
    uri, reason = without_credentials(uri), without_credentials(reason)
    print(f"warning: MLflow at {uri} cannot be used: {reason}. {meanwhile}; `{remedy}` completes it later.", file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the training; this process then notes that, and ends too
    os.nice(5)  # training comes first where cores are few
    sys.exit(follow(sys.stdin))
