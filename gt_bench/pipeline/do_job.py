"""What a job does: data and encodings, trials of a search, or runs of a cell. Each run is computed at most once."""

import contextlib
import io
import time
from collections.abc import Callable
from pathlib import Path

from gt_bench.config.cell_recipe import limited, settings_of
from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import DatasetUnavailable
from gt_bench.data.prepare import prepare
from gt_bench.experiment.cell import experiment_of
from gt_bench.pipeline.encode import encode_dataset
from gt_bench.pipeline.train import train_cell
from gt_bench.pipeline.tune import take_part
from gt_bench.runtime.progress import epoch_text
from gt_bench.runtime.startup import prepare_process
from gt_bench.runtime.worker_pool import Lost
from gt_bench.scheduling.job import Content
from gt_bench.store.run_store import Store
from gt_bench.utils.io import WriteError, is_disk_full

SAY_SECONDS = 600.0  # between two progress lines of a run


def do(content: Content, tell: Callable[..., None]) -> None:
    """Do a job in the project of the working directory.

    Args:
        content: the job.
        tell: called as `tell(**line)` for each line of output.
    """
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
            _runs(cell, grid, content, tell)
    except (OSError, WriteError) as error:
        if not is_disk_full(error):
            raise
        tell(seed=None, outcome="full", why=str(error))


def _data(dataset: str, grid: Grid, tell: Callable[..., None]) -> None:
    with contextlib.redirect_stdout(_Lines(tell)):
        prepared = prepare(dataset, mirrors=grid.run.mirrors, say=print)
        encode_dataset(dataset, grid, jobs=1)
    tell(seed=None, outcome="no data" if prepared.state == "unavailable" else "ok", why=prepared.reason)


def _search(cell: Cell, grid: Grid, trials: int, tell: Callable[..., None]) -> None:
    try:
        with contextlib.redirect_stdout(_Lines(tell)):
            part = take_part(cell, grid, trials)
    except RecipeError as error:
        tell(seed=None, outcome="failed", why=str(error))
        return
    outcome = "ok" if part.ran or part.chosen else "elsewhere"
    ran = f"{part.ran} trial{'' if part.ran == 1 else 's'}"
    tell(seed=None, outcome=outcome, why=f"{ran}, and the search is done" if part.chosen else ran, trials=part.ran)


def _runs(cell: Cell, grid: Grid, content: Content, tell: Callable[..., None]) -> None:
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
            tell(seed=seed, outcome="stored")
            continue
        if store.is_locked(experiment.digest(seed)):
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
        run = record.run
        score = f"{run.metric} {run.test:.4f}" if run.test is not None else run.error
        why = f"{score} ({record.measured.seconds:.0f} s)"
        tell(seed=seed, outcome=run.status if computed else "stored", why=why)
    if all(experiment.settled(seed) is not None for seed in recipe.seeds):
        with contextlib.redirect_stdout(io.StringIO()):  # each run was reported above
            train_cell(cell, grid, bar=False)


class _Report:
    """Report the progress of a run every SAY_SECONDS."""

    def __init__(self, cell: str, seed: int, reports: int, tell: Callable[..., None]):
        self.cell, self.seed, self.reports, self.tell, self.last = cell, seed, reports, tell, time.monotonic()

    def __call__(self, epoch: int, values: dict[str, float]) -> None:
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
