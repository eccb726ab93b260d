"""Polynormer, Appendix K: which pairs of Figure 6 does version 2 distinguish, and is it invariant to relabelling?

As published: local layers X = (A D^-1 X) * (X + B) (equations 18 and 19), features and beta 1, B = 1 (version 1) or the
second eigenvector of the normalised Laplacian (version 2). Not published: the number of layers; 1 to 3 are tried. The
sign of an eigenvector is arbitrary, so that both are tried. If the eigenvalue is double, any unit vector of a plane is
an eigenvector. ANGLES of them are tried, beginning with the projection of the node numbers, because the vector that
LAPACK returns depends on the processor.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gt_bench.claims.experiments.graphs import bicyclopentyl, circular_skip_link, decalin, relabelled, sorted_rows
from gt_models.polynormer import PolynomialBase

PAIRS = {
    "CSL(11, 2) and CSL(11, 3)": (circular_skip_link(11, 2), circular_skip_link(11, 3)),
    "decalin and bicyclopentyl": (decalin(), bicyclopentyl()),
}
VERSIONS = ("v1", "v2")
CASES = [f"{pair}, {version}" for pair in PAIRS for version in VERSIONS]
QUICK = CASES
LAYERS, COPIES, ANGLES = (1, 2, 3), 20, 120
SAME_EIGENVALUE = 1e-9


def compute(case: str, data: Path) -> dict[str, Any]:
    """Compares two graphs, choices of the eigenvector on one graph, and relabelled copies.

    Returns:
        For each number of layers, over all choices of the eigenvector: the smallest difference of the two graphs, the
            largest difference within either graph (except for the sign), the largest difference between a graph and
            relabelled copies (each with the projection of its node numbers), and the largest number of different node
            outputs.
    """
    name, version = case.rsplit(", ", 1)
    between, within, copies, distinct = [], [], [], []
    for layers in LAYERS:
        first, second = (_choices(graph, version, layers) for graph in PAIRS[name])  # [choices, n] each
        between.append(torch.cdist(first, second, p=torch.inf).min().item())
        within.append([_beyond_the_sign(outputs) for outputs in (first, second)])
        copies.append([_of_copies(graph, version, layers) for graph in PAIRS[name]])
        distinct.append([max(len(torch.unique((row * 1e9).round())) for row in outputs) for outputs in (first, second)])
    return {
        "layers": list(LAYERS), "between the graphs": between, "within one": within, "relabelled copies": copies,
        "distinct outputs": distinct,
        "nodes": [len(graph) for graph in PAIRS[name]],
        "multiplicity": [second_eigenvectors(graph).size(1) for graph in PAIRS[name]],
    }  # fmt: skip


def second_eigenvectors(adjacency: Tensor) -> Tensor:
    """Returns a basis of the eigenspace of the second smallest eigenvalue of the normalised Laplacian.

    Returns:
        An orthonormal basis [n, multiplicity]. Its first vector is the projection of the node numbers 1, ..., n. In at
            most two dimensions, the other vector is determined up to its sign.
    """
    scale = adjacency.sum(1).rsqrt()
    values, vectors = torch.linalg.eigh(
        torch.eye(len(adjacency), dtype=adjacency.dtype) - scale[:, None] * adjacency * scale
    )
    space = vectors[:, (values - values[1]).abs() < SAME_EIGENVALUE]
    numbers = space.T @ torch.arange(1, len(adjacency) + 1, dtype=adjacency.dtype)  # in the basis that LAPACK chose
    return space @ torch.linalg.qr(torch.cat([numbers[:, None], torch.eye(len(numbers), dtype=adjacency.dtype)], 1)).Q


def _choices(adjacency: Tensor, version: str, layers: int) -> Tensor:
    """Returns sorted node outputs [choices, n].

    A simple eigenvalue has two choices, which differ by the sign. A double eigenvalue has ANGLES choices in its plane.
    """
    if version == "v1":
        return _output(adjacency, torch.ones(len(adjacency), 1, dtype=torch.float64), layers)[None]
    basis = second_eigenvectors(adjacency)
    if basis.size(1) == 1:
        turned = torch.cat([basis, -basis], 1)
    elif basis.size(1) == 2:
        angle = torch.arange(ANGLES, dtype=torch.float64) * (2 * torch.pi / ANGLES)
        turned = basis @ torch.stack([angle.cos(), angle.sin()])
    else:
        raise ArithmeticError(f"the second eigenvalue is {basis.size(1)}-fold; expected at most 2-fold")
    return torch.stack([_output(adjacency, vector[:, None], layers) for vector in turned.T])


def _beyond_the_sign(outputs: Tensor) -> float:
    """Returns the largest difference between the outputs of two choices, each with the sign that fits best.

    Choices i and i + half differ by the sign.
    """
    if len(outputs) == 1:
        return 0.0
    gaps, half = torch.cdist(outputs, outputs, p=torch.inf), len(outputs) // 2
    return torch.minimum(gaps, gaps.roll(half, 1)).max().item()


def _of_copies(adjacency: Tensor, version: str, layers: int) -> float:
    def outputs(graph: Tensor) -> Tensor:
        vector = (
            torch.ones(len(graph), 1, dtype=torch.float64) if version == "v1" else second_eigenvectors(graph)[:, :1]
        )
        return torch.stack([_output(graph, sign * vector, layers) for sign in ((1, -1) if version == "v2" else (1,))])

    mine = outputs(adjacency)
    return max(
        torch.cdist(mine, outputs(relabelled(adjacency, seed)), p=torch.inf).min().item() for seed in range(COPIES)
    )


def _output(adjacency: Tensor, bias: Tensor, layers: int) -> Tensor:
    """Returns the node outputs [n] in ascending order."""
    n = len(adjacency)
    model = PolynomialBase(n, 1, layers).double().requires_grad_(False)
    for weight, start in zip(model.weights, model.biases, strict=True):
        weight.copy_(adjacency / adjacency.sum(0))  # A D^-1
        start.copy_(bias)
    return sorted_rows(model(torch.ones(n, 1, dtype=torch.float64)))[:, 0]
