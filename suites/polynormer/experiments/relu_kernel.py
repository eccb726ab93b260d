"""Polynormer, Appendix D.2: does the denominator of equation 6 overflow in float32 with ReLU on large graphs?

As published: the two graphs by their numbers of nodes, and ReLU in equation 6. Not published, and chosen here: features
N(0, 1), as after a LayerNorm; linear maps as torch initialises them; shared queries and keys, width and heads of the
authors' scripts. Nothing is trained: the experiment measures the sum over nodes alone.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

# name: nodes, width, heads
GRAPHS = {
    "100,000 nodes, width 256, 8 heads": (100_000, 256, 8),
    "ogbn-products, 2,449,029 nodes, width 256, 8 heads": (2_449_029, 256, 8),
    "pokec, 1,632,803 nodes, width 256, 1 head": (1_632_803, 256, 1),
    "100,000 nodes, width 32, 8 heads": (100_000, 32, 8),
}
CASES = list(GRAPHS)
QUICK = [CASES[0], CASES[3]]
CHUNK = 50_000


def compute(case: str, data: Path) -> dict[str, Any]:
    """Computes the denominators sigma(q_i) . sum_j sigma(k_j) in float32, with ReLU and with the sigmoid.

    Returns:
        The largest denominators of any node and head. `zeros`: number of denominators that are 0 with ReLU, so that the
            node's weights are 0 / 0.
    """
    nodes, width, heads = GRAPHS[case]
    torch.manual_seed(0)
    linear = nn.Linear(width, width).requires_grad_(False)
    sums = {name: torch.zeros(width) for name in ("relu", "sigmoid")}
    for x in _features(nodes, width):
        key = linear(x)
        sums["relu"] += key.relu().sum(0)
        sums["sigmoid"] += key.sigmoid().sum(0)
    # nodes of one chunk: the others have the same distribution
    key = linear(next(_features(nodes, width)))
    largest = {
        name: _denominators(f(key), sums[name], heads) for name, f in (("relu", torch.relu), ("sigmoid", torch.sigmoid))
    }
    return {
        "largest with ReLU": largest["relu"].max().item(), "largest with the sigmoid": largest["sigmoid"].max().item(),
        "zeros": int((largest["relu"] == 0).sum()), "denominators": largest["relu"].numel(),
        "most that float32 holds": torch.finfo(torch.float32).max,
    }  # fmt: skip


def _features(nodes: int, width: int) -> Iterator[torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    for start in range(0, nodes, CHUNK):
        yield torch.randn(min(CHUNK, nodes - start), width, generator=rng)


def _denominators(query: Tensor, total: Tensor, heads: int) -> Tensor:
    """Returns the denominators [nodes, heads]; channel c of head h is c * heads + h."""
    return (query * total).unflatten(1, (-1, heads)).sum(1)
