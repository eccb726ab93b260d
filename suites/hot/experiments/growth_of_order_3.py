"""Growth of the costs of tensors of order 3, counted as in `growth` on hypergraphs.

The papers make these claims for any order: HOT's Properties 2 and 3, TokenGT's tokens of k nodes. A hypergraph has
HYPEREDGES triples of different nodes per node or, "by hyperedges", a fixed number of nodes. `HOT 1 to 3` is the whole
model from nodes to triples (Enc_{1->1}, then Enc_{1->3}), which HOT's Table 4 uses. `HOT 3 to 3` is a layer Enc_{3->3}
on all n^3 triples.
"""

# mypy: disable-error-code="arg-type"

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gt_bench.claims.experiments.registry import module_of
from gt_models import kernels
from gt_models.batch import GraphBatch
from gt_models.hot import EncoderLayer, HigherOrderAttention, HigherOrderTransformer
from gt_models.hot.support import Support
from gt_models.layers.performer import RandomFeatures
from gt_models.tokengt import TokenGT

SMALL, Counter = module_of("growth").SMALL, module_of("growth").Counter

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "HOT 1 to 3 (S)": (lambda: _hot("softmax"), (128, 256, 512)),
    "HOT 1 to 3 (S, φ)": (lambda: _hot("kernel"), (512, 1024, 2048)),
    "HOT 3 to 3 (D, φ)": (lambda: AllTriples("kernel"), (8, 16, 32)),
    "TokenGT": (lambda: TokenGT([1], 1, "hyperedge", order=3, node_id_dim=4, **SMALL), (128, 256, 512)),
    "TokenGT + Performer": (
        lambda: TokenGT([1], 1, "hyperedge", order=3, node_id_dim=4, attention="performer", **SMALL),
        (512, 1024, 2048),
    ),
}
HYPEREDGES, FIXED_NODES = 2, 64
BY_HYPEREDGES = ("HOT 1 to 3 (S, φ)", "TokenGT", "TokenGT + Performer")
CASES = [*MODELS, *(f"{name}, by hyperedges" for name in BY_HYPEREDGES)]
QUICK = ["HOT 1 to 3 (S, φ), by hyperedges", "TokenGT + Performer"]
# as in `growth`
ROUNDING, TOLERANCE = ("operations", "largest"), 0.05


def compute(case: str, data: Path) -> dict[str, Any]:
    """Counts the operations of a model at several sizes.

    Returns:
        `sizes` in nodes or hyperedges, `operations`, `largest` (elements of the largest tensor), and the exponents of
            both between the last two sizes.
    """
    name, _, by_hyperedges = case.partition(", by ")
    make, nodes = MODELS[name]
    sizes = (
        [(FIXED_NODES, m * FIXED_NODES) for m in (8, 16, 32)] if by_hyperedges else [(n, HYPEREDGES * n) for n in nodes]
    )
    counted: dict[str, list[int]] = {"operations": [], "largest": []}
    for n, hyperedges in sizes:
        batch = hypergraph(n, hyperedges)
        torch.manual_seed(0)
        model = make().eval()
        with torch.no_grad(), kernels.use("reference"), Counter() as counter:
            model(batch)
        for key, counts in counted.items():
            counts.append(getattr(counter, key))
    grown = [size[bool(by_hyperedges)] for size in sizes]
    step = math.log(grown[-1] / grown[-2])
    exponents = {key: math.log(counts[-1] / counts[-2]) / step for key, counts in counted.items()}
    return {"sizes": grown, **counted, "exponent": exponents}


def hypergraph(n: int, hyperedges: int) -> GraphBatch:
    """Returns a graph of `n` nodes with `hyperedges` random triples of different nodes and node identifiers."""
    rng = torch.Generator().manual_seed(0)
    triples = torch.stack([torch.randperm(n, generator=rng)[:3] for _ in range(hyperedges)])
    batch = GraphBatch(torch.zeros(n, 1, dtype=torch.long), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, n]))
    batch.encodings = {"laplacian_eigenvectors": torch.rand(n, 4, generator=rng)}
    batch.extras = {"hyperedge_index": triples}
    return batch


class AllTriples(nn.Module):
    """One layer Enc_{3->3} on all triples of the nodes of a graph."""

    def __init__(self, attention: str):
        super().__init__()
        width, heads = SMALL["hidden_dim"], SMALL["num_heads"]
        attend = HigherOrderAttention(3, 3, width, width, width, heads, attention=attention)
        self.layer = EncoderLayer(attend, width, width, 0.0, "relu", False)
        self.features = RandomFeatures(width // heads, None, None, "relu") if attention == "kernel" else None

    def forward(self, batch: GraphBatch) -> torch.Tensor:
        """Returns the outputs of all triples, [n^3, width]."""
        support = Support.complete(batch, 3)
        return self.layer(torch.ones(len(support.sets[3]), SMALL["hidden_dim"]), support, self.features)


def _hot(attention: str) -> nn.Module:
    return HigherOrderTransformer([1], 1, "hyperedge", attention=attention, kernel="generalized", **SMALL)
