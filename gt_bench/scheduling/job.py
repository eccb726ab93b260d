"""A job in a new process: data and encodings, trials of a search, or runs of a cell. Each run is computed at most once.

    python -m gt_bench.scheduling.job < JOB.json

`run_job` starts the process; `do` is what it does. Each line of its output is a JSON object (`Line`):

    {"say": text}                                   a message
    {"seed": n, "outcome": ..., "why": ...}         the end of a run; of a search {"seed": null, "trials": number}

When all runs of a cell are stored, its job writes results/<cell>.json.

Outcomes: the status of the record; `stored` (it was in the store); `elsewhere` (another process computes it);
`unsearched` (the search of its cell has trials left); `failed`; `no data`; `full` (the disk); `changed` (the code on
disk differs from the code that this process has loaded, so a new process must continue).
"""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from gt_bench.config.grid import Cell, Grid
    from gt_bench.scheduling.planner import Job

ROOT = Path(__file__).parent.parent.parent
COMMAND = (sys.executable, "-m", "gt_bench.scheduling.job")
SAY_SECONDS = 600.0  # between two progress lines of a run


class Content(TypedDict):
    """A job as its process reads it.

    `shared`: whether other runs use the same memory; `processes`: number of processes that share a GPU.
    """

    kind: str
    name: str
    seeds: list[int]
    trials: int
    shared: bool
    processes: NotRequired[int]


class Line(TypedDict, total=False):
    """A line of the output of a job; see the module's docstring.

    `pid` is the id of its process. The record of a run is stored under `key`, computed by the code in the folder
    `root`.
    """

    pid: int
    say: str
    seed: int | None
    outcome: str
    why: str | None
    trials: int
    key: str
    root: str


def as_json(job: "Job", shared: bool, processes: int = 1) -> str:
    """Return a job as JSON of a `Content`.

    Args:
        job: the job.
        shared: whether other runs use the same memory.
        processes: number of processes that share a GPU.
    """
    content = asdict(job) | {"shared": shared, "processes": processes}
    return json.dumps({key: content[key] for key in Content.__annotations__})


def run_job(
    content: str, tell: Callable[[Line], None], started: Callable[[subprocess.Popen[str]], None] = lambda process: None
) -> int:
    """Run a job in a new process. An exception here terminates the job, which saves a checkpoint.

    Args:
        content: the job, as `as_json` returns it.
        tell: called for each line of its output.
        started: called with the process.

    Returns:
        The exit status of the process.

    Raises:
        WriteError: the disk is full.
    """
    from gt_bench.runtime.fresh_process import child_environment, terminate
    from gt_bench.utils.io import WriteError

    full = None
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", env=child_environment()
    ) as process:
        try:
            started(process)
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(content)
            process.stdin.close()
            for text in process.stdout:
                tell(line := json.loads(text))
                full = line["why"] if line.get("outcome") == "full" else full
            process.wait()
        except BaseException:
            terminate(process)
            raise
    if full is not None:
        raise WriteError(full)
    return process.returncode


def sources() -> dict[str, tuple[int, int]]:
    """Return modification time and size of each source file, to notice quickly whether the code has changed."""
    found = {}
    for package in ("gt_bench", "gt_models"):
        for path in (ROOT / package).rglob("*.py"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                found[str(path)] = (stat.st_mtime_ns, stat.st_size)
    return found


def do(content: Content, tell: Callable[..., None], began: dict[str, tuple[int, int]]) -> None:
    """Do a job in the project of the working directory.

    Args:
        content: the job.
        tell: called as `tell(**line)` for each line of output.
        began: `sources` at the start of this process.
    """
    from gt_bench.config.grid import load_grid
    from gt_bench.utils.io import WriteError, is_disk_full

    grid = load_grid()
    # MLflow has a single writer: the leaderboard stage completes it from the records.
    grid = grid.model_copy(update={"run": grid.run.model_copy(update={"tracking": False})})
    try:
        if content["kind"] == "data":
            _data(content["name"], grid, tell)
            return
        cell = grid.find(content["name"])
        if content["kind"] == "search":
            _search(cell, grid, content["trials"], tell)
        else:
            _runs(cell, grid, content, tell, began)
    except (OSError, WriteError) as error:
        if not is_disk_full(error):
            raise
        tell(seed=None, outcome="full", why=str(error))


def _data(dataset: str, grid: "Grid", tell: Callable[..., None]) -> None:
    from gt_bench.data.prepare import prepare
    from gt_bench.pipeline.encode import encode_dataset

    with contextlib.redirect_stdout(_Lines(tell)):
        prepared = prepare(dataset, mirrors=grid.run.mirrors, say=print)
        encode_dataset(dataset, grid, jobs=1)
    tell(seed=None, outcome="no data" if prepared.state == "unavailable" else "ok", why=prepared.reason)


def _search(cell: "Cell", grid: "Grid", trials: int, tell: Callable[..., None]) -> None:
    from gt_bench.config.schema import RecipeError
    from gt_bench.pipeline.tune import take_part

    try:
        with contextlib.redirect_stdout(_Lines(tell)):
            part = take_part(cell, grid, trials)
    except RecipeError as error:
        tell(seed=None, outcome="failed", why=str(error))
        return
    outcome = "ok" if part.ran or part.chosen else "elsewhere"
    ran = f"{part.ran} trial{'' if part.ran == 1 else 's'}"
    tell(seed=None, outcome=outcome, why=f"{ran}, and the search is done" if part.chosen else ran, trials=part.ran)


def _runs(
    cell: "Cell", grid: "Grid", content: Content, tell: Callable[..., None], began: dict[str, tuple[int, int]]
) -> None:
    from gt_bench.config.schema import RecipeError
    from gt_bench.data.packed import DatasetUnavailable
    from gt_bench.experiment.cell import experiment_of, limited, settings_of
    from gt_bench.runtime.startup import prepare_process
    from gt_bench.runtime.worker_pool import Lost
    from gt_bench.store.run_store import Store

    store, seeds = Store(), content["seeds"]
    try:
        recipe, _ = limited(settings_of(cell), grid, cell)
    except RecipeError:
        if cell.settings != "tuned":
            raise
        for seed in seeds:
            tell(seed=seed, outcome="unsearched")
        return
    try:
        experiment = experiment_of(cell, recipe, grid, store, Path("data"), prepare_process(grid.run))
    except DatasetUnavailable as error:
        for seed in seeds:
            tell(seed=seed, outcome="no data", why=str(error))
        return
    experiment.share_gpu(content.get("processes", 1))
    for seed in seeds:
        if experiment.settled(seed) is not None:
            tell(seed=seed, outcome="stored", key=experiment.digest(seed), root=str(ROOT))
            continue
        digest = experiment.digest(seed)
        if sources() != began:
            tell(seed=seed, outcome="changed")
            continue
        if store.is_locked(digest):
            tell(seed=seed, outcome="elsewhere")
            continue
        tell(say=f"{cell.cell} seed {seed}: started")
        try:
            record, computed = experiment.run(
                seed, on_epoch=_Report(cell.cell, seed, recipe.reports, tell), shared=content["shared"]
            )
        except (RecipeError, Lost) as error:
            tell(seed=seed, outcome="failed", why=str(error))
            continue
        run = record["deterministic"]
        found = f"{run['metric']} {run['test']:.4f}" if run["test"] is not None else run["error"]
        why = f"{found} ({record['measured']['seconds']:.0f} s)"
        tell(seed=seed, outcome=run["status"] if computed else "stored", why=why, key=digest, root=str(ROOT))
    if all(experiment.settled(seed) is not None for seed in recipe.seeds):
        from gt_bench.pipeline.train import train_cell

        with contextlib.redirect_stdout(io.StringIO()):  # each run was reported above
            train_cell(cell, grid, bar=False)


class _Report:
    """Report the progress of a run every SAY_SECONDS."""

    def __init__(self, cell: str, seed: int, reports: int, tell: Callable[..., None]):
        self.cell, self.seed, self.reports, self.tell, self.last = cell, seed, reports, tell, time.monotonic()

    def __call__(self, epoch: int, values: dict[str, float]) -> None:
        from gt_bench.runtime.progress import epoch_text

        if time.monotonic() - self.last >= SAY_SECONDS:
            self.last = time.monotonic()
            self.tell(say=f"{self.cell} seed {self.seed}: {epoch}/{self.reports} {epoch_text(values)}")


class _Lines(io.TextIOBase):
    """A text file whose lines become messages."""

    def __init__(self, tell: Callable[..., None]):
        self.say, self.rest = tell, ""

    def write(self, text: str) -> int:
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            if line.strip():
                self.say(say=line)
        return len(text)


@contextlib.contextmanager
def _output() -> Iterator[Callable[..., None]]:
    """Yield a `tell` that writes JSON lines to stdout; everything else that is written to stdout goes to stderr."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8") as lines:
        os.dup2(2, 1)
        yield lambda **line: print(json.dumps(line), file=lines, flush=True)


def main() -> int:
    """Read one job from stdin, do it, and write its lines to stdout."""
    began = sources()
    from gt_bench.runtime.exit_status import status_of
    from gt_bench.runtime.signals import die_with_parent, handled
    from gt_bench.runtime.startup import collect_garbage_rarely
    from gt_bench.runtime.threads import settle_environment

    collect_garbage_rarely()
    settle_environment()
    # Slurm warns all processes of a job before its time limit; the parent of this one reacts for both.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)

    def work() -> None:
        with handled(say=False), _output() as tell:
            die_with_parent(os.getppid())
            do(json.loads(sys.stdin.read()), tell, began)

    return status_of(work)


if __name__ == "__main__":
    sys.exit(main())
