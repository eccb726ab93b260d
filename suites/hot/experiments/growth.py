"""Growth of the models' costs with the graph: operations of one forward pass of the plain definitions.

Operations are counted one by one. The counts are exact and the same on every machine. A product counts as in
torch.utils.flop_counter. Any other operation counts as the number of elements that it writes, a view as zero. Encodings
are random numbers, so that their cost is not included. Graphs are random, with twice as many edges as nodes or, for "by
edges", with a fixed number of nodes. Widths are small (8), so that terms in the size are not hidden by terms in the
width.
"""

# mypy: disable-error-code="arg-type, assignment"

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from gt_models import kernels
from gt_models.baselines.gps import GPS
from gt_models.baselines.graphormer import Graphormer
from gt_models.baselines.grit import GRIT
from gt_models.baselines.mlp_pi import InvariantMLP
from gt_models.batch import GraphBatch
from gt_models.edge_transformer import EdgeTransformer
from gt_models.hot import HigherOrderTransformer
from gt_models.polynormer import Polynormer
from gt_models.ppgt import PPGT
from gt_models.tokengt import TokenGT

SMALL = {"hidden_dim": 8, "num_layers": 2, "num_heads": 4}
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "PPGT": (lambda: PPGT([1], 1, rrwp_dim=4, stem_dim=8, **SMALL), (128, 256, 512)),
    "GRIT": (lambda: GRIT([1], 1, rrwp_dim=4, **SMALL), (128, 256, 512)),
    "GraphGPS": (lambda: GPS([1], 1, **SMALL), (256, 512, 1024)),
    "Graphormer": (lambda: Graphormer([1], 1, ffn_dim=8, **SMALL), (128, 256, 512)),
    "Edge Transformer": (lambda: EdgeTransformer([1], 1, "graph", **SMALL), (48, 96, 192)),
    "TokenGT": (lambda: TokenGT([1], 1, node_id_dim=4, **SMALL), (128, 256, 512)),
    "TokenGT + Performer": (lambda: TokenGT([1], 1, node_id_dim=4, attention="performer", **SMALL), (512, 1024, 2048)),
    "HOT (D)": (lambda: _hot("dense", "softmax"), (16, 32, 64)),
    "HOT (D, φ)": (lambda: _hot("dense", "kernel"), (64, 128, 256)),
    "HOT (S)": (lambda: _hot("sparse", "softmax"), (256, 512, 1024)),
    "HOT (S, φ)": (lambda: _hot("sparse", "kernel"), (512, 1024, 2048)),
    "MLP_π (D)": (lambda: _invariant_mlp("dense"), (64, 128, 256)),
    "MLP_π (S)": (lambda: _invariant_mlp("sparse"), (512, 1024, 2048)),
    "Polynormer": (
        lambda: Polynormer(1, 1, hidden_dim=8, num_heads=2, num_local_layers=2, num_global_layers=1),
        (512, 1024, 2048),
    ),
}
EDGES_PER_NODE, FIXED_NODES = 2, 64
BY_EDGES = ("TokenGT", "TokenGT + Performer", "HOT (S)", "HOT (S, φ)", "MLP_π (S)")
CASES = [*MODELS, *(f"{name}, by edges" for name in BY_EDGES)]
QUICK = ["TokenGT", "TokenGT + Performer", "HOT (S, φ), by edges", "Polynormer"]
# another implementation has other counts and the same exponents
ROUNDING, TOLERANCE = ("operations", "largest"), 0.05


def compute(case: str, data: Path) -> dict[str, Any]:
    """Counts the operations of a model at several sizes.

    Returns:
        `sizes` in nodes or edges, `operations`, `largest` (elements of the largest tensor), and the exponents of both
            between the last two sizes.
    """
    name, _, by_edges = case.partition(", by ")
    make, sizes = MODELS[name]
    categorical = name != "Polynormer"
    operations, largest = [], []
    for size in sizes if not by_edges else (4 * FIXED_NODES, 8 * FIXED_NODES, 16 * FIXED_NODES):
        n, edges = (FIXED_NODES, size) if by_edges else (size, EDGES_PER_NODE * size)
        batch = _random_graph(n, edges, categorical)
        torch.manual_seed(0)
        model = make().eval()
        counter = Counter()
        with torch.no_grad(), kernels.use("reference"), counter:
            model(batch)
        operations.append(counter.operations)
        largest.append(counter.largest)
    sizes = [4 * FIXED_NODES, 8 * FIXED_NODES, 16 * FIXED_NODES] if by_edges else list(sizes)
    step = math.log(sizes[-1] / sizes[-2])
    exponents = {
        key: math.log(counts[-1] / counts[-2]) / step
        for key, counts in (("operations", operations), ("largest", largest))
    }
    return {"sizes": sizes, "operations": operations, "largest": largest, "exponent": exponents}


class Counter(TorchDispatchMode):
    """Counts operations, and the elements of the largest tensor that an operation writes."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if func._schema.returns and not view and func._overloadpacket is not torch.ops.aten._unsafe_view:
            written = sum(t.numel() for t in tree_leaves(out) if isinstance(t, Tensor))
            count = flop_registry.get(func._overloadpacket)
            if func._overloadpacket is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
                query, key, value = args[:3]  # [B, H, n, d] each: two products, as torch counts on GPUs
                self.operations += 2 * query.numel() * key.size(-2) + 2 * query[..., 0].numel() * value[0, 0].numel()
            else:
                self.operations += int(count(*args, **(kwargs or {}), out_val=out)) if count else written
            self.largest = max(self.largest, written)
        return out


def _random_graph(n: int, edges: int, categorical: bool) -> GraphBatch:
    """Returns a graph with `edges` undirected edges, and random numbers for every encoding that a model reads."""
    rng = torch.Generator().manual_seed(0)
    pairs = torch.triu_indices(n, n, 1)
    pairs = pairs[:, torch.randperm(pairs.size(1), generator=rng)[:edges]]
    x = torch.zeros(n, 1, dtype=torch.long) if categorical else torch.ones(n, 1)
    batch = GraphBatch(x, torch.cat([pairs, pairs.flip(0)], 1), torch.tensor([0, n]))
    batch.encodings = {
        "rrwp": torch.rand(n * n, 4, generator=rng),
        "laplacian_eigenvectors": torch.rand(n, 4, generator=rng),
        "shortest_path_distance": torch.randint(0, 8, (n * n, 1), generator=rng),
        "shortest_path_edges": torch.full((n * n, 5), -1),
    }
    return batch


def _hot(form: str, attention: str) -> nn.Module:
    return HigherOrderTransformer([1], 1, form=form, attention=attention, kernel="generalized", **SMALL)


def _invariant_mlp(form: str) -> nn.Module:
    return InvariantMLP([1], 1, form=form, hidden_dim=8, num_layers=2)
