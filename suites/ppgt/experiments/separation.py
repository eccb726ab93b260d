"""Expressivity on BREC: pairs that untrained networks with random weights distinguish, in float64.

A trained network may miss more of them because of its training. The result is compared with colour refinement of the
same class, which is an upper bound.

Each graph has a relabelled copy. A pair is distinguished if its outputs differ by more than FACTOR times the difference
of either graph and its copy, which is rounding alone. A network whose copies differ by more would distinguish nothing.
Not published: widths (16) and layers (LAYERS). One draw of the weights decides. The Edge Transformer has GAIN times the
usual deviation, because its softmax over nearly equal scores would otherwise lose the differences to rounding.
"""

# mypy: disable-error-code="arg-type"

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gt_bench.claims.experiments.graphs import as_batch, relabelled
from gt_bench.data.brec_pairs import brec_pairs
from gt_bench.data.color_refinement import gd_wl, one_wl, random_walks, shortest_paths, three_wl
from gt_bench.papers.pair_counts import PAIRS
from gt_bench.utils.errors import UserError
from gt_models.baselines.gin import GIN
from gt_models.baselines.graphormer import Graphormer
from gt_models.baselines.grit import GRIT
from gt_models.batch import GraphBatch
from gt_models.edge_transformer import EdgeTransformer
from gt_models.encodings.random_walk import rrwp
from gt_models.encodings.shortest_path import shortest_path
from gt_models.hot import HigherOrderTransformer
from gt_models.ppgt import PPGT

POWERS, DISTANCE, LAYERS, FACTOR, FLOOR = 33, 40, 4, 100.0, 1e-14
GAIN = {"Edge Transformer": 4.0}
WIDTHS = {"hidden_dim": 16, "num_layers": LAYERS, "num_heads": 4}
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "GIN": lambda: GIN(1, 16, "graph", hidden_dim=16, num_layers=LAYERS, mlp_norm=False, normalisation="layer"),
    "Graphormer": lambda: Graphormer(1, 16, max_distance=DISTANCE, ffn_dim=32, **WIDTHS),
    "GRIT": lambda: GRIT(1, 16, rrwp_dim=POWERS, norm="layer", **WIDTHS),
    "PPGT, S = 0": lambda: PPGT(1, 16, rrwp_dim=POWERS, stem_dim=32, num_frequencies=0, edge_vector=True, **WIDTHS),
    "PPGT, S = 15": lambda: PPGT(1, 16, rrwp_dim=POWERS, stem_dim=32, num_frequencies=15, edge_vector=True, **WIDTHS),
    "HOT (S)": lambda: HigherOrderTransformer(1, 16, form="sparse", attention="softmax", **WIDTHS),
    "Edge Transformer": lambda: EdgeTransformer(1, 16, "graph", **WIDTHS),
}
REFINEMENTS: dict[str, Callable[..., bool]] = {
    "1-WL": one_wl,
    "GD-WL with shortest paths": lambda a, b: gd_wl(a, b, shortest_paths),
    "GD-WL with RRWP": lambda a, b: gd_wl(a, b, random_walks(POWERS)),
    "3-WL": three_wl,
}
CATEGORIES = ("basic", "regular", "extension", "cfi")
CASES = [f"{name}, {category}" for name in (*REFINEMENTS, *NETWORKS) for category in CATEGORIES]
QUICK = [f"{name}, basic" for name in ("1-WL", "GD-WL with RRWP", "3-WL", "PPGT, S = 0", "Edge Transformer")]
# margins are rounding errors, which differ between computations
ROUNDING = ("least of those apart", "largest of the others", "control")
NEEDS = ("brec",)


class NoPairs(UserError, RuntimeError):
    """BREC is not packed."""


def compute(case: str, data: Path) -> dict[str, Any]:
    """Finds the pairs that a network or a refinement distinguishes.

    Returns:
        `apart`: numbers of the distinguished pairs. For a network also the margins: the smallest ratio of a difference
            to that of the copies among distinguished pairs, the largest among the others, and the largest relative
            difference of a copy.

    Raises:
        NoPairs: BREC is not packed.
    """
    name, category = case.rsplit(", ", 1)
    pairs = _pairs(data.resolve())
    numbers = sorted(PAIRS[f"brec-{category}"])
    if name in REFINEMENTS:
        return {"apart": [i for i in numbers if REFINEMENTS[name](*(graph.numpy() for graph in pairs[i]))]}
    network = drawn(name)
    found = {i: difference(network, *pairs[i]) for i in numbers}
    ratios = {i: gap / max(control, FLOOR) for i, (gap, control) in found.items()}
    apart = [i for i in numbers if ratios[i] > FACTOR]
    rest = [ratios[i] for i in numbers if i not in apart]
    # orders of magnitude: the numbers themselves are rounding
    return {
        "apart": apart, "least of those apart": _order(min((ratios[i] for i in apart), default=0.0)),
        "largest of the others": _order(max(rest, default=0.0)), "control": _order(max(control for _,
        control in found.values())),
    }  # fmt: skip


def difference(network: nn.Module, first: Tensor, second: Tensor) -> tuple[float, float]:
    """Returns the difference of two outputs, and the larger difference of either graph and its relabelled copy.

    Both are relative to the largest output.
    """
    with torch.no_grad():
        a, b, a_copy, b_copy = (
            network(encoded(graph)) for graph in (first, second, relabelled(first, 1), relabelled(second, 2))
        )
    scale = torch.stack([a, b]).abs().max()
    gap, *controls = (((x - y).abs().max() / scale).item() for x, y in ((a, b), (a, a_copy), (b, b_copy)))
    return gap, max(controls)


def drawn(name: str) -> nn.Module:
    """Returns the network with weights N(0, 1 / columns) and vectors N(0, 1/4).

    They are large enough that differences are not lost to rounding.
    """
    torch.manual_seed(0)
    network = NETWORKS[name]().double().eval()
    for parameter in network.parameters():
        nn.init.normal_(
            parameter, std=GAIN.get(name, 1.0) * (0.5 if parameter.dim() == 1 else parameter.size(-1) ** -0.5)
        )
    return network


def encoded(adjacency: Tensor) -> GraphBatch:
    """Returns the graph with every encoding that a network reads."""
    batch = as_batch(adjacency)
    batch.encodings = rrwp(batch, steps=POWERS - 1, dtype=torch.float64) | shortest_path(
        batch, max_distance=DISTANCE, path_length=5
    )
    return batch


@cache
def _pairs(data: Path) -> list[tuple[Tensor, Tensor]]:
    pairs = brec_pairs(data)
    if pairs is None:
        raise NoPairs("not prepared", file=data / "packed" / "brec", remedy="run `dvc repro download@brec`")
    return [(torch.from_numpy(a), torch.from_numpy(b)) for a, b in pairs]


def _order(value: float) -> str:
    return f"{value:.0e}"
