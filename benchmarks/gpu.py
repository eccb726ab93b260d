"""A cell's training step on a GPU, by our forms and by the definitions in plain torch, in turn in one process.

    python benchmarks/gpu.py [CELL ...] [--compile MODE] [--seconds 5] [--data data] [--trace FOLDER]

Without cells, those of docs/speed.md. Data that are not packed in --data are replaced by miniatures of the dataset's
size. --compile measures ours with batches of fixed sizes and torch.compile, as `compile: MODE` of a recipe. A step is
forward with its dropout, loss, backward, clipping and optimiser, on batches that are on the device already;
the clock stops when the device has finished. MiB: the most that tensors held at once on it. --trace prints the eight
kernels that take most of a step and leaves a trace for ui.perfetto.dev.

Prints: a row for each cell: parameters, which forms its operations took, ms and MiB of both, their ratio.
Takes: twice --seconds a cell and some for Triton's compiler; ends with status 1 where torch sees no GPU.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.cells import CELLS, Bench, form, prepare
from benchmarks.command import parser_of


def measured(step: Callable[[], None], seconds: float) -> tuple[list[float], float]:
    """Milliseconds of each of the steps that fit into `seconds`, three at least, and the most MiB that tensors held."""
    import torch

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        began = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    return times, torch.cuda.max_memory_allocated() / 2**20


def trace(step: Callable[[], None], file: Path) -> None:
    """What a step launches, printed and written."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        step()
    print(found.key_averages().table(sort_by="self_cuda_time_total", row_limit=8, max_name_column_width=60))
    found.export_chrome_trace(str(file))


def main() -> int:
    import torch

    parser = parser_of(__doc__)
    parser.add_argument("cells", nargs="*", default=CELLS, metavar="CELL")
    parser.add_argument("--compile", metavar="MODE", help="default or reduce-overhead")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each form's steps (default: 5)")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder of packed data (default: data)")
    parser.add_argument("--trace", type=Path, metavar="FOLDER", help="where a trace of each cell goes")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch sees no GPU: `python benchmarks/cells.py` measures on the CPU", file=sys.stderr)
        return 1
    from gt_models.kernels import forms_taken

    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n"
        "\n"
        "| cell | forms | ms | plain ms | faster | MiB | plain MiB |\n" + "|---" * 7 + "|"
    )
    for cell in arguments.cells:
        rows = {}
        for name in ("ours", "plain"):
            torch.cuda.empty_cache()
            with tempfile.TemporaryDirectory() as store, form(name), forms_taken(training=True) as taken:
                try:
                    data, _ = prepare(cell, arguments.data, Path(store))
                    mode = arguments.compile if name == "ours" else None
                    _, step = Bench(cell, data, Path(store, "runs"), mode).stepper()
                    rows[name] = measured(step, arguments.seconds)
                except torch.cuda.OutOfMemoryError:
                    rows[name] = [float("nan")], float("nan")
                    continue
                if name == "ours":
                    forms = ", ".join(
                        f"{operation} {kind}" for operation, kinds in sorted(taken.items()) for kind in kinds
                    )
                    if arguments.trace:
                        arguments.trace.mkdir(parents=True, exist_ok=True)
                        trace(step, arguments.trace / f"{cell.replace('/', '.')}.json")
            del step
        (ms, mib), (plain, plain_mib) = ((statistics.median(times), mib) for times, mib in rows.values())
        print(
            f"| {cell} | {forms} | {ms:.1f} | {plain:.1f} | {plain / ms:.2f} | {mib:,.0f} | {plain_mib:,.0f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
