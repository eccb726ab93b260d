"""Polynormer, Appendix K: is it at least as expressive as 1-WL if all nodes have the same features?

The graphs are all connected graphs of N nodes (networkx's atlas). They are grouped into classes by colour refinement,
and by the multisets of node outputs of a Polynormer with random weights in float64. Each graph has a relabelled copy as
a control.
"""

# mypy: disable-error-code="arg-type"

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gt_bench.claims.experiments.graphs import as_batch, relabelled, sorted_rows
from gt_models.polynormer import PolynomialBase, Polynormer

N, LAYERS, DIM = 6, 4, 8
LOCAL = ("gat", "gcn", "random-walk")
CASES = ["colour refinement", *LOCAL, "equation 18 with A + I"]
QUICK = ["colour refinement", "gcn", "equation 18 with A + I"]
# relative differences: at most EQUAL for equal outputs, at least DIFFERENT for different ones, and none in between
EQUAL, DIFFERENT = 1e-11, 1e-8


def compute(case: str, data: Path) -> dict[str, Any]:
    """Groups the graphs into classes.

    Returns:
        `graphs` and `classes`, their numbers. `at least 1-WL`: whether all pairs that colour refinement distinguishes
            are in different classes. `control`: largest relative difference between a graph and its relabelled copy.

    Raises:
        ArithmeticError: two outputs are neither equal nor different.
    """
    graphs = connected(N)
    colours = refined(graphs)
    if case == "colour refinement":
        return {
            "graphs": len(graphs),
            "classes": len(set(colours)),
            "control": float(refined([relabelled(g, 1) for g in graphs]) != colours),
        }
    model = base if case not in LOCAL else polynormer(case)
    outputs = [sorted_rows(model(graph)) for graph in graphs]
    control = max(
        _difference(out, sorted_rows(model(relabelled(graph, 1)))) for graph, out in zip(graphs, outputs, strict=True)
    )
    classes: list[Tensor] = []
    found = []
    for out in outputs:
        gaps = [_difference(out, other) for other in classes]
        if strange := [gap for gap in gaps if EQUAL < gap < DIFFERENT]:
            raise ArithmeticError(f"outputs of {case} differ by {strange[0]:.1e}: neither equal nor different")
        same = [i for i, gap in enumerate(gaps) if gap <= EQUAL]
        found.append(same[0] if same else len(classes))
        if not same:
            classes.append(out)
    at_least = len(set(zip(colours, found, strict=True))) == len(set(found))
    return {"graphs": len(graphs), "classes": len(classes), "at least 1-WL": at_least, "control": control}


def connected(n: int) -> list[Tensor]:
    """Returns all connected graphs of n nodes up to isomorphism, for n up to 7."""
    import networkx as nx
    from networkx.generators.atlas import graph_atlas_g

    return [
        torch.from_numpy(nx.to_numpy_array(g))
        for g in graph_atlas_g()
        if g.number_of_nodes() == n and nx.is_connected(g)
    ]


def refined(graphs: list[Tensor]) -> list[int]:
    """Returns a number for each graph, equal if colour refinement from one colour does not distinguish two graphs."""
    palette: dict[tuple[Any, ...], int] = {}
    kinds: dict[tuple[Any, ...], int] = {}
    found = []
    for graph in graphs:
        colours = [0] * len(graph)
        for _ in range(len(graph)):
            keys = [
                (colours[i], tuple(sorted(colours[j] for j in np.flatnonzero(graph[i].numpy()))))
                for i in range(len(graph))
            ]
            colours = [palette.setdefault(key, len(palette) + 1) for key in keys]
        found.append(kinds.setdefault(tuple(sorted(colours)), len(kinds)))
    return found


def polynormer(local: str) -> Callable[[Tensor], Tensor]:
    """Returns Polynormer with this local attention (equations 7 and 17), with all local layers and random weights.

    Returns:
        A function from an adjacency matrix to the sum of the layers' node outputs.
    """
    torch.manual_seed(0)
    model = Polynormer(
        1, 1, hidden_dim=DIM, num_heads=2, num_local_layers=LAYERS, attention="local", local_layer=local
    ).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    model.eval().requires_grad_(False)
    return lambda graph: model.forward_features(as_batch(graph))


def base(graph: Tensor) -> Tensor:
    """Returns the output of equation 18 with W = A + I, as the paper names it, and B = 1 beta^T, beta random.

    W is scaled so that its powers stay in range.
    """
    beta = torch.rand(DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = PolynomialBase(len(graph), DIM, LAYERS).double().requires_grad_(False)
    for weight, bias in zip(model.weights, model.biases, strict=True):
        weight.copy_((graph + torch.eye(len(graph))) / len(graph))
        bias.copy_(beta.expand_as(bias))
    return model(torch.ones(len(graph), DIM, dtype=torch.float64))


def _difference(first: Tensor, second: Tensor) -> float:
    return ((first - second).abs().max() / first.abs().max()).item()
