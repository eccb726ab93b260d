"""HOT's training step against the plain reading of its equations, and its growth from 1k to 100k edges.

    python benchmarks/hot.py [--quick] [--threads 2]

Case: 4 x Enc 2->2, then 2->0, generalized kernel, width 32, 4 heads, the authors' form (387,840 parameters), one random
graph of mean degree 10, loss the sum of outputs, the support (sorting, transposes) computed again in every step. Plain:
the same layers by their equations (`kernels.use("reference")`). The authors' implementation took, with its own batch
building, on two threads of a machine of 160 GFLOP/s (shared/papers/MATH.md): 1k edges 361 ms and 722 MiB, 10k
4,382 and 2,810, 50k 38,234 and 12,173; softmax 1k 1,732 and 1,540.

Prints: a table of a step, ours and plain, with two floors and the authors' figures; and one of the growth with edges.
Takes: some minutes with --quick, and many times that without: 50,000 edges in plain torch are most of it.
"""

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.command import parser_of
from benchmarks.measured_process import NUM_THREADS, machine_rates, measure, measure_together, print_table, sparse_graph
from gt_models import kernels
from gt_models.batch import GraphBatch

AUTHORS_MS = {("kernel", 1_000): 361, ("kernel", 10_000): 4_382, ("kernel", 50_000): 38_234, ("softmax", 1_000): 1_732}
AUTHORS_FLOPS = 160e9  # matrix products there, a second
Builder = tuple[nn.Module, Callable[[], Tensor]]


def ours(num_edges: int, attention: str) -> Builder:
    from gt_models import create_model

    batch = sparse_graph(num_edges)
    model = create_model(
        "hot-released", in_dim=16, out_dim=32, edge_dim=16, hidden_dim=32, num_layers=4, num_heads=4,
        attention=attention, redraw_interval=None,
    )  # fmt: skip
    return model, lambda: model(GraphBatch(batch.x, batch.edge_index, batch.ptr, batch.edge_attr)).sum()


def plain(num_edges: int, attention: str) -> Builder:
    model, loss = ours(num_edges, attention)

    def reference() -> Tensor:
        with kernels.use("reference"):
            return loss()

    return model, reference


def hyperedges(num_nodes: int = 400, num_hyperedges: int = 2_000) -> Builder:
    """Two layers 1 -> 1 and one 1 -> 3 of width 64, as in HOT's Table 4."""
    from gt_models import create_model

    rng = torch.Generator().manual_seed(0)
    triples = torch.stack([torch.randperm(num_nodes, generator=rng)[:3] for _ in range(num_hyperedges)])
    x, no_edges = torch.randn(num_nodes, 64, generator=rng), torch.zeros(2, 0, dtype=torch.long)
    extras = {"hyperedge_index": triples}
    model = create_model(
        "hot-released", in_dim=64, out_dim=1, level="hyperedge", hidden_dim=64, num_layers=2, num_heads=4,
        attention="kernel", head_dims=[64, 64], head_dropout=0.1, redraw_interval=None,
    )  # fmt: skip
    return model, lambda: model(GraphBatch(x, no_edges, torch.tensor([0, num_nodes]), extras=extras)).sum()


def work(num_edges: int, attention: str) -> tuple[float, float]:
    """Operations of the matrix products of one of our steps, and bytes that autograd keeps, written once and read once.

    The kernel's products are counted as those of its reference.
    """
    kept = {}

    def pack(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    _, loss = ours(num_edges, attention)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        loss().backward()
    with kernels.use("reference"):
        _, loss = ours(num_edges, attention)
        with FlopCounterMode(display=False) as counter:
            loss().backward()
    return float(counter.get_total_flops()), 2.0 * sum(kept.values())


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="small cases only")
    parser.add_argument("--threads", type=int, default=NUM_THREADS, help="1 on a busy machine")
    arguments = parser.parse_args()
    quick, threads = arguments.quick, arguments.threads
    cases = [("kernel", 1_000), ("softmax", 1_000), ("kernel", 10_000)] + ([] if quick else [("kernel", 50_000)])
    rows = []
    for attention, num_edges in cases:
        rates = machine_rates(threads)
        builders, rounds = ["benchmarks.hot:ours", "benchmarks.hot:plain"], 1 if quick else 2
        fast, slow = measure_together(
            builders, rounds=rounds, num_edges=num_edges, attention=attention, threads=threads
        )
        flops, moved = work(num_edges, attention)
        case, floors = f"{attention}, {num_edges:,}", (rates.floor_ms(flops=flops), rates.floor_ms(bytes=moved))
        ratio = AUTHORS_MS[attention, num_edges] / fast.ms
        speeds = (slow.ms / fast.ms, slow.cpu_ms / fast.cpu_ms)
        scaled = ratio * AUTHORS_FLOPS / rates.flops
        rows.append(
            [case, fast.ms, fast.cpu_ms, fast.peak_mib, slow.ms, slow.peak_mib, *speeds, *floors, ratio, scaled]
        )
    columns = [
        "case",
        "ms",
        "cpu ms",
        "MiB",
        "plain ms",
        "plain MiB",
        "faster",
        "in cpu time",
        "floor, products",
        "floor, bytes",
    ]
    columns += ["authors there / ours here", "scaled by products"]
    print_table("HOT: one training step, 387,840 parameters", columns, rows)
    rows = []
    for num_edges in (1_000, 3_000, 10_000) if quick else (1_000, 3_000, 10_000, 30_000, 100_000):
        m = measure("benchmarks.hot:ours", num_edges=num_edges, attention="kernel", repeats=3, threads=threads)
        rows.append(
            [f"{num_edges:,}", m.ms, m.cpu_ms, m.peak_mib, 1e3 * m.cpu_ms / num_edges, 1024 * m.peak_mib / num_edges]
        )
    print_table(
        "HOT (S, phi): growth with edges", ["edges", "ms", "cpu ms", "MiB", "cpu us an edge", "KiB an edge"], rows
    )


if __name__ == "__main__":
    main()
