"""Polynormer's training step against the same step in plain torch, and its growth from 1k to 200k nodes.

    python benchmarks/polynormer.py [--quick] [--dropout 0.5]

The last two columns are ratios of processor time (set OMP_WAIT_POLICY=passive), which a busy machine changes least:
plain over ours, and ours over the step's matrix products alone.

Case: 7 local and 2 global layers, the released form with ReLU, mean degree 5 and one self-loop each, 100 features, 10
classes, loss on a random half. Width 64 with 1 head (126,548 parameters) and width 512 with 8 (7,434,772).

Prints: a table of a step, ours and plain, with the floor; and one of the growth with nodes.
Takes: some minutes with --quick, several times that without.
"""

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.command import parser_of
from benchmarks.measured_process import machine_rates, measure, measure_together, node_graph, print_table

LOCAL, GLOBAL, FEATURES, CLASSES = 7, 2, 100, 10
Builder = tuple[nn.Module, Callable[[], Tensor]]


def ours(num_nodes: int, hidden_dim: int, num_heads: int, dropout: float = 0.0) -> Builder:
    from gt_models import create_model

    batch, mask = node_graph(num_nodes, FEATURES, CLASSES)
    model = create_model(
        "polynormer-released", in_dim=FEATURES, out_dim=CLASSES, level="node", hidden_dim=hidden_dim,
        num_heads=num_heads,
        num_local_layers=LOCAL, num_global_layers=GLOBAL, relu=True, dropout=dropout,
    )  # fmt: skip
    return model, lambda: F.cross_entropy(model(batch)[mask], batch.y[mask])


def plain(num_nodes: int, hidden_dim: int, num_heads: int, dropout: float = 0.0) -> Builder:
    """The same model with every operation in its plain torch form."""
    from gt_models import kernels

    model, loss = ours(num_nodes, hidden_dim, num_heads, dropout)

    def step() -> Tensor:
        with kernels.use("reference"):
            return loss()

    return model, step


def products(num_nodes: int, hidden_dim: int, num_heads: int, dropout: float = 0.0) -> Builder:
    """The floor as a step: only the matrix products between n x d and d x d, at their shapes, results overwritten."""
    x, w, y = (
        torch.randn(num_nodes, hidden_dim),
        torch.randn(hidden_dim, hidden_dim),
        torch.empty(num_nodes, hidden_dim),
    )
    weight, none = torch.empty(hidden_dim, hidden_dim), nn.Linear(1, 1)

    def loss() -> Tensor:
        for _ in range(3 * LOCAL + 4 * GLOBAL):
            torch.mm(x, w.t(), out=y)
            torch.mm(x, w, out=y)
            torch.mm(y.t(), x, out=weight)
        return none.weight.sum()

    return none, loss


def floor(num_nodes: int, dim: int, num_heads: int) -> tuple[float, float]:
    """(operations, bytes) that no implementation of this step can avoid.

    Operations: every matrix product three times (forward, by input, by weight; the features need no gradient),
    neighbour sums likewise. Bytes: each local layer writes H, V, AV and its output and reads them and its input; a
    global layer H, K, V, the attention and its output; the backward pass reads and writes about twice as much.
    Everything else is assumed free.
    """
    n, edges = num_nodes, 6 * num_nodes
    product = 2 * n * dim * dim
    flops = 3 * product * (3 * LOCAL + 4 * GLOBAL) + 3 * 2 * product // num_heads * GLOBAL
    flops += 2 * 2 * n * FEATURES * dim + 3 * 2 * n * dim * CLASSES + 3 * 2 * edges * dim * LOCAL
    tensors = LOCAL * 9 + GLOBAL * 11
    return float(flops), 3.0 * tensors * n * dim * 4


def main() -> None:
    arguments = parser_of(__doc__)
    arguments.add_argument("--quick", action="store_true", help="small cases only")
    arguments.add_argument("--dropout", type=float, default=0.5, help="rate for the cases with dropout")
    options = arguments.parse_args()
    rates = machine_rates()
    print(
        f"this machine, now: {rates.flops / 1e9:.0f} GFLOP/s, copies {rates.bytes / 1e9:.1f} GB/s; two threads, memory "
        "kept"
    )

    cases = [(10_000, 64, 1, 0.0), (10_000, 64, 1, options.dropout), (10_000, 512, 8, 0.0)]
    if not options.quick:
        cases += [(50_000, 64, 1, 0.0), (50_000, 512, 8, 0.0)]
    rows = []
    for n, dim, heads, dropout in cases:
        builders = [f"benchmarks.polynormer:{name}" for name in ("ours", "plain", "products")]
        here, there, bare = measure_together(builders, num_nodes=n, hidden_dim=dim, num_heads=heads, dropout=dropout)
        least = rates.floor_ms(*floor(n, dim, heads))
        rows.append((
            f"n {n:,}, width {dim}, {heads} heads, dropout {dropout}", f"{here.parameters:,}", here.ms, there.ms,
            there.ms / here.ms,
            here.peak_mib, there.peak_mib, there.peak_mib / here.peak_mib, least, here.ms / least,
            there.cpu_ms / here.cpu_ms, here.cpu_ms / bare.cpu_ms,
        ))  # fmt: skip
    columns = [
        "case",
        "parameters",
        "ms",
        "plain ms",
        "ratio",
        "MiB",
        "plain MiB",
        "ratio",
        "floor ms",
        "ms / floor",
        "cpu ratio",
        "cpu / products",
    ]
    print_table("Polynormer: one training step", columns, rows)

    rows = []
    for n in (1_000, 3_000, 10_000) if options.quick else (1_000, 3_000, 10_000, 30_000, 100_000, 200_000):
        result = measure("benchmarks.polynormer:ours", repeats=3, num_nodes=n, hidden_dim=64, num_heads=1)
        rows.append((f"{n:,}", result.ms, 1e3 * result.ms / n, result.peak_mib, 1024 * result.peak_mib / n))
    print_table("Linear in nodes and edges (width 64)", ["nodes", "ms", "us per node", "MiB", "KiB per node"], rows)


if __name__ == "__main__":
    main()
