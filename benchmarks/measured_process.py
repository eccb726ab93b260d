"""Shared code of the benchmarks: time and memory of a training step in a separate process, rates, inputs, tables.

A benchmark script defines builders, functions of plain arguments that return (model, loss): `loss()` runs the forward
pass. Then

    result = measure("benchmarks.edge_transformer:ours", num_nodes=128)         # a fresh process: median step, peak
    memory rates = machine_rates()                                                      # this machine, now floor =
    rates.floor_ms(flops=..., bytes=...)                                 # what arithmetic and memory traffic alone
    would take print_table("Edge Transformer", ["case", "ms", "MiB"], rows)

A script begins with `sys.path.insert(0, str(Path(__file__).parent.parent))`, so that `python benchmarks/NAME.py` finds
this file.

Every measurement uses the same number of threads and the same allocator setting (`KEEP_MEMORY`: glibc then keeps freed
memory instead of returning it to the system after each large tensor, which alone changes a step by up to 2.6x). On a
busy machine compare ratios, not milliseconds: `measure_together` interleaves the processes of the cases it compares.
"""

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from gt_models.batch import GraphBatch

ROOT = Path(__file__).parent.parent
NUM_THREADS = 2
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "68719476736", "MALLOC_TOP_PAD_": "268435456"}


@dataclass(frozen=True)
class Measurement:
    """A training step (forward, backward, AdamW): median milliseconds, peak MiB above imports, parameters.

    `cpu_ms` is the processor time of all threads, which other processes on the machine lengthen far less than `ms`; set
    OMP_WAIT_POLICY=passive with it, or threads that wait count too.
    """

    ms: float
    peak_mib: float
    parameters: int
    repeats: int
    cpu_ms: float = 0.0


@dataclass(frozen=True)
class Rates:
    """float32 rates of this machine: matrix products in FLOP/s, copies in bytes/s (read plus written)."""

    flops: float
    bytes: float

    def floor_ms(self, flops: float = 0.0, bytes: float = 0.0) -> float:
        """Milliseconds that `flops` operations and `bytes` of traffic take at these rates, whichever is longer."""
        return 1e3 * max(flops / self.flops, bytes / self.bytes)


def measure(
    builder: str,
    *,
    threads: int = NUM_THREADS,
    keep_memory: bool = True,
    repeats: int = 5,
    seconds: float = 60.0,
    **arguments: object,
) -> Measurement:
    """Builds `builder` ("module:function") with `arguments` in a fresh process and measures its step.

    Two steps of warm-up, then `repeats` timed ones, fewer (at least one) once `seconds` are over. Raises RuntimeError
    with the process' own error where it fails.
    """
    task = {"builder": builder, "arguments": arguments, "threads": threads, "repeats": repeats, "seconds": seconds}
    environment = {k: v for k, v in os.environ.items() if k not in KEEP_MEMORY} | (KEEP_MEMORY if keep_memory else {})
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "benchmarks.measured_process", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{builder} with {arguments} ended with status {done.returncode}:\n{done.stderr[-2000:]}")
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def measure_together(builders: Sequence[str], *, rounds: int = 2, **arguments: object) -> list[Measurement]:
    """Several builders with the same arguments, alternating for `rounds` rounds; returns the fastest round of each."""
    taken = [[measure(builder, **arguments) for builder in builders] for _ in range(rounds)]
    return [min(column, key=lambda m: m.ms) for column in zip(*taken, strict=True)]


def machine_rates(threads: int = NUM_THREADS) -> Rates:
    """Rates of square matrix products (2048) and of copies (256 MB), best of a few."""
    torch.set_num_threads(threads)
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    source, target = torch.ones(2**26), torch.empty(2**26)
    product = min(_time(lambda: torch.mm(a, b)) for _ in range(6))
    copy = min(_time(lambda: target.copy_(source)) for _ in range(6))
    return Rates(2 * 2048**3 / product, 2 * source.numel() * 4 / copy)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table on standard output: floats with three digits, the rest as it is."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(
            *[(f"{v:,.0f}" if abs(v) >= 100 else f"{v:.3g}") if isinstance(v, float) else str(v) for v in row]
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def count_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


# -- inputs ------------------------------------------------------------------------------------------------------------


def molecules(
    num_graphs: int = 32, nodes: tuple[int, int] = (15, 30), rings: tuple[int, int] = (1, 4), seed: int = 0
) -> GraphBatch:
    """Random trees of degree at most 4 with a few more edges; atoms 0..20, bonds 1..3, y ~ N(0, 1) per graph [B, 1].

    The defaults are the "ZINC" case: 734 nodes, 1,560 directed edges, 17,568 pairs. "PCQM": nodes (10, 18), rings (1,
    2).
    """
    rng = np.random.default_rng(seed)
    ptr, sources, targets, bonds, atoms, y = [0], [], [], [], [], []
    for _ in range(num_graphs):
        n = int(rng.integers(nodes[0], nodes[1] + 1))
        degree, edges = [0] * n, []
        for i in range(1, n):
            open_nodes = [j for j in range(i) if degree[j] < 4]
            edges.append((open_nodes[int(rng.integers(len(open_nodes)))], i))
            degree[edges[-1][0]] += 1
            degree[i] += 1
        wanted = len(edges) + int(rng.integers(rings[0], rings[1] + 1))
        for _ in range(1000):
            if len(edges) == wanted:
                break
            a, b = sorted(int(v) for v in rng.integers(0, n, 2))
            if a != b and (a, b) not in edges and degree[a] < 4 and degree[b] < 4:
                edges.append((a, b))
                degree[a] += 1
                degree[b] += 1
        kinds = rng.integers(1, 4, len(edges)).tolist()
        atoms.append(rng.integers(0, 21, n))
        y.append(rng.standard_normal())
        for (a, b), kind in zip(edges, kinds, strict=True):
            sources += [ptr[-1] + a, ptr[-1] + b]
            targets += [ptr[-1] + b, ptr[-1] + a]
            bonds += [kind, kind]
        ptr.append(ptr[-1] + n)
    return GraphBatch(
        torch.from_numpy(np.concatenate(atoms))[:, None],
        torch.tensor([sources, targets]),
        torch.tensor(ptr),
        torch.tensor(bonds)[:, None],
        torch.tensor(y, dtype=torch.float32)[:, None],
    )


def node_graph(
    num_nodes: int, num_features: int = 100, num_classes: int = 10, seed: int = 0
) -> tuple[GraphBatch, Tensor]:
    """A random graph of 2.5 n undirected pairs, mean degree 5, one self-loop per node; half the nodes for training."""
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, num_nodes, (2, int(2.5 * num_nodes)))
    pairs = np.unique(np.sort(pairs[:, pairs[0] != pairs[1]], 0), axis=1)
    loops = np.tile(np.arange(num_nodes), (2, 1))
    edge_index = torch.from_numpy(np.concatenate([pairs, pairs[::-1], loops], 1))
    x = torch.from_numpy(rng.standard_normal((num_nodes, num_features), dtype=np.float32))
    y, mask = torch.from_numpy(rng.integers(0, num_classes, num_nodes)), torch.from_numpy(rng.random(num_nodes) < 0.5)
    return GraphBatch(x, edge_index, torch.tensor([0, num_nodes]), y=y), mask


def sparse_graph(num_edges: int, num_features: int = 16, seed: int = 0) -> GraphBatch:
    """HOT's case: n = E / 10 nodes, E / 2 distinct pairs stored in both directions, features N(0, 1)."""
    rng = np.random.default_rng(seed)
    n = num_edges // 10
    chosen = rng.choice(n * (n - 1) // 2, num_edges // 2, replace=False)
    # pair number -> (i, j), i < j, counting row by row
    i = (n - 2 - np.floor(np.sqrt(4.0 * n * (n - 1) - 8.0 * chosen - 7) / 2 - 0.5)).astype(np.int64)
    j = chosen + i + 1 - n * (n - 1) // 2 + (n - i) * (n - i - 1) // 2
    edge_index = torch.from_numpy(np.concatenate([np.stack([i, j]), np.stack([j, i])], 1))
    x = torch.from_numpy(rng.standard_normal((n, num_features), dtype=np.float32))
    half = rng.standard_normal((num_edges // 2, num_features), dtype=np.float32)
    return GraphBatch(x, edge_index, torch.tensor([0, n]), torch.from_numpy(np.concatenate([half, half])))


# -- the measured process ----------------------------------------------------------------------------------------------


def _time(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _memory_mib(field: str) -> float:
    """A field of /proc/self/status (VmRSS, VmHWM) in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {field}: peak memory can be measured on Linux only")


def _run(task: dict) -> Measurement:
    torch.set_num_threads(task["threads"])
    torch.manual_seed(0)
    module, _, function = task["builder"].partition(":")
    build = getattr(importlib.import_module(module), function)
    baseline = _memory_mib("VmHWM")  # after imports, before inputs and weights
    model, loss = build(**task["arguments"])
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss().backward()
        optimiser.step()

    start = time.perf_counter()
    first = _time(step)  # includes what is done once: allocation, compilation
    if first < task["seconds"]:
        step()
    times, cpu = [], []
    while not times or (len(times) < task["repeats"] and time.perf_counter() - start < task["seconds"]):
        before = time.process_time()
        times.append(_time(step))
        cpu.append(time.process_time() - before)
    peak = _memory_mib("VmHWM") - baseline
    return Measurement(
        1e3 * statistics.median(times), peak, count_parameters(model), len(times), 1e3 * statistics.median(cpu)
    )


if __name__ == "__main__":
    print(json.dumps(asdict(_run(json.loads(sys.argv[1])))))
