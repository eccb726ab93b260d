"""Tests of claims by counted operations: what grows with the size of a graph."""

from typing import Literal

from gt_bench.claims.checks.experiment_values import of
from gt_bench.claims.checks.registry import Found, test
from gt_bench.papers.published import PublishedError


@test
def growth(
    paper: str,
    exponents: dict[str, float],
    largest: dict[str, float] | None = None,
    tolerance: float = 0.35,
    order: Literal[2, 3] = 2,
) -> Found:
    """The counted operations of each model grow with that power of the size, and the numbers of its largest tensor with those of `largest`. Lower terms
    make what is counted at finite sizes a little flatter: `tolerance`. `order`: of the tensors."""
    if not exponents and not largest:
        raise PublishedError("growth names no model: give `exponents` or `largest`")
    found = of("growth" if order == 2 else "growth_of_order_3")
    said: list[str] = []
    wrong: list[str] = []
    for what, wanted in (("operations", exponents), ("largest", largest or {})):
        for case, power in wanted.items():
            measured = found[case]["exponent"][what]
            unit = case.partition(", by ")[2] or "nodes"
            name = case if what == "operations" else f"the largest tensor of {case}"
            text = f"{name} {measured:.2f} (said {power:g}; {found[case]['sizes'][-2]:,} to {found[case]['sizes'][-1]:,} {unit})"
            (said if abs(measured - power) <= tolerance else wrong).append(text)
    others = f"not as said: {', '.join(wrong)}; others: " if wrong else ""
    return Found(not wrong, f"exponents of counted operations: {others}{', '.join(said)}", shown=True)
