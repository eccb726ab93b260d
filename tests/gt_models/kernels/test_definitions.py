"""The definition of each operation against loops over its equation, and its gradients against differences."""

import math

import pytest
import torch
from torch import Tensor

from gt_models.kernels import use
from gt_models.layers.dropout_hash import kept, kept_at
from gt_models.layers.pair_dropout import kept_pairs
from tests.gt_models.kernels.cases import (
    DOUBLE,
    ada_rms,
    case,
    gated_attention,
    gated_norm,
    gelu_mlp,
    graph_attention,
    grit_attention,
    kernel_attention,
    linear,
    neighbour_sum,
    packed_attention,
    sparse_linear,
    triangular_attention,
    walk_powers,
)
from tests.gt_models.reference import edge_transformer


def graphs_of(sizes: list[int]) -> list[range]:
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return [range(a, b) for a, b in zip(ends, ends[1:], strict=False)]


def softmax(scores: list[float]) -> list[float]:
    powers = [math.exp(s) for s in scores]
    return [p / sum(powers) for p in powers]


def of_ada_rms(x: Tensor, alpha: Tensor, beta: Tensor, eps: float) -> Tensor:
    def rms(u: list[float]) -> float:
        return math.sqrt(sum(v * v for v in u) / len(u) + eps)

    rows = [
        [v / rms(row) * rms([float(a) * w + float(b) for a, w, b in zip(alpha, row, beta, strict=True)]) for v in row]
        for row in x.tolist()
    ]
    return torch.tensor(rows, dtype=DOUBLE)


def of_gated_attention(qkv, pairs, heads, batch, scale, key_scale, rate, seed) -> Tensor:
    q, k, v = qkv.unflatten(1, (3, heads, -1)).unbind(1)
    bias, gate = pairs.unflatten(1, (2, heads)).unbind(1)  # [P, H]
    stays, out, pair = kept_pairs(seed, len(pairs), heads, rate), torch.zeros_like(q), 0
    for nodes in graphs_of(batch.sizes.tolist()):
        for i in nodes:
            for h in range(heads):
                scores = [scale * float(q[i, h] @ k[j, h]) + key_scale * float(k[j, h] @ k[j, h]) for j in nodes]
                weights = softmax([s + float(bias[pair + a, h]) for a, s in enumerate(scores)])
                for a, j in enumerate(nodes):
                    out[i, h] += float(stays[pair + a, h]) / (1 - rate) * gate[pair + a, h] * weights[a] * v[j, h]
            pair += len(nodes)
    return out.flatten(1)


def of_gated_norm(h, a, b, weight, bias, eps, relu, seed, rate) -> Tensor:
    keep, out = kept(seed, h.numel(), rate).view(h.shape), torch.zeros_like(h)
    for i in range(len(h)):
        hs, drawn = (t[i].clamp(min=0) if relu else t[i] for t in (h, a))
        drawn = drawn * keep[i] / (1 - rate)
        u = hs * drawn
        norm = (u - u.mean()) / (((u - u.mean()) ** 2).mean() + eps).sqrt() * weight + bias
        out[i] = (1 - b) * norm + b * drawn
    return out


def of_graph_attention(value, source, target, ptr, col, _1, _2, _3, slope) -> Tensor:
    heads = len(source)
    v, out = value.unflatten(1, (heads, -1)), torch.zeros_like(value.unflatten(1, (heads, -1)))
    for i in range(len(value)):
        senders = col[ptr[i] : ptr[i + 1]].tolist()
        for h in range(heads):
            scores = [float(source[h] @ v[j, h] + target[h] @ v[i, h]) for j in senders]
            for j, w in zip(senders, softmax([s if s > 0 else slope * s for s in scores]), strict=True):
                out[i, h] += w * v[j, h]
    return out.flatten(1)


def of_grit_attention(q, k, v, pair, logit, batch, clamp, rate, seed) -> tuple[Tensor, Tensor]:
    n, heads, width = q.shape
    keep = kept(seed, len(pair) * heads, rate).view(-1, heads).double() / (1 - rate)
    out, e, p = torch.zeros(n, heads, 2, width, dtype=DOUBLE), torch.zeros(len(pair), heads, width, dtype=DOUBLE), 0
    for nodes in graphs_of(batch.sizes.tolist()):
        for i in nodes:
            for a, j in enumerate(nodes):
                m = (q[i] + k[j]) * pair[p + a, 0]
                e[p + a] = (m.abs().sqrt() * m.sign() + pair[p + a, 1]).clamp(min=0)
            for h in range(heads):
                scores = [min(max(float(e[p + a, h] @ logit[h]), -clamp), clamp) for a in range(len(nodes))]
                for a, (j, w) in enumerate(zip(nodes, softmax(scores), strict=True)):
                    out[i, h] += w * keep[p + a, h] * torch.stack([v[j, h], e[p + a, h]])
            p += len(nodes)
    return out, e


def of_kernel_attention(attentions, heads, channels, projection, eps, *matrices) -> Tensor:
    width, parts = projection.size(1), []
    for a in attentions:
        query, key, value = (
            matrices[m][:, first : first + heads * size].unflatten(1, (heads, size))
            for (m, first), size in ((a.query, width), (a.key, width), (a.value, channels))
        )
        phi_q, phi_k = ((u @ projection.T).clamp(min=0) + eps for u in (query, key))
        out = torch.zeros(len(query), heads, channels, dtype=DOUBLE)
        for j, group in enumerate(a.groups.queries.of):
            members = (a.groups.entries.of == group).nonzero().flatten().tolist()
            keys = members if a.groups.key is None else a.groups.key.of[members].tolist()
            for h in range(heads):
                weights = [float(phi_q[j, h] @ phi_k[i, h]) for i in keys]
                for entry, w in zip(members, weights, strict=True):
                    out[j, h] += w / sum(weights) * value[entry, h]
        parts.append(out.flatten(1))
    return torch.cat(parts, 1)


def of_neighbour_sum(value, weight, ptr, col, *_) -> Tensor:
    rows = [(ptr[i], ptr[i + 1]) for i in range(len(value))]
    return torch.stack([(weight[a:b, None] * value[col[a:b].long()]).sum(0) for a, b in rows])


def of_packed_attention(query, tokens, packing, heads, rate, seed) -> Tensor:
    dim = tokens.size(1) // 3 if query is None else query.size(1)
    rows = []
    for graph, members in enumerate(graphs_of(packing.ptr.diff().tolist())):
        part = tokens[members.start : members.stop]
        k, v = (t.unflatten(1, (heads, -1)) for t in part.split(dim, 1)[-2:])
        for row in members if query is None else [graph]:
            q = (tokens[row, :dim] if query is None else query[row]).unflatten(0, (heads, -1))
            for h in range(heads):
                start = hash32(row * heads + h ^ int(seed))
                keep = [hash32(start + j * 0x9E3779B9) >= int(rate * 2**32) for j in range(len(members))]
                weights = softmax((k[:, h] @ q[h] / q.size(1) ** 0.5).tolist())
                rows.append(
                    sum(w * s / (1 - rate) * v[j, h] for j, (w, s) in enumerate(zip(weights, keep, strict=True)))
                )
    return torch.stack(rows).view(-1, dim)


def hash32(x: int) -> int:
    x &= 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def of_sparse_linear(values, ptr, col, weight, bias) -> Tensor:
    rows = [sum((values[e] * weight[:, col[e]] for e in range(a, b)), bias) for a, b in zip(ptr, ptr[1:], strict=False)]
    return torch.stack(rows)


def of_triangular_attention(x, batch, seed, rate) -> Tensor:
    out, start = torch.zeros_like(x[:, 0]), 0
    for n in batch.sizes.tolist():
        q, k, v1, v2 = x[start : start + n * n].unflatten(0, (n, n)).unbind(2)
        for h in range(x.size(2)):
            states = (t[:, :, h] for t in (q, k, v1, v2))
            out[start : start + n * n, h] = edge_transformer.triangular_attention(*states).flatten(0, 1)
        start += n * n
    return out


def of_walk_powers(out, ptr, row_ptr, col, weight, channel, steps, identity) -> Tensor:
    whole = torch.sparse_csr_tensor(row_ptr, col, weight, (len(row_ptr) - 1,) * 2).to_dense()
    out, start = out.clone(), 0
    for nodes in graphs_of(ptr.diff().tolist()):
        m = whole[nodes.start : nodes.stop, nodes.start : nodes.stop]
        powers = [torch.linalg.matrix_power(m, k).flatten() for k in range(0 if identity else 1, steps + 1)]
        if nodes:
            out[start : start + m.numel(), channel : channel + len(powers)] = torch.stack(powers, 1)
        start += m.numel()
    return out


def of_dropout(x, seed, rate) -> Tensor:
    keep = [hash32(hash32(int(seed)) + i * 0x9E3779B9) >= int(rate * 2**32) for i in range(x.numel())]
    return x * torch.tensor(keep).view(x.shape) / (1 - rate)


def of_gelu_mlp(x, weight1, bias1, weight2, bias2) -> Tensor:
    rows = [[0.5 * u * (1 + math.erf(u / 2**0.5)) for u in (weight1 @ row + bias1).tolist()] for row in x]
    return torch.stack([weight2 @ torch.tensor(row, dtype=DOUBLE) + bias2 for row in rows])


def of_multi_linear(x, *parameters) -> Tensor:
    half = len(parameters) // 2
    maps = zip(parameters[:half], parameters[half:], strict=True)
    return torch.cat([torch.stack([w @ row + (0 if b is None else b) for row in x]) for w, b in maps], 1)


CALLS = {
    "ada_rms": (ada_rms(4, 3), of_ada_rms),
    "dropout": (lambda t: case("dropout", t)[1], of_dropout),
    "gated_attention": (gated_attention((3, 2), 2, 3, 0.4), of_gated_attention),
    "gated_norm": (gated_norm(3, 4, relu=True, rate=0.4), of_gated_norm),
    "gelu_mlp": (gelu_mlp(3, 4, 5, 2), of_gelu_mlp),
    "graph_attention": (graph_attention(6, 14, 2, 3), of_graph_attention),
    "grit_attention": (grit_attention((3, 1, 2), 2, 3), of_grit_attention),
    "kernel_attention": (kernel_attention(9, 6, 4, 2, 3, 2, shared=True), of_kernel_attention),
    "multi_linear": (linear(4, 3, (2, 5), (True, False)), of_multi_linear),
    "neighbour_sum": (neighbour_sum(6, 14, 3), of_neighbour_sum),
    "packed_attention": (packed_attention(2, 3, (7, 5, 5, 1, 0), rate=0.4), of_packed_attention),
    "packed_attention: queries": (packed_attention(2, 3, (7, 5, 1), True, 0.4), of_packed_attention),
    "sparse_linear": (sparse_linear(5, 30, 4, bias=True), of_sparse_linear),
    "triangular_attention": (triangular_attention((4, 2), 2, 4), of_triangular_attention),
    "walk_powers": (walk_powers((5, 1, 0, 4)), of_walk_powers),
    "walk_powers: no identity": (walk_powers((5, 3), identity=False), of_walk_powers),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_definition_is_its_equation(name):
    make, by_loops = CALLS[name]
    operation, _ = case(name)
    torch.manual_seed(0)
    args = make(DOUBLE)
    leaves = [t for t in args if isinstance(t, Tensor) and t.requires_grad]
    with torch.no_grad():
        expected = by_loops(*args)
    with use("reference"):
        out = operation(*args)
    out = out if isinstance(out, tuple) else (out,)
    if name.startswith("multi_linear"):
        out = (torch.cat(out, 1),)
    for found, right in zip(out, expected if isinstance(expected, tuple) else (expected,), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)
    if leaves:

        def of(*given: Tensor):
            given = iter(given)
            with use("reference"):
                return operation(*(next(given) if isinstance(t, Tensor) and t.requires_grad else t for t in args))

        assert torch.autograd.gradcheck(of, tuple(leaves), fast_mode=True)


def test_every_operation_has_an_equation():
    from gt_models.kernels import all_operations
    from gt_models.layers.accelerated import ATTACHED

    of_others = set(ATTACHED.values())
    assert {n for n, o in all_operations().items() if o not in of_others} == {n.partition(":")[0] for n in CALLS}


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_dropout_drops_its_share_independently_of_seeds_and_neighbours(rate):
    mask, other = (kept_at(torch.tensor([s]), torch.arange(500_000), rate).double() for s in (5, 6))
    assert abs(mask.mean() - (1 - rate)) < 0.003
    assert (mask.view(1000, 500).mean(0) - (1 - rate)).abs().max() < 0.08
    for shift in (0, 1, 16, 500):
        both = mask[shift:] * (mask if shift else other)[: len(mask) - shift]
        assert abs(both.mean() - (1 - rate) ** 2) < 0.004
