"""One suite from raw archive to leaderboard: `dvc repro leaderboard@SUITE`; where a stage dies, the board of what is there and what happened.

    python -m gt_bench.scheduling.reproduce SUITE

DVC runs one stage after the other. Here the cells that have no result yet train side by side first, in one process that has imported everything,
and DVC is told of the results; what fails on the way DVC runs again, and says why.

DVC skips the leaderboard of a suite when one of its cells fails. Here it is written all the same: the cell's row says how it ended.
"""

import contextlib
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from gt_bench.config.grid import Cell, Grid, load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.pipeline.leaderboard import leaderboard, show_written
from gt_bench.runtime.exit_status import status_of, usage
from gt_bench.runtime.resources import at_once
from gt_bench.runtime.signals import handled
from gt_bench.runtime.threads import settle_environment
from gt_bench.utils.dvc import mended

ENDS = {signal.SIGKILL: "probably out of memory", signal.SIGINT: "stopped by hand", signal.SIGTERM: "asked to end"}


def reproduce(suite: str, params: Path = Path("params.yaml")) -> int:
    """Runs what is missing of a suite and shows its leaderboard; returns the exit status. Raises RecipeError, StoreError."""
    grid = load_grid(params)
    for line in (*without_git(), *mended()):
        print(line, flush=True)
    train_side_by_side([cell for cell in grid.suite(suite) if not Path("results", f"{cell.cell}.json").exists()], grid)
    status, died = repro(f"leaderboard@{suite}")
    if status == 0:
        show_written(suite, grid)
        return 0
    said = [after(command, code, grid) for command, code in died]
    with contextlib.suppress(typer.Exit):  # it says itself what is wrong
        leaderboard(suite, params)
    for line in said:
        print(line, file=sys.stderr)
    print("the leaderboard above is of what is there", file=sys.stderr)
    return 1


def without_git() -> Iterator[str]:
    """Sets `core.no_scm` for DVC in a copy that is no git repository, where it would refuse to run; yields what it did."""
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
    """Trains cells as DVC would, but as many at once as the machine has cores, after DVC has made their data, encodings and searches."""
    jobs = at_once(grid.run.parallel, len(cells), threads=max((_cores(cell) for cell in cells), default=1))
    if jobs == 1:
        return
    before = [f"encode@{name}" for name in dict.fromkeys(cell.dataset for cell in cells)]
    before += [f"tune@{cell.key}" for cell in cells if cell.settings == "tuned"]
    if _dvc("repro", *before) != 0:
        return  # the same stage fails again where it is said what happened
    settle_environment()
    import torch

    from gt_bench.scheduling.train_cells import train_cells

    if grid.run.device != "cpu" and torch.cuda.device_count():  # which one run fills
        return
    with handled():
        lost = train_cells(cells, grid, jobs)
    if not lost:
        _dvc("commit", "--force", *(f"{'finetune' if cell.after else 'train'}@{cell.key}" for cell in cells))


def _cores(cell: Cell) -> int:
    try:
        return load_recipe(cell.recipe_path).cores
    except RecipeError:  # its own stage says it
        return 1


def _dvc(*arguments: str) -> int:
    """The exit status of `dvc ...` in a process of its own: threads of DVC here would outlive it, and processes are forked from this one."""
    return subprocess.run([sys.executable, "-m", "dvc", *arguments]).returncode


def repro(target: str) -> tuple[int, list[tuple[str, int]]]:
    """(exit status of `dvc repro TARGET`, the commands that failed with theirs)."""
    from dvc.cli import main

    failures = _Failures()
    logging.getLogger("dvc").addHandler(failures)
    try:
        return main(["repro", target]), list(dict.fromkeys(failures.found))
    finally:
        logging.getLogger("dvc").removeHandler(failures)


class _Failures(logging.Handler):
    """Reads off DVC's errors which command ended how."""

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
    """What happened, in words; the result of a cell whose training died is written, so that its row says the same."""
    from gt_bench.experiment.status import seeds_kept, unfinished
    from gt_bench.store.run_store import StoreError
    from gt_bench.utils.io import write_json

    happened = in_words(status)
    what = re.search(r"-m stages\.(train|tune) (\S+)$", command)
    if what is None:
        return f"{command}: {happened}; the same command goes on"
    try:
        cell = grid.find(what[2])
        runs, asked = seeds_kept(cell, grid)
        if what[1] == "tune":
            return f"search of {cell.cell}: {happened}; its trials are kept, the same command goes on"
        happened += f"; {len(runs)} of {asked} seed{'s' if asked > 1 else ''} {'is' if len(runs) == 1 else 'are'} kept, the same command goes on"
        write_json(Path("results", f"{cell.cell}.json"), unfinished(cell, grid, happened))
        return f"{cell.cell}: {happened}"
    except (RecipeError, StoreError) as error:
        return f"{what[2]}: {happened}; {error}"


def in_words(status: int) -> str:
    """How a process ended: -9 and 137 are one thing, reported by a parent and by a shell."""
    number = -status if status < 0 else status - 128
    if number not in signal.valid_signals():
        return f"failed with exit status {status}, for the reason above"
    why = ENDS.get(signal.Signals(number), signal.Signals(number).name)
    return f"killed by signal {number}: {why}"


def main(arguments: list[str]) -> int:
    """Exit status: 2 without exactly one suite."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        return usage(__doc__ or "", arguments)
    return status_of(lambda: reproduce(arguments[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
