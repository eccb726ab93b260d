"""HOT's runtime study (Kim et al. 2021, Figure 3).

It measures forward and backward time, peak memory and the largest input of all second-order models.

    python benchmarks/hot_scaling.py [--sizes 6 102 1158] [--graphs 10] [--device auto] [--memory 22] [--seconds 120]
                                     [--out benchmarks/results]

Writes hot_scaling.csv (a row per model, size and graph) and hot_scaling.png (the figure), and prints the largest input
of each model. This is no cell of the grid: there is no dataset to learn, the paper has a figure without numbers,
and the result depends on the machine as much as on the model.

As the authors measured (run_perf_tests.py): Barabasi-Albert graphs, 5 edges per new node, seeds 0..9, both directions;
16 normal numbers per node and edge; 4 layers 2->2, then 2->0, all widths 32, 4 heads, no dropout, batch of one,
training mode, no redraw of the projection. A model stops at its first size that fails: out of memory (--memory GiB:
theirs was a card of 22) or slower than --seconds.

deviates: tuples are looked up inside the forward pass here (the authors build them, untimed, with the batch), so our
time includes that; a first pass that compiles kernels is not counted (they count their first one).

Prints: for each model the largest input, and writes hot_scaling.csv and .png.
Takes: at most --seconds a pass: hours for the sizes of the paper on a CPU, a minute with --sizes 6 102 --graphs 2.
"""

import csv
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
import torch
from torch import nn

from benchmarks.command import parser_of
from gt_bench.data.families.generated import barabasi_albert
from gt_bench.runtime.environment import PeakMemory, choose_device
from gt_bench.runtime.malloc import keep_allocations
from gt_bench.training.failures import is_out_of_memory
from gt_models import create_model
from gt_models.batch import GraphBatch

SIZES = (
    6, 9, 12, 18, 25, 36, 51, 72, 102, 144, 204, 289, 409, 579, 819, 1158, 1638, 2317, 3276, 4634, 6553, 9268,
    13107, 18536, 26214, 37072, 52428,
)  # fmt: skip
WIDTH = 32
# the figure's names -> model and what is its own
MODELS: dict[str, dict[str, Any]] = {
    "MLP_pi (D)": {"name": "mlp-pi", "form": "dense"},
    "Ours (D)": {"name": "hot-released", "form": "dense", "attention": "softmax"},
    "Ours (D, phi)": {"name": "hot-released", "form": "dense", "attention": "kernel"},
    "MLP_pi (S)": {"name": "mlp-pi", "form": "sparse"},
    "Ours (S)": {"name": "hot-released", "form": "sparse", "attention": "softmax"},
    "Ours (S, phi)": {"name": "hot-released", "form": "sparse", "attention": "kernel"},
}
COLUMNS = (
    "model",
    "nodes",
    "edges",
    "graph",
    "status",
    "forward_seconds",
    "backward_seconds",
    "peak_mib",
    "device",
    "threads",
)


def build(model: str) -> nn.Module:
    """One of MODELS in training mode, 16 -> 32."""
    arguments = dict(MODELS[model])
    common = {
        "in_dim": 16,
        "edge_dim": 16,
        "out_dim": WIDTH,
        "level": "graph",
        "hidden_dim": WIDTH,
        "num_layers": 4,
    }
    common |= (
        {"num_heads": 4, "redraw_interval": None} if arguments["name"] == "hot-released" else {"normalize_sums": True}
    )
    return create_model(arguments.pop("name"), **common, **arguments).train()


def graph(size: int, seed: int) -> GraphBatch:
    """The graph of `random-graphs` with this size and seed."""
    rng = np.random.default_rng([seed, size])
    edges = barabasi_albert(size, 5, rng)
    x, edge_attr = (torch.from_numpy(rng.standard_normal((rows, 16), np.float32)) for rows in (size, edges.shape[1]))
    return GraphBatch(x, torch.from_numpy(edges), torch.tensor([0, size]), edge_attr)


def walk(model: str, sizes: list[int], graphs: int, device: torch.device, seconds: float) -> Iterator[dict[str, Any]]:
    """A row per size and graph, up to and with the first that fails."""
    torch.manual_seed(0)
    module, memory = build(model).to(device), PeakMemory(device)
    module(graph(12, 0).to(device)).sum().backward()  # kernels are compiled at their first use
    for size in sizes:
        for seed in range(graphs):
            batch = graph(size, seed).to(device)
            row = {
                "model": model,
                "nodes": size,
                "edges": batch.num_edges,
                "graph": seed,
                "status": "ok",
                "device": device.type,
            }
            row["threads"] = torch.get_num_threads()
            memory.start()
            before = 0.0 if device.type == "cuda" else memory.read()
            try:
                start = _now(device)
                loss = module(batch).sum()
                middle = _now(device)
                loss.backward()
                row |= {
                    "forward_seconds": middle - start,
                    "backward_seconds": _now(device) - middle,
                    "peak_mib": memory.read() - before,
                }
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                row["status"] = "oom"
            module.zero_grad()
            if row["status"] == "ok" and row["forward_seconds"] + row["backward_seconds"] > seconds:
                row["status"] = "slow"
            yield row
            if row["status"] != "ok":
                return


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def child(task: dict[str, Any]) -> None:
    """One model in a process of its own, bounded in memory: a row per line of output."""
    device, limit = torch.device(task["device"]), int(task["memory"] * 2**30)
    keep_allocations()
    torch.set_num_threads(task["threads"])
    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(
            min(1.0, limit / torch.cuda.get_device_properties(device).total_memory)
        )
    else:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    for row in walk(task["model"], task["sizes"], task["graphs"], device, task["seconds"]):
        print(json.dumps(row), flush=True)


def largest(rows: list[dict[str, Any]]) -> dict[str, tuple[int, str]]:
    """Model -> (directed edges of the largest size that all graphs passed, why it went no further)."""
    found = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        failed = next((row for row in mine if row["status"] != "ok"), None)
        passed = [
            row["edges"] for row in mine if row["status"] == "ok" and (failed is None or row["nodes"] < failed["nodes"])
        ]
        found[model] = (max(passed, default=0), failed["status"] if failed else "all sizes")
    return found


def write(rows: list[dict[str, Any]], out: Path) -> None:
    """hot_scaling.csv and hot_scaling.png below `out`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    out.mkdir(parents=True, exist_ok=True)
    with open(out / "hot_scaling.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, (column, scale, label) in zip(
        axes, (("forward_seconds", 1e3, "forward, ms"), ("peak_mib", 1, "peak memory, MiB")), strict=True
    ):
        for model in dict.fromkeys(row["model"] for row in rows):
            mine = [row for row in rows if row["model"] == model and row["status"] == "ok"]
            edges = sorted({row["edges"] for row in mine})
            values = [[scale * row[column] for row in mine if row["edges"] == e] for e in edges]
            axis.errorbar(
                edges, [np.mean(v) for v in values], [np.std(v) for v in values], label=model, marker=".", capsize=2
            )
        axis.set(xscale="log", yscale="log", xlabel="directed edges", ylabel=label)
    axes[0].legend(fontsize="small")
    figure.savefig(out / "hot_scaling.png", dpi=150)
    plt.close(figure)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--graphs", type=int, default=10)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", type=float, default=22.0, help="GiB")
    parser.add_argument("--seconds", type=float, default=120.0, help="of one forward and backward pass")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    device, rows = choose_device(given.device), []
    for model in given.models:
        task = {
            "model": model,
            "sizes": sorted(given.sizes),
            "device": device.type,
            **{k: getattr(given, k) for k in ("graphs", "threads", "memory", "seconds")},
        }
        done = subprocess.run(
            [sys.executable, __file__, "--child", json.dumps(task)], stdout=subprocess.PIPE, text=True
        )
        mine = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode < 0:  # killed by the system: it had no memory left to refuse
            size = next((s for s in sorted(given.sizes) if sum(r["nodes"] == s for r in mine) < given.graphs), None)
            mine.append(
                {
                    "model": model,
                    "nodes": size,
                    "edges": 10 * (size - 5),
                    "graph": 0,
                    "status": "oom",
                    "device": device.type,
                    "threads": given.threads,
                }
            )
        elif done.returncode:
            sys.exit(f"{model}: ended with status {done.returncode}")
        rows += mine
        edges, why = largest(mine)[model]
        print(f"{model:14} up to {edges:>7,} edges ({why})", flush=True)
    write(rows, given.out)
    print(f"{given.out / 'hot_scaling.csv'}, {given.out / 'hot_scaling.png'}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
    else:
        main()
