"""PPGT's training step against a plain reading of its equations and the arithmetic floor: `python benchmarks/ppgt.py`.

12 layers, width 64, 8 heads, K = 24, attention dropout and drop path off, on 32 molecules of 15..30 nodes (17,568 pairs). "plain" holds the
same weights and gives the same numbers (checked): everything padded to [B, n, n, C], one pair projection per layer, each equation as it
stands. "stored stem" keeps the stem's intermediates instead of forming them again in backward.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measure import machine_rates, measure_together, molecules, print_table
from gt_models.batch import GraphBatch
from gt_models.nn.norms import AdaRMSNorm
from gt_models.ppgt import PPGT

STEPS = 24
SETTINGS = {"in_dim": [21], "edge_dim": [4], "out_dim": 1, "hidden_dim": 64, "num_layers": 12, "num_heads": 8, "rrwp_dim": STEPS + 1}
SETTINGS |= {"scale_queries": False, "urpe": "one-plus", "head": "constant"}


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
    model = PPGT(**SETTINGS)
    return model, _loss(model, zinc())


def stored_stem() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = PPGT(**SETTINGS, stem_chunk=None)
    return model, _loss(model, zinc())


def plain() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = PlainPPGT(**SETTINGS)
    return model, _loss(model, zinc())


class PlainPPGT(PPGT):
    """The same weights read equation by equation on padded tensors."""

    def forward_features(self, batch: GraphBatch, edge_values: Tensor | None = None) -> Tensor:
        graphs, n, h = batch.num_graphs, batch.max_nodes, self.num_heads
        mask = batch.node_mask
        degree = torch.zeros(batch.num_nodes).index_add(0, batch.edge_index[0], torch.ones(batch.num_edges))
        rrwp = batch.pairs_to_dense(batch.encodings["rrwp"])  # [B, n, n, K]
        sizes = batch.sizes.float()
        inverse = batch.to_dense(degree.clamp(min=1).reciprocal()[:, None])  # [B, n, 1]
        raw = [rrwp, sizes.reciprocal()[:, None, None, None].expand(graphs, n, n, 1)]
        raw = torch.cat([*raw, inverse[:, None].expand(graphs, n, n, 1), inverse[:, :, None].expand(graphs, n, n, 1)], -1)
        enhanced = [raw]
        for s in range(3):
            enhanced += [torch.sin(2**s * torch.pi * raw), torch.cos(2**s * torch.pi * raw)]
        p = self.stem.linear2(F.gelu(self.stem.linear1(torch.cat(enhanced, -1))))  # [B, n, n, d]
        p = p.index_put(batch.edge_slots(), self.edge_encoder(batch.edge_attr), accumulate=True)
        for block in self.stem.blocks:
            p = p + block.linear2(F.gelu(block.linear1(_ada_rms(block.norm, p))))
        p = _ada_rms(self.stem.norm, p)
        x = self.node_encoder(batch.x) + self.degree_encoder(degree.log1p()[:, None])
        x = x + self.order_encoder(sizes[batch.batch].log1p()[:, None])
        x = batch.to_dense(x) + self.diagonal_encoder(rrwp.diagonal(dim1=1, dim2=2).transpose(1, 2))  # [B, n, d]
        for layer in self.layers:
            q, k, v = layer.attention.qkv(_ada_rms(layer.norm1, x)).view(graphs, n, 3, h, -1).permute(2, 0, 3, 1, 4)  # [B, H, n, d / H]
            theta, phi = layer.attention.pair_linear(p).view(graphs, n, n, 2, h).permute(3, 0, 4, 1, 2)  # [B, H, n, n]
            logits = q @ k.transpose(2, 3) - k.square().sum(-1)[:, :, None] / (2 * k.size(-1) ** 0.5) + theta
            weights = logits.masked_fill(~mask[:, None, None], float("-inf")).softmax(-1) * (1 + phi)
            x = x + layer.attention.out((weights @ v).transpose(1, 2).flatten(2))
            x = x + layer.linear2(F.gelu(layer.linear1(_ada_rms(layer.norm2, x))))
        return batch.from_dense(_ada_rms(self.norm, x))


def _ada_rms(norm: AdaRMSNorm, x: Tensor) -> Tensor:
    root = lambda u: (u.square().mean(-1, keepdim=True) + norm.eps).sqrt()  # noqa: E731
    return x / root(x) * root(norm.alpha * x + norm.beta)


def floor_flops(batch: GraphBatch) -> float:
    """Multiplications and additions of one step: forward once, backward twice, nothing formed again."""
    nodes, pairs, d, layers = batch.num_nodes, int((batch.sizes**2).sum()), 64, 12
    raw = 7 * (STEPS + 4)
    stem = raw * 128 + 128 * d + 2 * 2 * (d * 2 * d)
    per_pair = stem + layers * (d * 16 + 2 * d)  # projections to 2 x 8 heads; q k and weights v
    per_node = layers * (3 * d * d + d * d + 2 * d * 2 * d)
    return 6.0 * (pairs * per_pair + nodes * per_node) - 2.0 * pairs * raw * 128  # the raw channels want no gradient


def main() -> None:
    torch.manual_seed(0)
    batch = zinc()
    one, two = PPGT(**SETTINGS), PlainPPGT(**SETTINGS)
    two.load_state_dict(one.state_dict())
    torch.testing.assert_close(one(batch), two(batch), rtol=1e-3, atol=1e-4)
    rates, flops = machine_rates(), floor_flops(batch)
    names = ["plain", "ours", "stored_stem"]
    results = measure_together([f"benchmarks.ppgt:{name}" for name in names], rounds=1)
    floor = rates.floor_ms(flops=flops)
    first = results[0]
    rows = []
    for name, r in zip(names, results, strict=True):
        cpu = (r.cpu_ms, r.cpu_ms / first.cpu_ms)
        rows.append([name.replace("_", " "), r.ms, r.ms / first.ms, *cpu, r.ms / floor, r.peak_mib, r.peak_mib / first.peak_mib])
    rows.append(["floor", floor, floor / first.ms, "", "", 1.0, "", ""])
    title = f"PPGT, {first.parameters:,} parameters, {flops / 1e9:.1f} GFLOP a step at {rates.flops / 1e9:.0f} GFLOP/s"
    print_table(title, ["form", "ms", "of plain", "cpu ms", "of plain", "of floor", "MiB above imports", "of plain"], rows)


if __name__ == "__main__":
    main()
