"""Reproduce one suite, from raw archive to leaderboard: `dvc repro leaderboard@SUITE` with two additions.

    python -m gt_bench.pipeline.reproduce SUITE

DVC runs one stage after the other. Here all cells without a result train in parallel first, forked from one process
that has imported everything, and `dvc commit` records their results. DVC runs cells that fail again and reports the
reason.

DVC skips the leaderboard of a suite if one of its cells fails. Here it is written anyway, and the row of the cell shows
how it ended.
"""

import contextlib
import logging
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import typer

from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.status import stored_seeds, unfinished
from gt_bench.forecasting.counted import announcement
from gt_bench.pipeline.leaderboard import leaderboard, show_own
from gt_bench.pipeline.state import remove_results_without_records
from gt_bench.runtime.exit_status import status_of, usage
from gt_bench.runtime.resources import at_once
from gt_bench.runtime.signals import handled, killed_by
from gt_bench.runtime.threads import settle_environment
from gt_bench.scheduling.order import threads_of
from gt_bench.store.run_store import StoreError
from gt_bench.utils.dvc import repaired, without_git_user
from gt_bench.utils.io import write_json


def reproduce(suite: str) -> int:
    """Compute the missing parts of a suite and show its leaderboard.

    Returns:
        The exit status.

    Raises:
        RecipeError: of the grid, or there is no dvc.yaml.
        StoreError: of the store.
    """
    grid = load_grid()
    cells = grid.suite(suite)
    if not Path("dvc.yaml").exists():
        checkout = "run this in a checkout of the benchmark"
        remedy = f"{checkout}, or `gt-bench work {suite}`, which prepares data and trains in any folder"
        raise RecipeError(f"no such file in {Path.cwd()}", file="dvc.yaml", remedy=remedy)
    for line in (*announcement(suite, cells, grid), *without_git_user()):
        print(line, flush=True)
    for line in (*without_git(), *repaired()):
        print(line, flush=True)
    remove_results_without_records(cells)
    train_side_by_side([cell for cell in cells if not Path("results", f"{cell.cell}.json").exists()], grid)
    status, died = repro(f"leaderboard@{suite}")
    if status == 0:
        show_own(suite, grid)
        return 0
    messages = [after(command, code, grid) for command, code in died]
    if not any("stages.leaderboard" in command for command, _ in died):
        with contextlib.suppress(typer.Exit):  # the error was printed
            leaderboard(suite)
    for line in messages:
        print(line, file=sys.stderr)
    print("the leaderboard above is partial", file=sys.stderr)
    return 1


def without_git() -> Iterator[str]:
    """Set `core.no_scm` for DVC outside a git repository, where it would not run; yield a message."""
    from dvc.config import Config

    here = Path.cwd()
    if any((folder / ".git").exists() for folder in (here, *here.parents)) or not Path(".dvc").is_dir():
        return
    config = Config(Path(".dvc").resolve())
    if config["core"].get("no_scm"):
        return
    with config.edit("local") as local:
        local.setdefault("core", {})["no_scm"] = True
    yield (
        f"{here} is not a git repository: DVC runs without git (core.no_scm in .dvc/config.local); after `git init`, "
        "run `dvc config --local core.no_scm false`"
    )


def train_side_by_side(cells: list[Cell], grid: Grid) -> None:
    """Train cells as DVC would, but in parallel on all cores, after DVC has run the stages that they depend on."""
    jobs = at_once(grid.run.parallel, len(cells), threads=max((threads_of(cell) for cell in cells), default=1))
    if jobs == 1:
        return
    before = [f"encode@{name}" for name in dict.fromkeys(cell.dataset for cell in cells)]
    before += [f"tune@{cell.key}" for cell in cells if cell.settings == "tuned"]
    if _dvc("repro", *before) != 0:
        return  # the stage fails again in `repro`, which reports the reason
    settle_environment()
    import torch

    from gt_bench.pipeline.train_cells import train_cells

    if grid.run.device != "cpu" and torch.cuda.device_count():  # one run uses the whole GPU
        return
    with handled():
        lost = train_cells(cells, grid, jobs)
    if not lost:
        _dvc("commit", "--force", *(f"{'finetune' if cell.after else 'train'}@{cell.key}" for cell in cells))


def _dvc(*arguments: str) -> int:
    """Run `dvc ...` in a new process, because its threads would make forks unsafe; return its exit status."""
    process = subprocess.Popen([sys.executable, "-m", "dvc", *arguments])
    try:
        return process.wait()
    except KeyboardInterrupt:
        _interrupt_children(lambda: process.poll() is not None)
        raise


def repro(target: str) -> tuple[int, list[tuple[str, int]]]:
    """Run `dvc repro TARGET`.

    Returns:
        Its exit status, and (command, exit status) of the stages that failed.
    """
    from dvc.cli import main

    failures = _Failures()
    logging.getLogger("dvc").addHandler(failures)
    # in the main thread, DVC ignores interrupts while a stage runs
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(main, ["repro", target])
        try:
            return running.result(), list(dict.fromkeys(failures.found))
        except KeyboardInterrupt:
            _interrupt_children(running.done)
            raise
        finally:
            logging.getLogger("dvc").removeHandler(failures)


def _interrupt_children(ended: Callable[[], bool]) -> None:
    """Send SIGINT once to each process that this one started, until `ended()`. DVC does not stop between stages."""
    interrupted = set()
    while not ended():
        for child in psutil.Process().children(recursive=True):
            if child.pid not in interrupted:
                interrupted.add(child.pid)
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.send_signal(signal.SIGINT)
        time.sleep(0.1)


class _Failures(logging.Handler):
    """Collect failed commands and their exit status from the log of DVC."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[tuple[str, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        texts = [record.getMessage()]
        while error is not None:
            texts.append(str(error))
            error = error.__cause__
        self.found += [
            (m[1], int(m[2])) for text in texts for m in re.finditer(r"failed to run: (.+), exited with (-?\d+)", text)
        ]


def after(command: str, status: int, grid: Grid) -> str:
    """Describe how a stage failed; if training died, write the result of the cell with the same text."""
    happened = in_words(status)
    what = re.search(r"-m stages\.(train|tune) (\S+)$", command)
    if what is None:
        return f"{command}: {happened}; run the same command again to resume"
    try:
        cell = grid.find(what[2])
        runs, requested = stored_seeds(cell, grid)
        if what[1] == "tune":
            return f"search of {cell.cell}: {happened}; its trials are saved, run the same command again to resume"
        seeds, are = "seeds" if requested > 1 else "seed", "is" if len(runs) == 1 else "are"
        saved = f"{len(runs)} of {requested} {seeds} {are} saved"
        happened += f"; {saved}, run the same command again to resume"
        write_json(Path("results", f"{cell.cell}.json"), unfinished(cell, grid, happened).to_disk())
        return f"{cell.cell}: {happened}"
    except (RecipeError, StoreError) as error:
        return f"{what[2]}: {happened}; {error}"


def in_words(status: int) -> str:
    """Describe an exit status: -9 (from a parent process) and 137 (from a shell) both mean signal 9."""
    number = -status if status < 0 else status - 128
    if number not in signal.valid_signals():
        return f"failed with exit status {status}, see above"
    return killed_by(number)


def main(arguments: list[str]) -> int:
    """Reproduce the suite that the arguments name, and return the exit status: 2 unless they are one suite."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        return usage(__doc__ or "", arguments)
    return status_of(lambda: reproduce(arguments[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
