"""The queue: `gt-bench work` on the plan, until the time is over. Then its records and checkpoints are collected.

    python -m tools.gpu.runs --out FOLDER --plan PLAN --until UNIX_TIME --jobs 8
    python -m tools.gpu.runs --out FOLDER --plan PLAN --collect
    python -m tools.gpu.runs --out FOLDER --plan PLAN --check [CELL ...]

Shipped records of the cells are imported first, so that no run is computed twice. Data that are missing are prepared
from the mirrors of params.yaml and GT_DATA_MIRROR; cells whose data are not available are reported and skipped.
What the store has of each cell of the plan is exported to FOLDER/records, also of unfinished cells, and checkpoints are
copied to FOLDER/checkpoints. The queue does that at its end; `--collect` does it after a crash of the queue.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gt_bench.config.grid import Grid, load_grid
from gt_bench.experiment.status import unfinished
from gt_bench.provenance.transfer import export_cell, import_cells
from gt_bench.runtime.exit_status import status_of
from gt_bench.runtime.signals import handled
from gt_bench.runtime.threads import settle_environment
from gt_bench.scheduling.local_queue import work
from gt_bench.scheduling.plan_file import Entry, entries_of, limited_grid
from gt_bench.store.archive import file_of, read_result
from gt_bench.store.run_store import Store
from gt_bench.utils.errors import UserError
from gt_bench.utils.io import write_json

REASON = "the time on the GPU was over"


def compute(entries: Sequence[Entry], grid: Grid, until: float, jobs: int, out: Path) -> None:
    """Compute the missing runs of the entries until the time is over.

    Args:
        entries: what to compute, in order.
        grid: the grid.
        until: time by `time.time()` at which running processes stop and write a checkpoint.
        jobs: processes side by side.
        out: folder of results.
    """
    shipped = [cell.cell for entry in entries for cell in entry.cells if file_of(cell.cell).exists()]
    if shipped:
        try:
            import_cells(list(dict.fromkeys(shipped)), grid)
        except UserError as error:  # the queue computes what it cannot import
            print(f"shipped records are not imported: {error}", flush=True)
    seconds = until - time.time()
    if seconds > 0:
        work(entries, grid, seconds / 3600, jobs, out / "records", measure=False)
    else:
        print("the time limit was reached before the first run", flush=True)


def collect(entries: Sequence[Entry], grid: Grid, out: Path) -> list[str]:
    """Write the records and checkpoints that the store has of the entries' cells below `out`.

    Returns:
        One line for each cell that cannot be exported, with the reason.
    """
    store, problems = Store(), []
    for entry in entries:
        for cell in entry.cells:
            own, path = limited_grid(grid, cell, entry.limits), Path("results", f"{cell.cell}.json")
            try:
                result = read_result(path, cell.cell)
                found = unfinished(cell, own, REASON, store)
                if found["runs"] and (result is None or len(result["runs"]) < len(found["runs"])):
                    write_json(path, found)
                export_cell(cell, out / "records", store, dirty=True, replace=True)
            except (UserError, OSError) as error:
                problems.append(f"{cell.cell}: not exported: {error}")
    for digest in store.digests():
        source = store.folder(digest) / "checkpoint.safetensors"
        if source.exists():
            target = out / "checkpoints" / digest[:2] / digest / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    return problems


def check(entries: Sequence[Entry], grid: Grid, cells: Sequence[str]) -> str:
    """Return which data of the entries are not packed.

    Raises:
        RecipeError: one of `cells` does not exist.
    """
    for cell in cells:
        grid.find(cell)
    names = dict.fromkeys(cell.dataset for entry in entries for cell in entry.cells)
    absent = [name for name in names if not Path("data", "packed", name, "header.json").exists()]
    if not absent:
        return f"data: all {len(names)} datasets of the queue are packed"
    return (
        f"data: {', '.join(absent)} not in data/packed; the queue prepares them from GT_DATA_MIRROR or the network, "
        "and skips their cells if that fails"
    )


def main() -> int:
    """Run the queue, collect its results, or check its plan."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--until", type=float, required=False, default=time.time() + 300)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--collect", action="store_true")
    parser.add_argument("--check", nargs="*", metavar="CELL")
    given = parser.parse_args()

    def run() -> None:
        grid = load_grid()
        entries = entries_of([], given.plan, grid)
        if given.check is not None:
            print(check(entries, grid, given.check), flush=True)
            return
        if not given.collect:
            compute(entries, grid, given.until, given.jobs, given.out)
        for problem in collect(entries, grid, given.out):
            print(problem, flush=True)

    with handled():
        return status_of(run)


if __name__ == "__main__":
    settle_environment()
    sys.exit(main())
