"""The definition of an operation against loops over its equation, and its gradients against differences.

Those of attention are compared with loops as parts of their models.
"""

import math

import pytest
import torch
from torch import Tensor

from gt_models.kernels import use
from gt_models.layers.dropout_hash import kept_at
from tests.gt_models.kernels.cases import (
    DOUBLE,
    ada_rms,
    case,
    gelu_mlp,
    linear,
    neighbour_sum,
    sparse_linear,
    walk_powers,
)


def graphs_of(sizes: list[int]) -> list[range]:
    ends = torch.tensor([0, *sizes]).cumsum(0).tolist()
    return [range(a, b) for a, b in zip(ends, ends[1:], strict=False)]


def of_ada_rms(x: Tensor, alpha: Tensor, beta: Tensor, eps: float) -> Tensor:
    def rms(u: list[float]) -> float:
        return math.sqrt(sum(v * v for v in u) / len(u) + eps)

    rows = [
        [v / rms(row) * rms([float(a) * w + float(b) for a, w, b in zip(alpha, row, beta, strict=True)]) for v in row]
        for row in x.tolist()
    ]
    return torch.tensor(rows, dtype=DOUBLE)


def of_neighbour_sum(value, weight, ptr, col, *_) -> Tensor:
    rows = [(ptr[i], ptr[i + 1]) for i in range(len(value))]
    return torch.stack([(weight[a:b, None] * value[col[a:b].long()]).sum(0) for a, b in rows])


def hash32(x: int) -> int:
    x &= 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def of_sparse_linear(values, ptr, col, weight, bias) -> Tensor:
    rows = [sum((values[e] * weight[:, col[e]] for e in range(a, b)), bias) for a, b in zip(ptr, ptr[1:], strict=False)]
    return torch.stack(rows)


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
    "gelu_mlp": (gelu_mlp(3, 4, 5, 2), of_gelu_mlp),
    "multi_linear": (linear(4, 3, (2, 5), (True, False)), of_multi_linear),
    "neighbour_sum": (neighbour_sum(6, 14, 3), of_neighbour_sum),
    "sparse_linear": (sparse_linear(5, 30, 4, bias=True), of_sparse_linear),
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
    found = torch.cat(out, 1) if isinstance(out, tuple) else out
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    if leaves:

        def of(*given: Tensor):
            given = iter(given)
            with use("reference"):
                return operation(*(next(given) if isinstance(t, Tensor) and t.requires_grad else t for t in args))

        assert torch.autograd.gradcheck(of, tuple(leaves), fast_mode=True)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_dropout_drops_its_share_independently_of_seeds_and_neighbours(rate):
    mask, other = (kept_at(torch.tensor([s]), torch.arange(500_000), rate).double() for s in (5, 6))
    assert abs(mask.mean() - (1 - rate)) < 0.003
    assert (mask.view(1000, 500).mean(0) - (1 - rate)).abs().max() < 0.08
    for shift in (0, 1, 16, 500):
        both = mask[shift:] * (mask if shift else other)[: len(mask) - shift]
        assert abs(both.mean() - (1 - rate) ** 2) < 0.004
