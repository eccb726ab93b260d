"""Speed by threads: one seed of a few embedded cells, alone and next to two busy processes.

On one thread and on two that spin or sleep.

    python benchmarks/threads.py [--epochs 8] [--busy 0 2] [--cells CELL ...] [--suite]

Each figure is milliseconds of a median epoch by the wall clock (training and validation), in a process of its own. Two
threads that spin lose their time slice to whatever else runs while the other waits, so each measurement has a limit
(--limit seconds, printed as `>`). `--suite`: also the whole embedded suite as `make reproduce` runs it, in a fresh
clone with the current commit, alone and next to the busy processes. Prints Markdown.

Prints: the tables of docs/speed.md on threads, in Markdown.
Takes: at most --limit seconds for each cell, form and number of busy processes. --suite adds four `make reproduce`.
"""

import argparse
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.command import parser_of

ROOT = Path(__file__).parent.parent
CELLS = (
    "embedded/chains/gcn",
    "embedded/torus-colours/polynormer",
    "embedded/ring-molecules/ppgt",
    "embedded/chains/tokengt",
)
FORMS = {
    "1 thread": (1, {}),
    "2, spinning": (2, {"OMP_WAIT_POLICY": "active"}),
    "2, asleep": (2, {"OMP_WAIT_POLICY": "passive"}),
}


def epochs_of(cell: str, threads: int, epochs: int) -> None:
    """In a process of its own: prints the median milliseconds of an epoch, the first one (which warms up) aside."""
    from gt_bench.config.grid import load_grid
    from gt_bench.config.recipe import load_recipe
    from gt_bench.experiment.run import Experiment
    from gt_bench.runtime.startup import prepare_process
    from gt_bench.store.run_store import Store

    grid = load_grid()
    found = grid.find(cell)
    recipe = load_recipe(found.recipe_path)
    changes: dict = {"threads": threads}
    if recipe.phases:
        each = max(1, epochs // len(recipe.phases))
        changes["phases"] = [phase.model_copy(update={"epochs": each}) for phase in recipe.phases]
    else:
        changes["epochs"] = epochs
    recipe, stamps = recipe.model_copy(update=changes), []
    allocator = prepare_process(grid.run, threads)
    with tempfile.TemporaryDirectory() as store:
        experiment = Experiment(recipe, cell, found.dataset, grid.run, Store(store), Path("data"), allocator)
        experiment.run(recipe.seeds[0], on_epoch=lambda *_: stamps.append(time.perf_counter()))
    print(1e3 * statistics.median(b - a for a, b in zip(stamps, stamps[1:])))


@contextlib.contextmanager
def beside(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measured(cell: str, threads: int, environment: dict[str, str], epochs: int, limit: float) -> str:
    command = [sys.executable, __file__, "--one", cell, str(threads), "--epochs", str(epochs)]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    began = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=clean | {"PYTHONPATH": str(ROOT)} | environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f">{1e3 * (time.perf_counter() - began) / epochs:,.0f}"
    if done.returncode:
        raise SystemExit(done.stderr)
    return f"{float(done.stdout.splitlines()[-1]):,.0f}"


def suite_seconds(parallel: str, python: str) -> float:
    """The embedded suite from an empty store, by `dvc repro` in a clone of the current commit; generates its data."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder, "clone")
        subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
        params = clone / "params.yaml"
        params.write_text(re.sub(r"^  parallel: \w+", f"  parallel: {parallel}", params.read_text(), flags=re.M))
        environment = os.environ | {
            "PYTHONPATH": str(clone),
            "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}",
        }
        environment.pop("MLFLOW_TRACKING_URI", None)
        began = time.perf_counter()
        subprocess.run(
            [python, "-m", "dvc", "repro", "leaderboard@embedded"],
            cwd=clone,
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return time.perf_counter() - began


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--cells", nargs="+", default=CELLS)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 2], help="numbers of busy processes next to it")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one measurement")
    parser.add_argument("--suite", action="store_true", help="the whole embedded suite too")
    parser.add_argument("--one", nargs=2, metavar=("CELL", "THREADS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        epochs_of(given.one[0], int(given.one[1]), given.epochs)
        return
    for dataset in dict.fromkeys(cell.split("/")[1] for cell in given.cells):
        for stage in ("download", "encode"):
            subprocess.run(
                [sys.executable, "-m", f"stages.{stage}", dataset], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
            )
    columns = [(busy, form) for busy in given.busy for form in FORMS]
    print("Milliseconds of an epoch:\n")
    print(
        "| cell | " + " | ".join(f"{form}{f', {busy} busy processes' if busy else ''}" for busy, form in columns) + " |"
    )
    print("|" + " --- |" * (len(columns) + 1), flush=True)
    for cell in given.cells:
        row = []
        for busy, form in columns:
            threads, environment = FORMS[form]
            with beside(busy):
                row.append(measured(cell, threads, environment, given.epochs, given.limit))
        print(f"| {cell} | " + " | ".join(row) + " |", flush=True)
    if given.suite:
        if shutil.which("git") is None:
            raise SystemExit("--suite needs git")
        print(
            "\nThe embedded suite, seconds:\n\n| run.parallel | "
            + " | ".join(f"{busy} busy processes" for busy in given.busy)
            + " |"
        )
        print("|" + " --- |" * (len(given.busy) + 1), flush=True)
        for parallel in ("auto", "1"):
            row = []
            for busy in given.busy:
                with beside(busy):
                    row.append(f"{suite_seconds(parallel, sys.executable):,.0f}")
            print(f"| {parallel} | " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
