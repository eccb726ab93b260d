"""A training step of each cell in each form: time, launches, busy time of the device, memory.

    python -m tools.gpu.steps --out FOLDER [--device cpu] [--small] [--authors FOLDER] [--cells CELL ...]
    [--forms FORM ...]

Forms: `ours` (the fast forms), `definitions` (plain torch), `compiled` (batches of fixed sizes and torch.compile, as
`batch.static` and `compile` of a recipe), `replayed` (the same with mode reduce-overhead, which replays CUDA graphs),
`authors` (FOLDER/SUITE.DATASET.ROW.py, a file with a function `stepper(bench)` that returns a training step without
arguments).

Each cell and form is a process of its own. Each row is a line of FOLDER/steps.jsonl as soon as it is known. A process
measures only while it holds a lock, so that others can import, load and compile meanwhile.
"""

import argparse
import contextlib
import fcntl
import gzip
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.gpu.machine import ROOT, cores

if TYPE_CHECKING:
    from gt_bench.training.trainer import Run

# one of each architecture and of what they compare with, as in docs/roofline.md; the most valuable first
CELLS = (
    "ppgt/zinc/ppgt", "polynormer/photo/polynormer", "edge-transformer/zinc/edge-transformer",
    "tokengt/pcqm4mv2/tokengt-lap", "hot/chains/hot-sparse-kernel", "edge-transformer/zinc/grit",
    "edge-transformer/zinc/gps", "tokengt/pcqm4mv2/graphormer",
)  # fmt: skip
SMALL_CELLS = ("embedded/chains/gcn", "embedded/ring-molecules/ppgt")
FORMS = ("ours", "definitions", "authors", "replayed", "compiled")  # of all cells before the next form
MODES = {"compiled": "default", "replayed": "reduce-overhead"}  # of torch.compile
SECONDS = 2.0  # of measured steps
LONGEST = {"compiled": 150.0, "replayed": 150.0}  # seconds of a process, with compilation
LONGEST_EAGER = 60.0
BUSY = {"kernel", "gpu_memcpy", "gpu_memset"}  # categories of a trace
KERNELS = 12  # that are listed


# -- one measured process ----------------------------------------------------------------------------------------------


def device_use(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what a step used of the device, from the events of a trace in Chrome's format.

    Returns:
        `launches`: launches of kernels and graphs by the host; `kernels`: kernels that ran; `busy_ms`: milliseconds in
        which at least one kernel or copy ran; `span_ms`: from the first to the last; `top`: the longest kernels, as
        (name, milliseconds, calls).
    """
    by_name: dict[str, tuple[float, int]] = {}
    intervals, launches, kernels = [], 0, 0
    for event in events:
        category, name = event.get("cat", ""), event.get("name", "")
        if category in BUSY:
            intervals.append((event["ts"], event["ts"] + event["dur"]))
        if category == "kernel":
            kernels += 1
            took, calls = by_name.get(name, (0.0, 0))
            by_name[name] = took + event["dur"], calls + 1
        elif category in ("cuda_runtime", "cuda_driver") and ("LaunchKernel" in name or "GraphLaunch" in name):
            launches += 1
    busy, end = 0.0, float("-inf")
    for first, last in sorted(intervals):
        busy += max(0.0, last - max(first, end))
        end = max(end, last)
    span = end - min(first for first, _ in intervals) if intervals else 0.0
    top = sorted(((name, took / 1e3, calls) for name, (took, calls) in by_name.items()), key=lambda row: -row[1])
    return {
        "launches": launches,
        "kernels": kernels,
        "busy_ms": busy / 1e3,
        "span_ms": span / 1e3,
        "top": top[:KERNELS],
    }


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold the device: only one process measures at a time."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def timed(step: Callable[[], object], wait: Callable[[], object], seconds: float) -> list[float]:
    """Return the milliseconds of each of the steps that fit into `seconds`, three at least and 500 at most."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 500):
        began = time.perf_counter()
        step()
        wait()
        times.append(1e3 * (time.perf_counter() - began))
    return times


def traced(step: Callable[[], object], wait: Callable[[], object], file: Path) -> dict[str, Any]:
    """Profile one step, write its trace as `file` and return `device_use` of it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        step()
        wait()
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        found.export_chrome_trace(str(path))
        content = path.read_bytes()
    file.write_bytes(gzip.compress(content, 6))
    return device_use(json.loads(content)["traceEvents"])


def stepper(
    cell: str, form: str, data: Path, store: Path, authors: Path | None, backend: str
) -> tuple["Run | None", Callable[[], object]]:
    """Return (our run, step) of a cell in a form, on the device of `params.yaml`."""
    from benchmarks.cells import Bench
    from gt_bench.training import static_batches

    static_batches.BACKEND = backend
    bench = Bench(cell, data, store, MODES.get(form))
    if form == "authors":
        assert authors is not None
        spec = importlib.util.spec_from_file_location("authors_code", authors_file(cell, authors))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return None, module.stepper(bench)
    return bench.stepper()


def authors_file(cell: str, folder: Path) -> Path:
    """Return the file with the authors' module of a cell; it need not exist."""
    return folder / f"{cell.replace('/', '.')}.py"


def measure(cell: str, form: str, given: argparse.Namespace) -> dict[str, Any]:
    """Return the row of a cell and a form."""
    import torch

    from benchmarks.cells import prepare
    from gt_models.kernels import forms_taken, use

    cuda = torch.cuda.is_available()
    wait = torch.cuda.synchronize if cuda else lambda: None
    backend = "aot_eager" if given.small else "inductor"
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gt-gpu-")))
        folder, data = prepare(cell, given.data.resolve(), temporary)
        if form == "definitions":
            stack.enter_context(use("reference"))
        run, step = stepper(cell, form, folder, temporary / "store", given.authors, backend)
        row: dict[str, Any] = {
            "data": data,
            "parameters": sum(p.numel() for p in run.model.parameters()) if run else None,
        }
        if form in MODES:
            row["backend"] = backend
        with forms_taken(training=True) as taken:
            began = time.perf_counter()
            step()
            wait()
            row["first_step_seconds"] = round(time.perf_counter() - began, 2)
            for _ in range(8 if form in MODES else 2):  # each batch twice: warm-up of its graph
                step()
        with alone(given.out / "steps.lock"):
            if cuda:
                wait()
                torch.cuda.reset_peak_memory_stats()
            times = timed(step, wait, 0.3 if given.small else SECONDS)
            quantiles = statistics.quantiles(times, n=10)
            row |= {"ms": statistics.median(times), "ms_10": quantiles[0], "ms_90": quantiles[-1], "steps": len(times)}
            if cuda:
                row["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
            row |= traced(step, wait, given.out / "traces" / f"{cell.replace('/', '.')}.{form}.json.gz")
        row["busy_share"] = row["busy_ms"] / row["ms"] if cuda else None
        row["forms"] = {name: dict(counts) for name, counts in taken.items()}
        if form in MODES:
            counters = torch._dynamo.utils.counters
            row["graphs"] = counters["stats"]["unique_graphs"]
            row["graph_breaks"] = dict(counters["graph_break"])
        if run is not None and run.static is not None:
            row["static"] = run.static.report()
    return row


# -- the process that asks ---------------------------------------------------------------------------------------------


def pairs(cells: Sequence[str], authors: Path | None, forms: Sequence[str] = FORMS) -> list[tuple[str, str]]:
    """Return (cell, form) in the order of their value."""
    return [
        (cell, form)
        for form in forms
        for cell in cells
        if form != "authors" or (authors is not None and authors_file(cell, authors).exists())
    ]


def ask(cell: str, form: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the row of a process of its own; if it fails, a row with `error`."""
    command = [sys.executable, "-m", "tools.gpu.steps", *arguments, "--one", cell, form]
    began = time.monotonic()
    row: dict[str, Any] = {"cell": cell, "form": form}
    try:
        longest = LONGEST.get(form, LONGEST_EAGER)
        done = subprocess.run(command, capture_output=True, text=True, timeout=longest)
    except subprocess.TimeoutExpired as error:
        return row | {"error": f"no result within {error.timeout:.0f} s"}
    row["seconds"] = round(time.monotonic() - began, 1)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        why = lines[-1] if lines else f"ended with status {done.returncode}"
        return row | {"error": why[:500], "traceback": "\n".join(lines[-30:])}
    return row | json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    """Measure all pairs; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--authors", type=Path)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--cells", nargs="+", metavar="CELL")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS, metavar="FORM")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.out = given.out.resolve()
    if given.one:
        from gt_bench.runtime.threads import settle_environment

        settle_environment()
        print(json.dumps({"cell": given.one[0], "form": given.one[1]} | measure(given.one[0], given.one[1], given)))
        return 0
    cells = given.cells or (SMALL_CELLS if given.small else CELLS)
    side, writing, failed = max(1, min(4, cores() // 4)), threading.Lock(), []

    def work(pair: tuple[str, str]) -> None:
        row = ask(*pair, sys.argv[1:])
        with writing, (given.out / "steps.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            if "error" in row:
                failed.append(pair)
                print(f"{row['cell']} {row['form']}: {row['error']}", flush=True)
                return
            used = f", {row['kernels']} kernels, busy {row['busy_ms']:.2f} ms" if row["kernels"] else ""
            print(f"{row['cell']} {row['form']}: {row['ms']:.2f} ms{used}", flush=True)

    with ThreadPoolExecutor(side) as pool:
        list(pool.map(work, pairs(cells, given.authors, given.forms)))
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    sys.exit(main())
