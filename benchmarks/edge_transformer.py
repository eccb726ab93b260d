"""Edge Transformer: a training step (forward, backward, AdamW) with each form of triangular attention, and its floor.

    python benchmarks/edge_transformer.py            # n = 32, 128, 251; the molecules of the paper's ZINC setting; the
    WebKB setting python benchmarks/edge_transformer.py --quick    # small sizes only

"reference" is a plain reading of Eqs. 1 and 2. The authors' implementation on a machine like the one this was written
on took 6,648 ms and 3,736 MiB for the molecules (2,542 ms where the allocator keeps memory, as all processes here do).
About 100 MiB of the compiled form's peak are numba and its compiler.

Prints: a table with a row for each case and form: milliseconds, MiB, times the reference and the floor.
Takes: up to 20 s a row and its start (not timed as a whole); --quick: some minutes.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.command import parser_of
from benchmarks.measured_process import Rates, machine_rates, measure, molecules, print_table
from gt_models import GraphBatch
from gt_models.kernels import use
from gt_models.released.edge_transformer import EdgeTransformerReleased, ReleasedLayer

THIS = "benchmarks.edge_transformer"


def in_form(form: str, loss: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """`loss` with triangular attention in this form."""

    def run() -> Tensor:
        with use(triangular_attention=form):
            return loss()

    return run


def layer(num_nodes: int, hidden_dim: int, num_heads: int, form: str) -> tuple[nn.Module, Callable[[], Tensor]]:
    """One layer on one graph."""
    model = ReleasedLayer(hidden_dim, num_heads, 0.0, 0.0, "gelu")
    x = torch.randn(num_nodes**2, hidden_dim, requires_grad=True)
    batch = GraphBatch(torch.zeros(num_nodes, 1), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, num_nodes]))
    return model, in_form(form, lambda: model(x, batch).square().mean())


def zinc(form: str) -> tuple[nn.Module, Callable[[], Tensor]]:
    """32 molecules, the paper's depth: 270,977 parameters."""
    batch = molecules()
    model = EdgeTransformerReleased([28], 1, "graph", [4], 64, 6, 8, attn_dropout=0.2)
    return model, in_form(form, lambda: (model(batch) - batch.y).abs().mean())


def webkb(
    form: str, num_nodes: int = 183, hidden_dim: int = 128, dropout: float = 0.0
) -> tuple[nn.Module, Callable[[], Tensor]]:
    """One graph of the size of cornell (183 nodes, 1,703 features, 298 edges), four layers, node classification."""
    x, y = torch.randn(num_nodes, 1703), torch.randint(0, 5, (num_nodes,))
    batch = GraphBatch(x, torch.randint(0, num_nodes, (2, 298)), torch.tensor([0, num_nodes]))
    model = EdgeTransformerReleased(1703, 5, "node", None, hidden_dim, 4, 8, dropout, 0.2, "relu")
    return model, in_form(form, lambda: nn.functional.cross_entropy(model(batch), y))


def floor_ms(rates: Rates, sizes: list[int], hidden_dim: int, num_layers: int) -> float:
    """Matrix products with weights at the matrix-product rate, the contractions over triples at the same rate.

    Per pair and layer 9 d^2 multiply-adds forward; per triple and channel 3 forward (score, weight times value, sum).
    Backward: weights' products twice as many; per triple 9 (scores again 1, dA 2, dV1 2, dV2 2, dQ 1, dK 1).
    """
    pairs, triples = sum(n**2 for n in sizes), sum(n**3 for n in sizes)
    return rates.floor_ms(2.0 * num_layers * (3 * pairs * 9 * hidden_dim**2 + 12 * triples * hidden_dim))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    quick = parser.parse_args().quick
    rates = machine_rates()
    # title, builder, its arguments, graph sizes, width, layers
    cases: list[tuple[str, str, dict, list[int], int, int]] = [
        (f"layer, n {n}, d 32, 4 heads", "layer", {"num_nodes": n, "hidden_dim": 32, "num_heads": 4}, [n], 32, 1)
        for n in ((32, 128) if quick else (32, 128, 251))
    ]
    cases.append(("6 layers, d 64, 32 molecules", "zinc", {}, molecules().sizes.tolist(), 64, 6))
    if not quick:
        cornell = {"num_nodes": 183, "hidden_dim": 128}
        cases.append(("4 layers, d 128, n 183", "webkb", cornell, [183], 128, 4))
        cases.append(("the same, dropout 0.8", "webkb", cornell | {"dropout": 0.8}, [183], 128, 4))
        cases.append(("4 layers, d 96, n 251", "webkb", {"num_nodes": 251, "hidden_dim": 96}, [251], 96, 4))
    rows = []
    for title, builder, arguments, sizes, hidden_dim, num_layers in cases:
        floor, dense_ms = floor_ms(rates, sizes, hidden_dim, num_layers), None
        for form in ("numba",) if builder == "webkb" else ("reference", "chunked", "numba"):
            if (
                form == "reference"
                and (need := dense_gib(sizes, hidden_dim, num_layers)) > 0.5 * psutil.virtual_memory().available / 2**30
            ):
                rows.append((title, form, f"needs {need:.0f} GiB", "", "", "", ""))
                continue
            result = measure(f"{THIS}:{builder}", form=form, repeats=5, seconds=20, **arguments)
            print(f"{title}, {form}: {result.ms:,.0f} ms, {result.peak_mib:,.0f} MiB", file=sys.stderr)
            dense_ms = result.ms if form == "reference" else dense_ms
            faster = f"{dense_ms / result.ms:.1f}x" if dense_ms else ""
            rows.append((title, form, result.ms, result.cpu_ms, faster, result.ms / floor, result.peak_mib))
    title = f"Training step, 2 threads; products {rates.flops / 1e9:.0f} GFLOP/s, copies {rates.bytes / 1e9:.1f} GB/s"
    print_table(
        title,
        ["case", "triangular attention", "ms", "cpu ms", "against the reference", "times the floor", "peak MiB"],
        rows,
    )


def dense_gib(sizes: list[int], hidden_dim: int, num_layers: int) -> float:
    """What the dense form keeps and makes on its way back: fused values per layer, and four more of their size."""
    largest = max(sizes)
    return 4 * len(sizes) * largest**3 * hidden_dim * (num_layers + 4) / 2**30


if __name__ == "__main__":
    main()
