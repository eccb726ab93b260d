"""HOT's training step against the plain reading of its equations, and its growth from 1k to 100k edges.

    python benchmarks/hot.py [--quick] [--threads 2]

Case: 4 x Enc 2->2, then 2->0, generalized kernel, width 32, 4 heads, the authors' form (387,840 parameters), one random graph of mean
degree 10, loss the sum of outputs, the support (sorting, transposes) built anew in every step. Plain: the same layers, with Eq. (21) in
its reference form and Eq. (17) as one score per pair of entries. The authors' implementation took, with its own batch building
beside it, on two threads of a machine of 160 GFLOP/s (shared/papers/MATH.md): 1k edges 361 ms and 722 MiB, 10k 4,382 and 2,810, 50k 38,234
and 12,173; softmax 1k 1,732 and 1,540.

Prints: a table of a step, ours and plain beside two floors and the authors' figures; and one of the growth with edges.
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
from gt_models.released.hot import ReleasedAttention

AUTHORS_MS = {("kernel", 1_000): 361, ("kernel", 10_000): 4_382, ("kernel", 50_000): 38_234, ("softmax", 1_000): 1_732}
AUTHORS_FLOPS = 160e9  # matrix products there, a second
Builder = tuple[nn.Module, Callable[[], Tensor]]


def ours(num_edges: int, attention: str) -> Builder:
    from gt_models import create_model

    batch = sparse_graph(num_edges)
    model = create_model(
        "hot-released", in_dim=16, out_dim=32, edge_dim=16, hidden_dim=32, num_layers=4, num_heads=4, attention=attention,
        redraw_interval=None,
    )  # fmt: skip
    return model, lambda: model(GraphBatch(batch.x, batch.edge_index, batch.ptr, batch.edge_attr)).sum()


def plain(num_edges: int, attention: str) -> Builder:
    model, loss = ours(num_edges, attention)
    for layer in model.layers:
        layer.attention.__class__ = PlainAttention

    def reference() -> Tensor:
        with kernels.use("reference"):
            return loss()

    return model, reference


class PlainAttention(ReleasedAttention):
    """Eq. (17) with the same weights, as it is written."""

    def softmax(self, values, queries, keys, support):
        v, attended = [x.unflatten() for x in self.class_values(values, support)], []
        for number, c in enumerate(self.classes):
            sources = self.query_source(support, c), self.key_source(support, c)
            q, k = (u if s is None else u[s] for u, s in zip((queries[number], keys[number]), sources, strict=True))
            key_group, query_group, _ = support.groups(c)
            mask = query_group[:, None] == key_group  # [r_q, r_k]
            for a in c.free:
                node = support.sets[c.k].nodes(c.input_pattern)[a]
                for other in support.sets[c.l].nodes(c.output_pattern):
                    mask = mask & (other[:, None] != node)
            scores = torch.einsum("qhd,khd->hqk", q, k) * q.size(-1) ** -0.5
            weights = scores.masked_fill(~mask, -1e9).softmax(-1) * mask
            attended.append(torch.einsum("hqk,khv->qhv", weights, v[number]))
        return attended


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
