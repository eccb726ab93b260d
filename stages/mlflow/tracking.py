"""MLflow: live while a cell trains, and complete after the fact. One experiment per suite, one run per cell, a nested run per seed.

The tracking store is a mirror of the records and never on the path of a run: once a cell has trained for LIVE_AFTER seconds a second process
does all the talking to MLflow, so that a store that is slow, down or dying costs the training neither time nor memory nor an error. A shorter
cell has no such process (it would take longer than the cell): the leaderboard of its suite tracks all of them in one. `complete` makes the
store equal to the records whatever happened before, and does nothing where it already is.
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
from typing import IO, TYPE_CHECKING

from stages.addresses import without_credentials
from stages.attempts import records_of, superseded
from stages.contents import Named, Record, Result, Row
from stages.mlflow.content import cell_name, cell_tags, flatten, tracked_run, tracked_search
from stages.mlflow.database import OWN, alone
from stages.mlflow.experiment import PARENT, SEAL, Mirror, TrackingError, reported
from stages.store import Store

if TYPE_CHECKING:
    from mlflow.entities import Run

    from stages.params import Cell

LIVE_AFTER = 120.0
CLOSE_SECONDS = 120.0  # on a busy machine a tracker at work was killed after 60
FLUSH_SECONDS = 1.0
WARNED = 3  # exit status of the second process once it has said what is wrong


def tracking_uri() -> str:
    """MLFLOW_TRACKING_URI, or the SQLite file of this folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or OWN


class Live:
    """Tracks one cell while it trains, if that takes long enough. No method raises, blocks, or takes more than microseconds, save `close`, which
    waits for what is outstanding, at most CLOSE_SECONDS. When MLflow cannot be used, one warning on stderr names the URI and the remedy.

    Args:
        cell: with suite, dataset, model and cell.
        recipe: as in the cell's result.
        dataset: name and digest of the packed dataset, and what else is known of it.
        after: seconds until the process that tracks begins; a cell that is closed before has none.
    """

    def __init__(self, cell: "Cell", recipe: Mapping[str, object], dataset: Mapping[str, object], after: float = LIVE_AFTER):
        self.suite, self.uri = cell.suite, tracking_uri()
        self._messages: queue.SimpleQueue = queue.SimpleQueue()
        self._process: subprocess.Popen | None = None
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
            _warn(self.uri, self.suite, f"no answer within {CLOSE_SECONDS:.0f} s")
            return
        if status not in (0, WARNED):
            _warn(self.uri, self.suite, f"the tracking process ended with status {status}")

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
                    [sys.executable, "-m", "stages.mlflow.tracking"],
                    stdin=subprocess.PIPE,
                    text=True,
                    env=os.environ | {"PYTHONPATH": path},
                )
            except OSError as error:
                self._deaf = True
                _warn(self.uri, self.suite, str(error))
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


def complete(
    suite: str,
    results: Iterable[Result],
    records: Mapping[str, Record],
    tuned: Path = Path("tuned"),
    rows: Sequence[Row] = (),
    store: Store | None = None,
    only: bool = False,
) -> None:
    """Makes the experiment of `suite` hold exactly these results and records: what is missing is added, what is half written or differs is
    completed or replaced, what no result names is removed (runs of cells that are training right now are left alone). The trials of searches
    stand in an experiment of their own, SUITE-search.

    Args:
        records: by digest; a result's run without a record here is left out.
        tuned: folder with what the searches wrote.
        rows: of the leaderboard, whose verdicts become tags; a cell's first one counts.
        store: with the weights of best seeds and the attempts before the results, which are shown as superseded.
        only: leave the suite's other cells as they are.
    Raises:
        TrackingError: naming the URI.
        StoreError: for attempts that cannot be read.
    """
    uri = tracking_uri()
    results = list(results)
    earlier = {result["cell"]: superseded(result, store) if store else [] for result in results}
    with reported(uri), alone(uri, suite):
        mirror = Mirror(uri, suite)
        for result in results:
            mine = [records[d] for d in result["runs"] if d in records]
            row = next((row for row in rows if row["cell"] == result["cell"]), None)
            mirror.put_cell(result, mine, row, earlier[result["cell"]], store)
        if not only:
            mirror.drop_other_cells({r["cell"] for r in results})
        mirror.put_views()
        searches = {r["cell"]: (r, trials) for r in results if r.get("search") and (trials := _trials(r["cell"], tuned))}
        if searches:
            mirror = Mirror(uri, f"{suite}-search")
            for cell, trials in searches.values():
                _put_search(mirror, cell, trials, tuned)
            if not only:
                mirror.drop_other_cells(set(searches))
            mirror.put_views()


def track_cells(cells: Iterable["Cell"]) -> None:
    """Shows cells that were trained by hand, as `complete` would; the leaderboard adds their verdicts. A store that cannot be used costs one
    warning."""
    from stages.records.shipped import read_result

    store, uri = Store(), tracking_uri()
    by_suite: dict[str, list[Result]] = {}
    for cell in cells:
        if result := read_result(Path("results", f"{cell.cell}.json"), cell.cell):
            by_suite.setdefault(cell.suite, []).append(result)
    for suite, found in by_suite.items():
        try:
            records = {r["digest"]: r for result in found for r in records_of(result, store)}
            complete(suite, found, records, store=store, only=True)
        except TrackingError as error:
            _warn(uri, suite, str(error), "The records are kept")


def track_search(cell: "Cell", tuned: Path = Path("tuned")) -> None:
    """Shows the trials of a cell's search in the experiment SUITE-search. A store that cannot be used costs one warning."""
    uri, named = tracking_uri(), Named(cell=cell.cell, suite=cell.suite, dataset=cell.dataset, model=cell.model)
    try:
        rows = _trials(cell.cell, tuned)
        if rows:
            with reported(uri), alone(uri, cell.suite):
                mirror = Mirror(uri, f"{cell.suite}-search")
                _put_search(mirror, named, rows, tuned)
                mirror.put_views()
    except TrackingError as error:
        _warn(uri, cell.suite, str(error), "The search is done")


def _put_search(mirror: Mirror, cell: Named, rows: Sequence[Mapping[str, str]], tuned: Path) -> None:
    whole, *trials = tracked_search(cell, rows, tuned)
    parent = mirror.put(whole, mirror.find("search", cell["cell"]))
    kept = {parent, *(mirror.put(trial, mirror.find("trial", cell["cell"], trial.tags["gt.digest"]), parent) for trial in trials)}
    for run in [r for r in mirror.runs.of(cell["cell"]) if r.info.run_id not in kept]:
        mirror.delete(run.info.run_id)


def _trials(cell: str, tuned: Path) -> list[dict[str, str]]:
    path = tuned / f"{cell}.csv"
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Follower:
    """The far end of Live: does to MLflow what the messages say."""

    def __init__(self, uri: str, cell: Named, recipe: Mapping[str, object], dataset: tuple[str, str]):
        self.uri, self.cell, self.dataset = uri, cell, dataset
        self.mirror = Mirror(uri, cell["suite"])
        self.parent = self._running(cell_name(cell), cell_tags(cell), flatten(recipe))
        # by the digest of the runs under way: its run in the store, what was tracked before it was killed, what is not written yet
        self.current: dict[str, str] = {}
        self.seen: dict[str, set[tuple[str, int]]] = {}
        self.waiting: dict[str, list[tuple[str, float, int, int]]] = {}

    def seed(self, seed: int, digest: str) -> None:
        """A running run for the seed, or the one that was tracked before it was killed."""
        name = f"{cell_name(self.cell)} seed {seed}"
        tags = {"gt.kind": "run", "gt.cell": self.cell["cell"], "gt.digest": digest, PARENT: self.parent}
        run = self.current[digest] = self._running(name, tags, {"seed": str(seed)})
        # a run that was killed goes on from its last checkpoint: epochs that were tracked before are not tracked twice
        held = self.mirror.history(self.mirror.runs[run])
        self.seen[digest] = {(k, step) for k, points in held.items() for step, _ in points}
        self.waiting[digest] = []

    def epoch(self, digest: str, epoch: int, values: Mapping[str, float], time: int) -> None:
        """Keeps one epoch's values until `flush`; `time`: milliseconds since 1970."""
        seen = self.seen[digest]
        named = {f"curve/{k}": v for k, v in values.items()}
        self.waiting[digest] += [(k, v, time, epoch) for k, v in named.items() if v is not None and (k, epoch) not in seen]

    def flush(self) -> None:
        """Writes what waits, in one request per run."""
        for digest, points in self.waiting.items():
            if points:
                self.mirror.log(self.current[digest], metrics=points)
                self.waiting[digest] = []

    def finish(self, record: Record) -> None:
        """Completes the run of a record."""
        with alone(self.uri, self.cell["suite"]):
            self.mirror.put(tracked_run(self.cell, record), self._fresh("run", record["digest"]), self.parent)
        for held in (self.current, self.seen, self.waiting):
            held.pop(record["digest"], None)

    def close(
        self, result: Result, records: Sequence[Record], earlier: Sequence[tuple[Result, Sequence[Record]]], store: str | None
    ) -> None:
        """Completes the cell, its earlier attempts and the views, as `complete` would."""
        with alone(self.uri, self.cell["suite"]):
            self._fresh("cell")
            self.mirror.put_cell(result, records, None, earlier, Store(store) if store else None)
            self.mirror.put_views()

    def interrupted(self) -> None:
        """The training process is gone without a word."""
        for run_id in (*self.current.values(), self.parent):
            self.mirror.client.set_terminated(run_id, "KILLED")

    def _running(self, name: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        """A run under way: the unfinished one with these tags if its parameters agree, else a new one in place of all such."""
        mirror, run_id = self.mirror, None
        for run in mirror.find(tags["gt.kind"], tags["gt.cell"], tags.get("gt.digest")):
            if tags["gt.kind"] == "cell" and SEAL in run.data.tags:  # of an attempt before this one
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
    os.nice(15)  # training comes first where cores are few
    sys.exit(follow(sys.stdin))
