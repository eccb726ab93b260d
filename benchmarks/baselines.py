"""GRIT, GPS and Graphormer: a training step on 32 molecules, compared with the arithmetic floor and with GPSConv.

    python benchmarks/baselines.py

The rows they stand for took 500 ms and 1,312 MiB (GRIT), 113 ms and 452 MiB (GPS), 126 ms and 468 MiB (Graphormer-slim)
in their authors' implementations, two threads of a machine of 160 GFLOP/s. Parameters are the printed 473,473, 423,465
and 631,393.

Prints: a table with a row for each model: milliseconds and MiB of a step, and how many times the floor.
Takes: some minutes on two cores.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.command import parser_of
from benchmarks.measured_process import machine_rates, measure_together, molecules, print_table
from gt_models import create_model
from gt_models.baselines.gps import PackedNodes
from gt_models.batch import GraphBatch
from gt_models.encodings import compute

ATOMS, BONDS = 21, 4
Builder = tuple[nn.Module, Callable[[], Tensor]]


def _builder(model: nn.Module, batch: GraphBatch) -> Builder:
    def loss() -> Tensor:  # a fresh view of the batch: what a batch caches is part of a step
        fresh = GraphBatch(batch.x, batch.edge_index, batch.ptr, batch.edge_attr, batch.y, batch.encodings)
        return (model(fresh) - batch.y).abs().mean()

    return model, loss


def _molecules(encoding: str, **arguments: int) -> GraphBatch:
    batch = molecules()
    batch.encodings.update(compute(encoding, batch, **arguments))
    return batch


def grit() -> Builder:
    model = create_model(
        "grit",
        in_dim=[ATOMS],
        out_dim=1,
        edge_dim=[BONDS],
        hidden_dim=64,
        num_layers=10,
        num_heads=8,
        build_unused=True,
    )
    return _builder(model, _molecules("rrwp", steps=20))


def gps() -> Builder:
    batch = _molecules("rwse", steps=20)
    return _builder(create_model("gps", in_dim=[ATOMS], out_dim=1, edge_dim=[BONDS], rwse_dim=20), batch)


def gps_torch_geometric() -> Builder:
    """The same widths and layers out of torch_geometric; its head and encoders are ours."""
    from torch_geometric.nn import GINEConv, GPSConv

    model, loss = gps()

    class Layer(nn.Module):
        def __init__(self, dim: int):
            super().__init__()
            mlp = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))
            self.layer = GPSConv(dim, GINEConv(mlp), heads=4, dropout=0.0, attn_type="multihead")

        def forward(self, x: Tensor, edges: Tensor, batch: GraphBatch, nodes: PackedNodes) -> Tensor:
            return self.layer(x, batch.edge_index, batch.batch, edge_attr=edges)

    model.layers = nn.ModuleList(Layer(64) for _ in model.layers)
    return model, loss


def graphormer() -> Builder:
    batch = _molecules("shortest-path", max_distance=510, path_length=5)
    tables = {"in_dim": [513], "edge_dim": [1537], "max_distance": 510, "max_degree": 511}  # the implementation's
    return _builder(create_model("graphormer", **tables, out_dim=1, build_unused=True), batch)


def floors(batch: GraphBatch) -> dict[str, float]:
    """Multiplications and additions of a step: products with weights and of attention, forward once, backward twice."""
    nodes, edges, pairs, padded = (
        batch.num_nodes,
        batch.num_edges,
        int((batch.sizes**2).sum()),
        batch.num_graphs * (batch.max_nodes + 1),
    )
    square = batch.num_graphs * (batch.max_nodes + 1) ** 2
    grit = 10 * (nodes * (3 + 1 + 4) * 64**2 + pairs * (2 + 1) * 64**2 + pairs * 3 * 64 + nodes * 64 * 8)
    gps = 10 * (nodes * (2 + 4 + 4) * 64**2 + edges * 64 + 2 * pairs * 64)
    graphormer = 12 * (padded * (4 + 2) * 80**2 + 2 * square * 80)
    return {"grit": 6.0 * grit, "gps": 6.0 * gps, "gps_torch_geometric": 6.0 * gps, "graphormer": 6.0 * graphormer}


def main() -> None:
    parser_of(__doc__).parse_args()
    torch.manual_seed(0)
    rates, least = machine_rates(), floors(molecules())
    names = list(least)
    results = measure_together([f"benchmarks.baselines:{name}" for name in names])
    rows = []
    for name, result in zip(names, results, strict=True):
        floor = rates.floor_ms(flops=least[name])
        rows.append(
            (
                name.replace("_", " "),
                f"{result.parameters:,}",
                result.ms,
                result.cpu_ms,
                floor,
                result.ms / floor,
                result.peak_mib,
            )
        )
    title = f"32 molecules, two threads; products {rates.flops / 1e9:.0f} GFLOP/s"
    print_table(title, ["model", "parameters", "ms", "cpu ms", "floor ms", "of floor", "MiB above imports"], rows)


if __name__ == "__main__":
    main()
