"""Polynormer, Theorem 3.3: does the base model (equation 4) represent all monomials of the theorem?

A model of L layers should represent X_i times every monomial of degree 2^L - 1 in the rows of X. A second question is
whether equations 9 to 11, by which Appendix A proves the theorem, give the output of the model.
"""

import itertools
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import torch

from gt_models.polynormer import PolynomialBase

SIZES = {f"n = {n}, L = {layers}": (n, layers) for n, layers in ((2, 2), (3, 2), (4, 2), (2, 3), (3, 3), (4, 3))}
EQUATION_9 = {f"equation 9, L = {layers}": layers for layers in (1, 2, 3)}
CASES = [*SIZES, *EQUATION_9]
QUICK = CASES
PRIMES = (2.0, 3.0, 5.0, 7.0)  # features: the factors of an output are the exponents of its monomial


def compute(case: str, data: Path) -> dict[str, Any]:
    """Counts the represented monomials of a size, or compares equation 9 with the model."""
    if case in EQUATION_9:
        return _equation_9(EQUATION_9[case])
    n, layers = SIZES[case]
    monomials = [m for m in itertools.product(range(2**layers + 1), repeat=n) if sum(m) == 2**layers and m[0] > 0]
    weights = one_hot_weights(n, layers)
    missing = [
        monomial for monomial in monomials if monomial not in weights or not represents(weights[monomial], monomial)
    ]
    return {"monomials": len(monomials), "represented": len(monomials) - len(missing), "missing": missing}


def one_hot_weights(n: int, layers: int) -> dict[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Returns weights for each monomial that a model with one-hot weights and B = 0 has at node 0.

    Every row of every W contains one 1. Node 0 represents any node.

    Returns:
        {exponents of X_0 .. X_(n-1): column of the 1, by layer and row}.
    """
    states = {tuple(tuple(int(i == j) for j in range(n)) for i in range(n)): ()}
    for layer in range(1, layers + 1):
        after: dict[tuple[tuple[int, ...], ...], tuple[Any, ...]] = {}
        # of the last layer only node 0 is read
        choices = [range(n) if i == 0 or layer < layers else range(1) for i in range(n)]
        for state, weights in states.items():
            sums = [[tuple(a + b for a, b in zip(row, other, strict=True)) for other in state] for row in state]
            for columns in itertools.product(*choices):
                after.setdefault(tuple(sums[i][j] for i, j in enumerate(columns)), (*weights, columns))
        states = after
    return {state[0]: weights for state, weights in states.items()}


def represents(weights: tuple[tuple[int, ...], ...], monomial: tuple[int, ...]) -> bool:
    """Returns whether the model with these weights gives exactly the monomial at node 0."""
    n = len(monomial)
    model = _base([torch.eye(n, dtype=torch.float64)[list(columns)] for columns in weights], 1)
    x = torch.tensor(PRIMES[:n], dtype=torch.float64)[:, None]
    return model(x)[0].item() == prod(p**e for p, e in zip(PRIMES, monomial, strict=False))


def _equation_9(layers: int) -> dict[str, bool]:
    """Compares the sum over index sets (equation 11) with the output of the model at every node.

    Returns:
        Whether they are equal for the coefficients of equation 9 as published, and for those of equation 4, where the
            second half of the indices depends on the first index of each half.
    """
    n, rng = 3, torch.Generator().manual_seed(0)
    weights = [torch.randint(-3, 4, (n, n), generator=rng).double() for _ in range(layers)]
    x = torch.randint(-3, 4, (n, 1), generator=rng).double()
    output = _base(weights, 1)(x)[:, 0]

    def printed(indices: tuple[int, ...]) -> float:
        # the k-th step of the chain i_1, i_2, ... is of layer L - floor(log2 k)
        return prod(weights[layers - k.bit_length()][indices[k - 1], indices[k]].item() for k in range(1, len(indices)))

    def derived(indices: tuple[int, ...], layer: int) -> float:
        if layer == 0:
            return 1.0
        half = len(indices) // 2
        first, second = indices[:half], indices[half:]
        return weights[layer - 1][first[0], second[0]].item() * derived(first, layer - 1) * derived(second, layer - 1)

    def sums(coefficient: Callable[[tuple[int, ...]], float]) -> list[float]:
        tails = list(itertools.product(range(n), repeat=2**layers - 1))
        return [
            sum(coefficient((i, *tail)) * prod(x[j].item() for j in (i, *tail)) for tail in tails) for i in range(n)
        ]

    return {
        "as printed": sums(printed) == output.tolist(),
        "as derived": sums(lambda i: derived(i, layers)) == output.tolist(),
    }


def _base(weights: list[torch.Tensor], dim: int) -> PolynomialBase:
    model = PolynomialBase(len(weights[0]), dim, len(weights)).double()
    with torch.no_grad():
        for parameter, weight in zip(model.weights, weights, strict=True):
            parameter.copy_(weight)
    return model.requires_grad_(False)
