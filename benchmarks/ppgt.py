"""PPGT's training step compared with its plain equations and the arithmetic floor: `python benchmarks/ppgt.py`.

ZINC's setting: 12 layers, width 64, 8 heads, K = 24, attention dropout and drop path off, on 32 molecules of 15 to 30
nodes (17,568 pairs). "plain" is the paper's file without fast paths. `brec` is the setting of BREC on 16 graphs of 10
to 40 nodes, for `benchmarks/alternate.py`.

Prints: a table with a row for each form: milliseconds and MiB of a step, and their ratio to plain and to the floor.
Takes: a minute and a half (90 s measured on two cores, one of them busy).
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.command import parser_of
from benchmarks.measured_process import machine_rates, measure_together, molecules, print_table
from gt_models.batch import GraphBatch
from gt_models.kernels import use
from gt_models.released.ppgt import PPGTReleased

STEPS = 24
SETTINGS = {
    "in_dim": [21],
    "edge_dim": [4],
    "out_dim": 1,
    "hidden_dim": 64,
    "num_layers": 12,
    "num_heads": 8,
    "rrwp_dim": STEPS + 1,
}
BREC = {
    "in_dim": [1], "out_dim": 16, "hidden_dim": 96, "num_layers": 6, "num_heads": 16, "rrwp_dim": 33, "stem_dim": 192,
    "num_stem_ffn": 4, "num_frequencies": 15, "out_norm": True,
}  # fmt: skip


def zinc() -> GraphBatch:
    """The molecules with "rrwp" attached (a loop over graphs: not what is measured)."""
    batch = molecules()
    parts = []
    for g in range(batch.num_graphs):
        start, end = int(batch.ptr[g]), int(batch.ptr[g + 1])
        inside = (batch.edge_index[0] >= start) & (batch.edge_index[0] < end)
        adjacency = torch.zeros(end - start, end - start)
        adjacency[tuple(batch.edge_index[:, inside] - start)] = 1.0
        walk, powers = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1), [torch.eye(end - start)]
        for _ in range(STEPS):
            powers.append(powers[-1] @ walk)
        parts.append(torch.stack(powers, -1).flatten(0, 1))
    batch.encodings["rrwp"] = torch.cat(parts)
    return batch


def _loss(model: nn.Module, batch: GraphBatch) -> Callable[[], Tensor]:
    def loss() -> Tensor:  # a fresh view of the batch: what a batch caches is part of a step
        fresh = GraphBatch(batch.x, batch.edge_index, batch.ptr, batch.edge_attr, batch.y, batch.encodings)
        return (model(fresh) - batch.y).abs().mean()

    return loss


def ours() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = PPGTReleased(**SETTINGS)
    return model, _loss(model, zinc())


def plain() -> tuple[nn.Module, Callable[[], Tensor]]:
    model, loss = ours()

    def by_definition() -> Tensor:
        with use("reference"):
            return loss()

    return model, by_definition


def brec(sizes: Sequence[int] = (16, 25, 10, 40) * 4) -> tuple[nn.Module, Callable[[], Tensor]]:
    """Circulant graphs of four neighbours a node, as regular pairs of BREC are, with random numbers as RRWP."""
    model, ptr = PPGTReleased(**BREC), torch.tensor([0, *sizes]).cumsum(0)
    ends = [[(i, (i + step) % n) for i in range(n) for step in (1, -1, 3, -3)] for n in sizes]
    edges = torch.cat([torch.tensor(e).T + start for e, start in zip(ends, ptr[:-1], strict=True)], 1)
    x, y = torch.zeros(int(ptr[-1]), 1, dtype=torch.long), torch.zeros(len(sizes), BREC["out_dim"])
    rrwp = torch.rand(sum(n * n for n in sizes), BREC["rrwp_dim"])
    return model, _loss(model, GraphBatch(x, edges, ptr, None, y, {"rrwp": rrwp}))


def floor_flops(batch: GraphBatch) -> float:
    """Multiplications and additions of one step: forward once, backward twice, nothing formed again."""
    nodes, pairs, d, layers = batch.num_nodes, int((batch.sizes**2).sum()), 64, 12
    raw = 7 * (STEPS + 4)
    stem = raw * 128 + 128 * d + 2 * 2 * (d * 2 * d)
    per_pair = stem + layers * (d * 16 + 2 * d)  # projections to 2 x 8 heads; q k and weights v
    per_node = layers * (3 * d * d + d * d + 2 * d * 2 * d)
    return 6.0 * (pairs * per_pair + nodes * per_node) - 2.0 * pairs * raw * 128  # the raw channels want no gradient


def main() -> None:
    parser_of(__doc__).parse_args()
    torch.manual_seed(0)
    rates, flops = machine_rates(), floor_flops(zinc())
    names = ["plain", "ours"]
    results = measure_together([f"benchmarks.ppgt:{name}" for name in names], rounds=1)
    floor = rates.floor_ms(flops=flops)
    first = results[0]
    rows = []
    for name, r in zip(names, results, strict=True):
        cpu = (r.cpu_ms, r.cpu_ms / first.cpu_ms)
        rows.append([name, r.ms, r.ms / first.ms, *cpu, r.ms / floor, r.peak_mib, r.peak_mib / first.peak_mib])
    rows.append(["floor", floor, floor / first.ms, "", "", 1.0, "", ""])
    title = f"PPGT, {first.parameters:,} parameters, {flops / 1e9:.1f} GFLOP a step at {rates.flops / 1e9:.0f} GFLOP/s"
    print_table(
        title, ["form", "ms", "of plain", "cpu ms", "of plain", "of floor", "MiB above imports", "of plain"], rows
    )


if __name__ == "__main__":
    main()
