"""TokenGT's training step against its equations in plain torch, and its growth with Performer on one large graph.

    python benchmarks/tokengt.py [--quick] [--dropout 0.1]

Cases: 32 molecules of 10 to 18 nodes with 9 atom and 3 bond columns, 16 eigenvectors, softmax attention, the released
form (with its parameter counts); 4 layers of width 128 with 8 heads (1,223,297 parameters) and 12 of 768 with 32
(48,492,289). Floor: the matrix products of real tokens (forward and twice that backward) at this machine's rate, then
the optimiser's traffic (parameters, gradients and two moments read, parameters and moments written, gradients written
before) at its copy rate. Of the last layer only what the [graph] token needs is counted, as that is all that is
computed. The last two columns are ratios of processor time (set OMP_WAIT_POLICY=passive), which a busy machine changes
least: plain over ours, and ours over the products and the traffic alone.

Prints: a table of a step, ours and plain, with the floor; and one of Performer attention as the graph grows.
Takes: some minutes with --quick, several times that without.
"""

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import numba  # noqa: F401  imported here, as the two below, so that a step's memory is above these imports on both sides
import torch
import torch._dynamo
from torch import Tensor, nn
from torch.nn import functional as F

import gt_models.released.tokengt  # noqa: F401
from benchmarks.command import parser_of
from benchmarks.measured_process import machine_rates, measure, measure_together, molecules, print_table
from gt_models.batch import GraphBatch
from gt_models.kernels import use

Builder = tuple[nn.Module, Callable[[], Tensor]]


def inputs() -> GraphBatch:
    batch = molecules(32, (10, 18), (1, 2))
    batch.x, batch.edge_attr = batch.x.expand(-1, 9).contiguous(), batch.edge_attr.expand(-1, 3).contiguous()
    batch.encodings["laplacian_eigenvectors"] = torch.randn(batch.num_nodes, 16)
    return batch


def ours(hidden_dim: int, num_heads: int, num_layers: int, dropout: float = 0.0) -> Builder:
    from gt_models import create_model

    batch = inputs()
    model = create_model(
        "tokengt-released", in_dim=[512] * 9, edge_dim=[512] * 3, out_dim=1, level="graph", hidden_dim=hidden_dim,
        num_heads=num_heads,
        num_layers=num_layers, attn_dropout=dropout, activation_dropout=dropout, drop_path=dropout,
    )  # fmt: skip
    model.build_unused()
    return model, lambda: (model(batch) - batch.y).abs().mean()


def plain(hidden_dim: int, num_heads: int, num_layers: int, dropout: float = 0.0) -> Builder:
    """The same model with each operation in its definition: no kernel."""
    model, loss = ours(hidden_dim, num_heads, num_layers, dropout)

    def plain_loss() -> Tensor:
        with use("reference"):
            return loss()

    return model, plain_loss


def products(hidden_dim: int, num_heads: int, num_layers: int, dropout: float = 0.0) -> Builder:
    """The floor as a step: products of T x d with d x d at their shapes, and the optimiser's traffic as a copy."""
    _, tokens, _ = work(hidden_dim, num_layers)
    d = hidden_dim
    x, w, none = torch.randn(tokens, d), torch.randn(3 * d, d), nn.Linear(1, 1)
    y, weight = torch.empty(tokens, 3 * d), torch.empty(3 * d, d)
    state = torch.ones(2, 4 * sum(p.numel() for p in ours(hidden_dim, num_heads, num_layers)[0].parameters()))

    def loss() -> Tensor:
        for layer in range(num_layers):
            for width in (
                (3 * d, d, d, d) if layer < num_layers - 1 else (2 * d,)
            ):  # of the last layer keys and values alone
                torch.mm(x, w[:width].t(), out=y.view(-1)[: tokens * width].view(tokens, width))
                rows = y.view(-1)[: tokens * width].view(tokens, width)
                torch.mm(rows.t(), x, out=weight[:width])
                torch.mm(rows, w[:width], out=x)
                x.fill_(1.0)  # what is multiplied stays finite
        state[1].copy_(state[0])
        return none.weight.sum()

    return none, loss


def large(num_nodes: int, attention: str) -> Builder:
    """Node level on one graph of mean degree 5 with edges as tokens: 6 n tokens."""
    from benchmarks.measured_process import node_graph
    from gt_models import create_model

    batch, mask = node_graph(num_nodes)
    model = create_model(
        "tokengt", in_dim=100, out_dim=10, level="node", hidden_dim=64, num_heads=2, num_layers=2,
        node_identifiers="near-orf",
        node_id_dim=64, attention=attention,
    )  # fmt: skip
    return model, lambda: F.cross_entropy(model(batch)[mask], batch.y[mask])


def work(hidden_dim: int, num_layers: int) -> tuple[float, int, float]:
    """(operations of a step's matrix products, real tokens, share of padding in the padded form)."""
    batch = inputs()
    edges = torch.zeros_like(batch.sizes).index_add_(
        0, batch.batch[batch.edge_index[0]], torch.ones(batch.num_edges, dtype=torch.long)
    )
    lengths = (batch.sizes + edges + 2).double()
    tokens, pairs, graphs, d = float(lengths.sum()), float(lengths.square().sum()), batch.num_graphs, hidden_dim
    full = 12 * tokens * d * d + 4 * pairs * d  # six d x d products, and q k^T and weights times v
    last = (
        4 * tokens * d * d + 8 * graphs * d * d + 4 * tokens * d
    )  # keys and values of all tokens, the rest for [graph] alone
    forward = (num_layers - 1) * full + last + 2 * (tokens - 2 * graphs) * 32 * d + 2 * graphs * d * d
    return 3 * forward, int(tokens), 1 - tokens / (graphs * float(lengths.max()))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="the small case and small graphs only, one round")
    parser.add_argument(
        "--dropout", type=float, default=0.0, help="on attention weights, after the GELU, and of paths (authors: 0.1)"
    )
    options = parser.parse_args()

    rates = machine_rates()
    print(f"matrix products {rates.flops / 1e9:.0f} GFLOP/s, copies {rates.bytes / 1e9:.1f} GB/s")
    rows = []
    for dim, heads, layers in ((128, 8, 4),) if options.quick else ((128, 8, 4), (768, 32, 12)):
        arguments = {
            "hidden_dim": dim,
            "num_heads": heads,
            "num_layers": layers,
            "dropout": options.dropout,
            "seconds": 30.0,
        }
        mine, theirs, bare = measure_together(
            [f"benchmarks.tokengt:{name}" for name in ("ours", "plain", "products")],
            rounds=1 if options.quick else 2,
            repeats=9,
            **arguments,
        )
        operations, tokens, padding = work(dim, layers)
        floor = rates.floor_ms(flops=operations) + rates.floor_ms(bytes=8 * 4 * mine.parameters)
        case = f"{layers} layers, d {dim}, {tokens} tokens, {padding:.0%} padding"
        memory = [mine.peak_mib, theirs.peak_mib, theirs.peak_mib / mine.peak_mib]
        rows.append(
            [
                case,
                f"{mine.parameters:,}",
                mine.ms,
                theirs.ms,
                theirs.ms / mine.ms,
                floor,
                mine.ms / floor,
                *memory,
                theirs.cpu_ms / mine.cpu_ms,
                mine.cpu_ms / bare.cpu_ms,
            ]
        )
    columns = [
        "case",
        "parameters",
        "ms",
        "plain ms",
        "faster",
        "floor ms",
        "of floor",
        "MiB",
        "plain MiB",
        "smaller",
        "cpu faster",
        "cpu / products",
    ]
    print_table(f"TokenGT, dropout {options.dropout}", columns, rows)

    rows = []
    for num_nodes in (500, 1_000, 4_000) if options.quick else (500, 1_000, 4_000, 16_000, 64_000):
        linear = measure("benchmarks.tokengt:large", num_nodes=num_nodes, attention="performer", repeats=3)
        row = [
            f"{num_nodes:,} nodes, about {6 * num_nodes:,} tokens",
            linear.ms,
            1e3 * linear.ms / num_nodes,
            linear.peak_mib,
        ]
        softmax = (
            measure("benchmarks.tokengt:large", num_nodes=num_nodes, attention="softmax", repeats=1)
            if num_nodes <= 1_000
            else None
        )
        rows.append([*row, softmax.ms if softmax else "-"])
    print_table(
        "Performer, node level, one graph, 2 layers, d 64", ["case", "ms", "us a node", "MiB", "softmax ms"], rows
    )


if __name__ == "__main__":
    main()
