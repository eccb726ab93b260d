"""Where each millisecond of a cell goes: its recipe as it trains, by our forms and by the definitions in plain torch.

    python benchmarks/cells.py CELL ... [--seconds 20] [--data data] [--trace FOLDER] [--write]

Data that are packed in --data are used; else a miniature of the dataset's size with random features, which the table
names. Every figure is processor time of one thread. "step": forward with its dropout, loss, backward, clipping,
optimiser, on batches that are loaded already; both forms in turn in one process, the median. "floor": the definition's
matrix products at the rate of large ones, or their operands and the optimiser's traffic at the rate of copies,
whichever is longer. "epoch": the loop as it trains, in parts. Memory: largest resident size above what imports and
compiled code take, a process for each form. --trace leaves a trace of a step and an evaluation for chrome://tracing or
ui.perfetto.dev.

A machine with other work prints so: then not even ratios are to be trusted. --write puts the first table into
docs/speed.md, and the ratios to the definitions into `benchmarks/kept.json`, under the processor's name. Without it a
cell that has lost a sixth of such a ratio on a processor of that name is listed, and the status is 1.

Prints: a table of steps and one of an epoch's parts for each cell (the columns: docs/speed.md).
Takes: twice --seconds of processor time a cell, and about a minute for its memory and its floor.
"""

import argparse
import contextlib
import ctypes
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.command import parser_of

ROOT = Path(__file__).parent.parent
# one of each architecture and of what they compare with
CELLS = (
    "ppgt/zinc/ppgt", "tokengt/pcqm4mv2/tokengt-lap", "tokengt/chameleon/tokengt-lap-performer",
    "edge-transformer/zinc/edge-transformer",
    "hot/chains/hot-sparse-kernel", "polynormer/photo/polynormer", "polynormer/cs/polynormer",
    "edge-transformer/zinc/grit", "edge-transformer/zinc/gps", "tokengt/pcqm4mv2/graphormer", "embedded/chains/gcn",
)  # fmt: skip
PAGE, BEGIN, END = ROOT / "docs" / "speed.md", "<!-- benchmarks/cells.py --write -->", "<!-- end -->"
KEPT, LOST = ROOT / "benchmarks" / "kept.json", 1 / 6
GRAPHS = 256  # of a miniature
OTHER_LOAD = 0.1  # cores that other work may take


# -- one measured process ----------------------------------------------------------------------------------------------


class Parts:
    """Processor time by part: `mark(part)` names what runs from now on.

    With the interface of the meter of the loop, which marks nothing.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.totals = {"train": 0.0, "eval": 0.0, "test": 0.0}
        self._part, self._since = "loop", time.process_time()

    def mark(self, part: str) -> None:
        now = time.process_time()
        self.seconds[self._part] += now - self._since
        self._part, self._since = part, now

    @contextlib.contextmanager
    def timing(self, _: str) -> Iterator[None]:
        yield


class Watched:
    """A loader and a task in one's place, which mark what they do."""

    def __init__(self, inner: Any, parts: Parts, limit: int | None = None):
        self._inner, self._parts, self._limit = inner, parts, limit
        self.steps = self.evaluated = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def training(self, epoch: int) -> Iterator[Any]:
        self.steps = 0
        for batch in self._loaded(self._inner.training(epoch)):
            self.steps += 1
            yield batch

    def evaluation(self, part: str) -> Iterator[Any]:
        self.evaluated = 0
        for batch in self._loaded(self._inner.evaluation(part)):
            self.evaluated += 1
            yield batch

    def _loaded(self, batches: Iterator[Any]) -> Iterator[Any]:
        self._parts.mark("loading")
        for count, batch in enumerate(batches, 1):
            self._parts.mark("loop")
            yield batch
            if count == self._limit:
                break
            self._parts.mark("loading")
        self._parts.mark("loop")

    def predict(self, model: Any, batch: Any, rows: Any) -> Any:
        self._parts.mark("forward" if model.training else "evaluation")
        result = self._inner.predict(model, batch, rows)
        self._parts.mark("loop")
        return result

    def loss(self, output: Any, target: Any) -> Any:
        self._parts.mark("forward")
        value = self._inner.loss(output, target)
        self._parts.mark("backward")  # up to the optimiser, clipping included
        return value

    def evaluate(self, outputs: Any, targets: Any) -> Any:
        self._parts.mark("metric")
        with contextlib.suppress(ValueError):  # a part of the validation graphs may hold one class
            return self._inner.evaluate(outputs, targets)
        return {"loss": 0.0, self._inner.metric: 0.0}


class Bench:
    """A cell's experiment in this process.

    Args:
        cell: its name.
        data: folder of packed data.
        store: folder of the run's files.
        compile: mode of torch.compile, with batches of fixed sizes if the dataset has many graphs.
    """

    def __init__(self, cell: str, data: Path, store: Path, compile: str | None = None):
        from gt_bench.config.grid import load_grid
        from gt_bench.config.recipe import load_recipe
        from gt_bench.experiment.run import Experiment
        from gt_bench.runtime.startup import prepare_process
        from gt_bench.store.run_store import Store

        grid = load_grid()
        found = grid.find(cell)
        self.recipe = load_recipe(found.recipe_path)
        if compile:
            batch = self.recipe.batch
            many = batch.model_copy(update={"static": True}) if batch.graphs else batch
            self.recipe = self.recipe.model_copy(update={"compile": compile, "batch": many})
        allocator = prepare_process(grid.run, 1)
        self.experiment = Experiment(self.recipe, cell, found.dataset, grid.run, Store(store), data, allocator)
        if self.experiment.task.runner:
            raise SystemExit(
                f"{cell}: its task has a protocol of its own, which is no sequence of steps; give another cell"
            )
        self.seed = self.recipe.seeds[0]

    def run(self, loader: Any, task: Any, meter: Any, epochs: int = 1, on_epoch: Any = None) -> Any:
        from gt_bench.training.checkpoint import Checkpoint
        from gt_bench.training.trainer import Run

        changes: dict[str, Any] = {"eval_every": 1, "eval_after": None, "patience": None, "start": None}
        if self.recipe.phases:  # the last phase trains the whole model
            changes["phases"] = [
                p.model_copy(update={"epochs": epochs if p is self.recipe.phases[-1] else 1})
                for p in self.recipe.phases
            ]
        else:
            changes["epochs"] = epochs
        recipe = self.recipe.model_copy(update=changes)
        build = self.experiment.build
        return Run(
            recipe, task, loader, build, seed=self.seed, meter=meter, checkpoint=Checkpoint(None), on_epoch=on_epoch
        )

    def stepper(self) -> tuple[Any, Any]:
        """(the run, step()): a training step on one of the first batches, which are loaded already."""
        from itertools import cycle, islice

        from torch import nn

        run = self.run(self.experiment.loader(self.seed), self.experiment.task, Parts())
        run._begin()
        if self.recipe.phases:
            run.model.set_phase(self.recipe.phases[-1].name)
        run.model.train()
        batches, clip = cycle(list(islice(run.loader.training(0), 4))), self.recipe.optimizer.clip_norm

        def step() -> None:
            output, target = run.evaluator.predict(run.model, *next(batches))
            loss = run.task.loss(output, target)
            run.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(run.model.parameters(), clip)
            run.optimizer.step()

        return run, step


def form(name: str) -> contextlib.AbstractContextManager:
    from gt_models.kernels import use

    return use("reference") if name == "plain" else contextlib.nullcontext()


def memory(bench: Bench, name: str) -> dict[str, Any]:
    """Largest resident MiB of three steps, above the memory that remains after a first step.

    What torch and Numba import and compile counts for neither form.

    Of a form that cannot run, why.
    """
    import torch

    from gt_bench.runtime.environment import PeakMemory

    free_at_once()
    meter = PeakMemory(torch.device("cpu"))
    try:
        with form(name):
            run, step = bench.stepper()
            began = time.process_time()
            step()
            first = time.process_time() - began
            parameters = sum(p.numel() for p in run.model.parameters())
            del run, step
            gc.collect()
            meter.start()
            before = meter.read()
            _, step = bench.stepper()
            for _ in range(3 if first < 30 else 1):
                step()
    except RuntimeError as error:
        return {"error": str(error).splitlines()[0]}
    return {"mib": meter.read() - before, "first": first, "parameters": parameters}


def free_at_once() -> None:
    """Makes glibc return freed memory to the system at once; timed runs tell it to keep that memory instead."""
    libc = ctypes.CDLL(None)
    trim_threshold, top_pad, mmap_threshold, mmap_max = -1, -2, -3, -4  # of malloc.h
    for setting, value in ((mmap_max, 2**20), (mmap_threshold, 2**16), (top_pad, 0), (trim_threshold, 0)):
        libc.mallopt(setting, value)


def times(bench: Bench, forms: list[str], seconds: float) -> dict[str, Any]:
    """Median seconds of a step by form, in turn; the floor; an epoch by parts."""
    from benchmarks.counts import Counts

    _, step = bench.stepper()
    taken: dict[str, list[float]] = {name: [] for name in forms}
    for name in forms:
        with form(name):
            step()  # compiles
    began = time.process_time()
    while not taken[forms[0]] or (time.process_time() - began < seconds and len(taken[forms[0]]) < 40):
        for name in forms:
            start = time.process_time()
            with form(name):
                step()
            taken[name].append(time.process_time() - start)
    found: dict[str, Any] = {"step": {name: statistics.median(values) for name, values in taken.items()}}
    if "plain" in forms:
        with form("plain"), Counts() as counts:
            step()
        operations, copies = rates()
        found["counts"] = {name: value for name, value in vars(counts).items() if isinstance(value, int)}
        found |= {"floor": counts.floor(operations, copies), "rates": [operations, copies]}
    return found | epoch(bench, seconds, found["step"]["ours"])


def epoch(bench: Bench, seconds: float, step: float) -> dict[str, Any]:
    """Seconds of the parts of an epoch, per training step, per evaluated batch, and outside of both."""
    parts = Parts()
    limit = max(3, int(seconds / 4 / step))
    loader = Watched(bench.experiment.loader(bench.seed), parts, limit)
    task = Watched(bench.experiment.task, parts)
    seen: list[Counter[str]] = []

    def note(*_: Any) -> None:
        parts.mark("loop")
        seen.append(Counter(parts.seconds))

    length = min(limit, loader.steps_per_epoch)
    epochs = 1 + max(1, min(200, int(seconds / 2 / (length * step * 1.5))))
    run = bench.run(loader, task, parts, epochs, note)
    begin = run._begin

    def hooked() -> None:
        begin()
        run.optimizer.register_step_pre_hook(lambda *_: parts.mark("optimiser"))
        run.optimizer.register_step_post_hook(lambda *_: parts.mark("loop"))

    run._begin = hooked
    outcome = run.train(test=False)
    if outcome.status != "ok":
        raise SystemExit(f"{outcome.status}: {outcome.error}")
    count = min(epochs - 1, len(seen) - 1)
    spent = {part: (seen[-1][part] - seen[-1 - count][part]) / count for part in seen[-1]}
    whole = loader.steps_per_epoch
    batches = loader.evaluated if loader.evaluated < limit or loader.by_node else loader.num_batches("val")
    return {
        "parts": spent, "steps": loader.steps, "whole": whole, "evaluated": loader.evaluated,
        "batches": batches, "epochs": count,
    }  # fmt: skip


def count(bench: Bench) -> dict[str, Any]:
    """What a step computes and moves by the definitions, and which operations of gt_models.kernels it takes."""
    from benchmarks.counts import Counts
    from gt_models.kernels import forms_taken

    _, step = bench.stepper()
    with form("plain"), forms_taken() as taken:
        step()  # optimiser state is made
        with Counts() as counts:
            step()
    return {
        "counts": {name: value for name, value in vars(counts).items() if isinstance(value, int)},
        "operations": sorted(taken),
    }


def trace(bench: Bench, path: Path) -> list[tuple[str, float, int]]:
    """Writes the trace of a step and an evaluation; (operation, self milliseconds, calls) of a step, largest first."""
    from torch.profiler import ProfilerActivity, profile

    run, step = bench.stepper()
    step()
    step()
    with profile(activities=[ProfilerActivity.CPU]) as steps:
        step()
    with profile(activities=[ProfilerActivity.CPU]) as both:
        step()
        run._evaluate("val")
    path.parent.mkdir(parents=True, exist_ok=True)
    both.export_chrome_trace(str(path))
    rows = [(e.key, e.self_cpu_time_total / 1e3, e.count) for e in steps.key_averages()]
    return sorted(rows, key=lambda row: -row[1])


def rates() -> tuple[float, float]:
    """Operations of products (2048 x 2048) and bytes of copies per second of processor time: one thread, best of 6."""
    import torch

    a, source, target = torch.randn(2048, 2048), torch.ones(2**25), torch.empty(2**25)

    def best(work: Any) -> float:
        taken = []
        for _ in range(6):
            start = time.process_time()
            work()
            taken.append(time.process_time() - start)
        return min(taken)

    return 2 * 2048**3 / best(lambda: a @ a), 2 * 4 * source.numel() / best(lambda: target.copy_(source))


# -- the process that asks ---------------------------------------------------------------------------------------------


def prepare(cell: str, data: Path, folder: Path) -> tuple[Path, str]:
    """(folder of data, what they are): the packed dataset with the cell's encodings, or a miniature of its size."""
    from gt_bench.config.grid import load_grid
    from gt_bench.config.recipe import load_recipe
    from gt_bench.data.packed import PackedDataset
    from gt_bench.data.registry import get_spec
    from gt_bench.data.standin import miniature
    from gt_bench.encodings.compute import encode

    found = load_grid().find(cell)
    recipe, name, real = (
        load_recipe(found.recipe_path),
        found.dataset,
        (data / "packed" / found.dataset / "header.json").exists(),
    )
    if real:
        (folder / "packed").mkdir(parents=True, exist_ok=True)
        link = folder / "packed" / name
        if not link.exists():
            link.symlink_to((data / "packed" / name).resolve())
    elif not (folder / "packed" / name).exists():
        miniature(get_spec(name), folder / "packed" / name, life_size=GRAPHS)
    packed = PackedDataset.open(folder / "packed" / name)
    for encoding, arguments in {} if recipe.subgraphs else recipe.encodings.items():
        encode(packed, folder / "encodings" / name, encoding, arguments)
    what = (
        "its data"
        if real
        else f"a miniature: {packed.num_graphs} graph{'s' * (packed.num_graphs > 1)} of the dataset's size, random "
        "features"
    )
    return folder, what


def ask(cell: str, what: str, folder: Path, *more: str, script: str = __file__) -> dict[str, Any]:
    """The answer of a process of its own, and `other`: cores that other work took meanwhile."""
    import psutil

    command = [sys.executable, script, cell, "--one", what, "--data", str(folder), *more]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    before, began, own = psutil.cpu_times(), time.monotonic(), os.times()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    after, took, later = psutil.cpu_times(), time.monotonic() - began, os.times()
    if done.returncode:
        if what == "memory-plain" and done.returncode < 0:  # killed for its memory
            return {"error": f"ended by signal {-done.returncode}", "other": 0.0}
        raise SystemExit(f"{cell}, {what}: {done.stderr[-2000:]}")
    busy = sum(
        getattr(after, f) - getattr(before, f)
        for f in after._fields
        if f not in ("idle", "iowait", "steal", "guest", "guest_nice")
    )
    mine = sum(getattr(later, f) - getattr(own, f) for f in ("user", "system", "children_user", "children_system"))
    return json.loads(done.stdout.splitlines()[-1]) | {"other": max(0.0, (busy - mine) / took)}


def measure(cell: str, data: Path, seconds: float, traces: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gt-cells-") as temporary:
        folder, what = prepare(cell, data, Path(temporary))
        plain = ask(cell, "memory-plain", folder)
        forms = ["ours"] if "error" in plain else ["ours", "plain"]
        found = ask(cell, "times", folder, "--seconds", str(seconds), "--forms", *forms)
        found |= {"cell": cell, "data": what, "plain": plain, "ours": ask(cell, "memory-ours", folder)}
        if traces is not None:
            path = (traces / f"{cell.replace('/', '-')}.json").resolve()
            found["operations"] = ask(cell, "trace", folder, "--trace", str(path))["operations"]
            found["trace"] = str(path)
    return found


def rows(found: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of an epoch of the whole dataset, by part."""
    spent, steps = found["parts"], found["whole"] / found["steps"]
    evaluated = found["batches"] / max(1, found["evaluated"])
    parts = {
        part: 1e3 * spent.get(part, 0.0) * steps for part in ("loading", "forward", "backward", "optimiser", "loop")
    }
    return parts | {
        "evaluation": 1e3 * spent.get("evaluation", 0.0) * evaluated,
        "metric": 1e3 * spent.get("metric", 0.0) * evaluated,
    }


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def processor() -> str:
    """The processor, and the vectors to which ATEN_CPU_CAPABILITY limits torch: their ratios are stored apart."""
    from gt_bench.runtime.environment import cpu_name

    limit = os.environ.get("ATEN_CPU_CAPABILITY")
    return cpu_name() + (f", limited to {limit}" if limit else "")


def steps(all_found: list[dict[str, Any]]) -> list[str]:
    """Returns lines of Markdown: the table of steps."""
    rates_of = next((f["rates"] for f in all_found if "rates" in f), None)
    lines = []
    other = max(f["other"] for f in all_found)
    if other > OTHER_LOAD:
        lines += [f"**Other work took {other:.1f} cores meanwhile: these ratios are not to be trusted.**", ""]
    if rates_of:
        lines += [
            f"{processor()}, one thread: {rates_of[0] / 1e9:.0f} GFLOP/s in large products, "
            f"copies {rates_of[1] / 1e9:.1f} GB/s.",
            "",
        ]
    lines += [
        "| cell | ms | plain ms | faster | floor ms | of floor | MiB | plain MiB |",
        "|---|" + "---|" * 7,
    ]
    for f in all_found:
        ours, plain, floor = f["step"]["ours"], f["step"].get("plain"), f.get("floor")
        lines.append(
            f"| {f['cell']} | {number(1e3 * ours)} | "
            f"{number(plain and 1e3 * plain)} | {number(plain and plain / ours)} | {number(floor and 1e3 * floor)} | "
            f"{number(floor and ours / floor)} | {number(f['ours']['mib'])} | {number(f['plain'].get('mib'))} |"
        )
    return lines


def report(all_found: list[dict[str, Any]]) -> str:
    """Returns Markdown: steps, parts of an epoch, and the slowest operations."""
    lines = steps(all_found)
    names = ["loading", "forward", "backward", "optimiser", "evaluation", "metric", "loop"]
    lines += [
        "",
        "| cell | data | steps | seconds an epoch | " + " | ".join(f"{n} %" for n in names) + " |",
        "|---|---|" + "---|" * 9,
    ]
    for f in all_found:
        parts = rows(f)
        total = sum(parts.values())
        shares = " | ".join(f"{100 * parts[n] / total:.1f}" for n in names)
        lines.append(f"| {f['cell']} | {f['data']} | {f['whole']} | {number(total / 1e3)} | {shares} |")
    for f in all_found:
        if "operations" in f:
            total = sum(ms for _, ms, _ in f["operations"])
            lines += [
                "",
                f"{f['cell']}: a step under the profiler, {number(total)} ms; trace: {f['trace']}",
                "",
                "| operation | ms | % | calls |",
            ]
            lines += ["|---|---|---|---|"]
            lines += [
                f"| {key} | {number(ms)} | {100 * ms / total:.0f} | {calls} |"
                for key, ms, calls in f["operations"][:12]
            ]
    return "\n".join(lines)


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """How many times the definition's milliseconds and MiB are ours; empty where the definition cannot run."""
    if "plain" not in found["step"]:
        return {}
    return {
        "ms": round(found["step"]["plain"] / found["step"]["ours"], 3),
        "mib": round(found["plain"]["mib"] / found["ours"]["mib"], 3),
    }


def lost(all_found: list[dict[str, Any]], kept: dict[str, dict[str, float]]) -> list[str]:
    """Returns a line for each ratio that is a sixth below the stored one; none if other work ran at the same time."""
    return [
        f"{f['cell']}: {name} of the definition {was:g} times ours when it was stored, {now:g} times now"
        for f in all_found
        if f["other"] <= OTHER_LOAD
        for name, now in ratios(f).items()
        if now < (was := kept.get(f["cell"], {}).get(name, 0.0)) * (1 - LOST)
    ]


def write_between(page: Path, begin: str, end: str, text: str) -> None:
    """Puts `text` between the two marks of a page, in place of what is there. Exits where they are gone."""
    whole = page.read_text()
    if not re.search(f"{begin}.*{end}", whole, re.S):
        raise SystemExit(f"{page}: the marks {begin} and {end} are gone; put them around the tables")
    page.write_text(re.sub(f"{begin}.*{end}", lambda _: f"{begin}\n{text}\n{end}", whole, flags=re.S))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="those of CELLS where none is named")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of processor time for a cell's steps, and again for its epochs"
    )
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--trace", type=Path, metavar="FOLDER")
    parser.add_argument("--write", action="store_true", help="into docs/speed.md")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--forms", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        with tempfile.TemporaryDirectory() as store:
            bench, kind = Bench(given.cells[0], given.data, Path(store)), given.one.split("-")
            if kind[0] == "memory":
                answer: dict[str, Any] = memory(bench, kind[1])
            elif kind[0] == "counts":
                answer = count(bench)
            elif kind[0] == "trace":
                answer = {"operations": trace(bench, given.trace)}
            else:
                answer = times(bench, given.forms, given.seconds)
        print(json.dumps(answer))
        return
    from gt_bench.utils.io import write_json

    found = []
    for cell in given.cells or CELLS:
        found.append(measure(cell, given.data.resolve(), given.seconds, given.trace))
        print(report(found[-1:]) + "\n", flush=True)
    kept, name = json.loads(KEPT.read_text()), processor()
    if given.write:
        write_between(PAGE, BEGIN, END, "\n".join(steps(found)))
        write_json(KEPT, kept | {name: kept.get(name, {}) | {f["cell"]: ratios(f) for f in found}})
    elif name not in kept:
        print(
            f"{KEPT} has ratios of {', '.join(kept)} and none of this processor, {name}: nothing is compared",
            file=sys.stderr,
        )
    elif lines := lost(found, kept[name]):
        raise SystemExit("\n".join(lines))


if __name__ == "__main__":
    from gt_bench.runtime.threads import settle_environment

    settle_environment()
    main()
