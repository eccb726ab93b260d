"""Tuned GCN, GAT and GraphSAGE: a training step on a large graph, compared with the layers of torch_geometric.

    python benchmarks/classic_gnn.py

The graph has the size of Amazon photo, the model six layers of width 64. The layers of torch_geometric hold a message
per edge and channel.

Prints: a table with a row for each convolution: milliseconds and MiB of a step, and both as ratios.
Takes: two minutes on two cores.
"""

import sys
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.command import parser_of
from benchmarks.measured_process import measure_together, print_table
from gt_models import create_model
from gt_models.batch import GraphBatch
from gt_models.layers.csr import Edges

NODES, EDGES, FEATURES, CLASSES, WIDTH, LAYERS = 7650, 238_162, 745, 8, 64, 6
PEERS = {"gcn": GCNConv, "gat": lambda i, o: GATConv(i, o, bias=False), "sage": SAGEConv}


def _builder(convolution: str, peer: bool):
    torch.manual_seed(0)
    edges = torch.randint(0, NODES, (2, EDGES // 2))
    y = torch.randint(0, CLASSES, (NODES,))
    batch = GraphBatch(torch.rand(NODES, FEATURES), torch.cat([edges, edges.flip(0)], 1), torch.tensor([0, NODES]))
    model = create_model(
        "classic-gnn", in_dim=FEATURES, out_dim=CLASSES, level="node", convolution=convolution, hidden_dim=WIDTH,
        num_layers=LAYERS, normalisation="layer", residual=True,
    )  # fmt: skip
    if peer:
        widths = [FEATURES] + [WIDTH] * (LAYERS - 1)
        model.convs = nn.ModuleList(Peer(PEERS[convolution](width, WIDTH), batch.edge_index) for width in widths)
    return model, lambda: F.cross_entropy(model(batch), y)


class Peer(nn.Module):
    """A layer of torch_geometric with the arguments of ours."""

    def __init__(self, conv: nn.Module, edge_index: Tensor):
        super().__init__()
        self.conv, self.edge_index = conv, edge_index

    def forward(self, x: Tensor, edges: Edges) -> Tensor:
        return self.conv(x, self.edge_index)


gcn, gcn_torch_geometric = partial(_builder, "gcn", False), partial(_builder, "gcn", True)
gat, gat_torch_geometric = partial(_builder, "gat", False), partial(_builder, "gat", True)
sage, sage_torch_geometric = partial(_builder, "sage", False), partial(_builder, "sage", True)


def main() -> None:
    parser_of(__doc__).parse_args()
    names = [f"{name}{suffix}" for name in PEERS for suffix in ("", "_torch_geometric")]
    results = dict(zip(names, measure_together([f"benchmarks.classic_gnn:{name}" for name in names]), strict=True))
    rows = []
    for name in PEERS:
        ours, theirs = results[name], results[f"{name}_torch_geometric"]
        times, memory = (ours.ms, theirs.ms, theirs.ms / ours.ms), (ours.peak_mib, theirs.peak_mib)
        rows.append((name, *times, *memory, theirs.peak_mib / ours.peak_mib))
    columns = ["convolution", "ms", "torch_geometric ms", "faster", "MiB", "torch_geometric MiB", "less"]
    print_table(f"{NODES:,} nodes, {EDGES:,} edges, {LAYERS} layers of {WIDTH}", columns, rows)


if __name__ == "__main__":
    main()
