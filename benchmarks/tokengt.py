"""TokenGT's training step against a plain, padded reading of its equations, and its growth with Performer attention on one large graph.

    python benchmarks/tokengt.py [--quick] [--dropout 0.1]

Cases: 32 molecules of 10 to 18 nodes with 9 atom and 3 bond columns, 16 eigenvectors, softmax attention, the implementation's form (as its
parameter counts are); 4 layers of width 128 with 8 heads (1,223,297 parameters) and 12 of 768 with 32 (48,492,289).
Floor: the matrix products of real tokens (forward and twice that backward) at this machine's rate, then the optimiser's traffic
(parameters, gradients and two moments read, parameters and moments written, gradients written before) at its copy rate. Of the last layer
only what the [graph] token needs is counted, as that is all that is computed. The last two columns are ratios of processor time (set
OMP_WAIT_POLICY=passive), which a busy machine changes least: plain over ours, and ours over the products and the traffic alone.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import llvmlite.binding  # noqa: F401  imported here, as the two below, so that a step's memory is above these imports on both sides
import torch
import torch._dynamo
from torch import Tensor, nn
from torch.nn import functional as F

import gt_models.tokengt  # noqa: F401
from benchmarks.measure import machine_rates, measure, measure_together, molecules, print_table
from gt_models.batch import GraphBatch

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
        "tokengt", in_dim=[512] * 9, edge_dim=[512] * 3, out_dim=1, level="graph", hidden_dim=hidden_dim, num_heads=num_heads,
        num_layers=num_layers, null_token=True, embedding_norm=True, final_norm=False, head="transform", build_unused=True,
        attn_dropout=dropout, activation_dropout=dropout, drop_path=dropout,
    )  # fmt: skip
    return model, lambda: (model(batch) - batch.y).abs().mean()


def plain(hidden_dim: int, num_heads: int, num_layers: int, dropout: float = 0.0) -> Builder:
    batch = inputs()
    model = Plain(hidden_dim, num_heads, num_layers, dropout)
    return model, lambda: (model(batch) - batch.y).abs().mean()


class Plain(nn.Module):
    """The equations, line by line, on padded tokens [B, T, d]."""

    def __init__(self, dim: int, num_heads: int, num_layers: int, dropout: float):
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.atom, self.bond = nn.Embedding(9 * 512, dim), nn.Embedding(3 * 512, dim)
        self.graph, self.null, self.kind = nn.Embedding(1, dim), nn.Embedding(1, dim), nn.Embedding(2, dim)
        self.identifier = nn.Linear(32, dim, bias=False)
        self.norm1, self.norm2 = (nn.ModuleList(nn.LayerNorm(dim) for _ in range(num_layers)) for _ in range(2))
        self.first, self.unused = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.pooler, self.transform, self.out = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, 1)
        self.final = nn.LayerNorm(dim)
        self.q, self.k, self.v, self.o, self.fc1, self.fc2 = (
            nn.ModuleList(nn.Linear(dim, dim) for _ in range(num_layers)) for _ in range(6)
        )

    def forward(self, batch: GraphBatch) -> Tensor:
        nodes, p = self.atom(batch.x + torch.arange(9) * 512).sum(-2), batch.encodings["laplacian_eigenvectors"]
        if self.training:
            p = p * (torch.randint(0, 2, (batch.num_graphs, 16)) * 2 - 1)[batch.batch]
        u, v = batch.edge_index
        nodes = nodes + self.identifier(torch.cat([p, p], -1)) + self.kind.weight[1]
        edges = (
            self.bond(batch.edge_attr + torch.arange(3) * 512).sum(-2) + self.identifier(torch.cat([p[u], p[v]], -1)) + self.kind.weight[0]
        )
        rows = []
        for b in range(batch.num_graphs):
            rows.append(torch.cat([self.graph.weight, self.null.weight, nodes[batch.batch == b], edges[batch.batch[u] == b]]))
        x = nn.utils.rnn.pad_sequence(rows, batch_first=True)  # [B, T, d]
        sizes = torch.tensor([len(r) for r in rows])
        padding = torch.arange(x.size(1)) >= sizes[:, None]
        x = self.first(x)
        rates = [self.dropout * (i + 1) / len(self.q) for i in range(len(self.q))]
        for i, rate in enumerate(rates):
            y = self.norm1[i](x)
            q, k, v = (m[i](y).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for m in (self.q, self.k, self.v))  # [B, H, T, d_h]
            scores = (q * q.size(-1) ** -0.5) @ k.transpose(-1, -2)
            weights = scores.masked_fill(padding[:, None, None], float("-inf")).softmax(-1)
            y = F.dropout(weights, self.dropout, self.training) @ v
            x = x + self.skip(self.o[i](y.transpose(1, 2).flatten(2)), rate)
            y = F.dropout(F.gelu(self.fc1[i](self.norm2[i](x))), self.dropout, self.training)
            x = x + self.skip(self.fc2[i](y), rate)
        return self.out(self.final(F.gelu(self.transform(x[:, 0]))))

    def skip(self, branch: Tensor, rate: float) -> Tensor:
        if not self.training or rate == 0.0:
            return branch
        return branch * (torch.rand(branch.size(0), 1, 1) >= rate) / (1 - rate)


def products(hidden_dim: int, num_heads: int, num_layers: int, dropout: float = 0.0) -> Builder:
    """The floor as a step of its own: products of T x d with d x d at their shapes, and the optimiser's traffic as a copy."""
    _, tokens, _ = work(hidden_dim, num_layers)
    d = hidden_dim
    x, w, none = torch.randn(tokens, d), torch.randn(3 * d, d), nn.Linear(1, 1)
    y, weight = torch.empty(tokens, 3 * d), torch.empty(3 * d, d)
    state = torch.ones(2, 4 * sum(p.numel() for p in ours(hidden_dim, num_heads, num_layers)[0].parameters()))

    def loss() -> Tensor:
        for layer in range(num_layers):
            for width in (3 * d, d, d, d) if layer < num_layers - 1 else (2 * d,):  # of the last layer keys and values alone
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
    from benchmarks.measure import node_graph
    from gt_models import create_model

    batch, mask = node_graph(num_nodes)
    model = create_model(
        "tokengt", in_dim=100, out_dim=10, level="node", hidden_dim=64, num_heads=2, num_layers=2, node_identifiers="near-orf",
        node_id_dim=64, attention=attention,
    )  # fmt: skip
    return model, lambda: F.cross_entropy(model(batch)[mask], batch.y[mask])


def work(hidden_dim: int, num_layers: int) -> tuple[float, int, float]:
    """(operations of a step's matrix products, real tokens, share of padding in the padded form)."""
    batch = inputs()
    edges = torch.zeros_like(batch.sizes).index_add_(0, batch.batch[batch.edge_index[0]], torch.ones(batch.num_edges, dtype=torch.long))
    lengths = (batch.sizes + edges + 2).double()
    tokens, pairs, graphs, d = float(lengths.sum()), float(lengths.square().sum()), batch.num_graphs, hidden_dim
    full = 12 * tokens * d * d + 4 * pairs * d  # six d x d products, and q k^T and weights times v
    last = 4 * tokens * d * d + 8 * graphs * d * d + 4 * tokens * d  # keys and values of all tokens, the rest for [graph] alone
    forward = (num_layers - 1) * full + last + 2 * (tokens - 2 * graphs) * 32 * d + 2 * graphs * d * d
    return 3 * forward, int(tokens), 1 - tokens / (graphs * float(lengths.max()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the small case and small graphs only, one round")
    parser.add_argument("--dropout", type=float, default=0.0, help="on attention weights, after the GELU, and of paths (authors: 0.1)")
    options = parser.parse_args()

    rates = machine_rates()
    print(f"matrix products {rates.flops / 1e9:.0f} GFLOP/s, copies {rates.bytes / 1e9:.1f} GB/s")
    rows = []
    for dim, heads, layers in ((128, 8, 4),) if options.quick else ((128, 8, 4), (768, 32, 12)):
        arguments = {"hidden_dim": dim, "num_heads": heads, "num_layers": layers, "dropout": options.dropout, "seconds": 30.0}
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
        row = [f"{num_nodes:,} nodes, about {6 * num_nodes:,} tokens", linear.ms, 1e3 * linear.ms / num_nodes, linear.peak_mib]
        softmax = measure("benchmarks.tokengt:large", num_nodes=num_nodes, attention="softmax", repeats=1) if num_nodes <= 1_000 else None
        rows.append([*row, softmax.ms if softmax else "-"])
    print_table("Performer, node level, one graph, 2 layers, d 64", ["case", "ms", "us a node", "MiB", "softmax ms"], rows)


if __name__ == "__main__":
    main()
