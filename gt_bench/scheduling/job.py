"""One job in a process of its own: data, some trials of a search, or some runs of one cell, each computed at most once and continued where it was.

    python -m gt_bench.scheduling.job < JOB.json

Each line of its output is JSON: {"say": text}, {"seed": n, "outcome": ..., "why": ...} (of a search {"seed": null, "trials": how many it ran}) and,
last, {"whole": true} where every run of the cell is in the store and results/<cell>.json is written. Outcomes: the status of the record; `stored`: it
was there; `elsewhere`: another process is at it; `unsearched`: its cell's search has trials left; `failed`; `no data`; `full`: the disk; `changed`: the
code on disk is no longer what this process has loaded, so that a new one must go on.
"""

import contextlib
import errno
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from gt_bench.config.grid import Cell, Grid
    from gt_bench.scheduling.planner import Job

ROOT = Path(__file__).parent.parent.parent
SAY_SECONDS = 600.0  # between two lines of a run under way


def sources() -> dict[str, tuple[int, int]]:
    """What tells one state of the project's code from another, cheaply."""
    found = {}
    for package in ("gt_bench", "gt_models"):
        for path in (ROOT / package).rglob("*.py"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                found[str(path)] = (stat.st_mtime_ns, stat.st_size)
    return found


class Asked(TypedDict):
    """A job as it is handed to the process that does it. `limits`: those of `Limits` that are given; `shared`: whether others run in the same memory."""

    kind: str
    name: str
    seeds: list[int]
    trials: int
    limits: dict[str, int]
    shared: bool


def as_json(job: "Job", shared: bool) -> str:
    """The job as `do` reads it. `shared`: whether others run in the same memory."""
    content = asdict(job) | {"limits": job.limits.model_dump(exclude_none=True), "shared": shared}
    return json.dumps({key: content[key] for key in ("kind", "name", "seeds", "trials", "limits", "shared")})


def do(content: Asked, tell: Callable[..., None], began: dict[str, tuple[int, int]]) -> None:
    """Does a job in the working directory's project. `tell(**line)` is called for each line of output; `began`: the `sources` at the start of
    this process."""
    from gt_bench.config.grid import Limits, load_grid
    from gt_bench.scheduling.plan_file import limited_grid
    from gt_bench.utils.io import WriteError

    grid = load_grid()
    # MLflow has one writer: the leaderboard stage completes it from the records
    grid = grid.model_copy(update={"run": grid.run.model_copy(update={"tracking": False})})
    try:
        if content["kind"] == "data":
            _data(content["name"], grid, tell)
            return
        cell = grid.find(content["name"])
        grid = limited_grid(grid, cell, Limits(**content["limits"]))
        if content["kind"] == "search":
            _search(cell, grid, content["trials"], tell)
        else:
            _runs(cell, grid, content["seeds"], content["shared"], tell, began)
    except (OSError, WriteError) as error:
        if not is_full(error):
            raise
        tell(seed=None, outcome="full", why=str(error))


def _data(dataset: str, grid: "Grid", tell: Callable[..., None]) -> None:
    from gt_bench.data.prepare import prepare
    from gt_bench.encodings.encode_dataset import encode_dataset

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
    cell: "Cell",
    grid: "Grid",
    seeds: list[int],
    shared: bool,
    tell: Callable[..., None],
    began: dict[str, tuple[int, int]],
) -> None:
    from gt_bench.config.schema import RecipeError
    from gt_bench.data.packed import DatasetUnavailable
    from gt_bench.experiment.cell import experiment_of, limited, settings_of
    from gt_bench.experiment.run import prepare_process
    from gt_bench.runtime.worker_pool import Lost
    from gt_bench.scheduling.run_lock import claimed
    from gt_bench.store.run_store import Store

    store = Store()
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
    for seed in seeds:
        if experiment.settled(seed) is not None:
            tell(seed=seed, outcome="stored", key=experiment.digest(seed), root=str(ROOT))
            continue
        digest = experiment.digest(seed)
        if sources() != began:
            tell(seed=seed, outcome="changed")
            continue
        with claimed(store, digest) as mine:
            if not mine:
                tell(seed=seed, outcome="elsewhere")
                continue
            tell(say=f"{cell.cell} seed {seed}: begins")
            try:
                record, computed = experiment.run(
                    seed, on_epoch=_Report(cell.cell, seed, recipe.reports, tell), shared=shared
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

        with contextlib.redirect_stdout(io.StringIO()):  # each run was said
            train_cell(cell, grid, bar=False)
        tell(whole=True)


class _Report:
    """Says now and then how far a run is."""

    def __init__(self, cell: str, seed: int, reports: int, tell: Callable[..., None]):
        self.cell, self.seed, self.reports, self.tell, self.last = cell, seed, reports, tell, time.monotonic()

    def __call__(self, epoch: int, values: dict[str, float]) -> None:
        if time.monotonic() - self.last >= SAY_SECONDS:
            self.last = time.monotonic()
            shown = " ".join(f"{k} {v:.4g}" for k, v in values.items() if k != "lr")
            self.tell(say=f"{self.cell} seed {self.seed}: {epoch}/{self.reports} {shown}")


class _Lines(io.TextIOBase):
    """A text file whose lines are said."""

    def __init__(self, tell: Callable[..., None]):
        self.say, self.rest = tell, ""

    def write(self, text: str) -> int:
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            if line.strip():
                self.say(say=line)
        return len(text)


def is_full(error: BaseException) -> bool:
    """Whether a disk is full, said by the system or by what writes here."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def _output() -> Iterator[Callable[..., None]]:
    """`tell` onto the present standard output; whatever else writes there becomes text on standard error."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8") as lines:
        os.dup2(2, 1)
        yield lambda **line: print(json.dumps(line), file=lines, flush=True)


def main() -> int:
    """Reads one job from stdin, does it, and writes its events to stdout as JSON lines."""
    began = sources()
    from gt_bench.runtime.exit_status import status_of
    from gt_bench.runtime.signals import handled
    from gt_bench.runtime.threads import settle_environment
    from gt_bench.runtime.worker_pool import die_with_parent

    settle_environment()
    # Slurm warns every process of a job of its time limit; the one that started this answers for both
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)

    def work() -> None:
        with handled(say=False), _output() as tell:
            die_with_parent(os.getppid())
            do(json.loads(sys.stdin.read()), tell, began)

    return status_of(work)


if __name__ == "__main__":
    sys.exit(main())
