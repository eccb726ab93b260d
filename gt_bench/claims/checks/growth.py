"""Check of complexity claims: how counted operations grow with the size of a graph."""

from typing import Literal

from gt_bench.claims.checks.findings import load_cases
from gt_bench.claims.checks.registry import CheckResult, register_check
from gt_bench.papers.results_file import PublishedError


@register_check
def growth(
    paper: str,
    exponents: dict[str, float],
    largest: dict[str, float] | None = None,
    tolerance: float = 0.35,
    order: Literal[2, 3] = 2,
) -> CheckResult:
    """Checks that counted operations grow with the claimed power of the size.

    Args:
        paper: the paper of the claim.
        exponents: claimed exponent of the operations of each model.
        largest: claimed exponent of the number of elements in the largest tensor of each model.
        tolerance: largest accepted difference of exponents. Lower-order terms reduce the exponents at finite sizes.
        order: order of the tensors.
    """
    if not exponents and not largest:
        raise PublishedError("growth names no model", remedy="give `exponents` or `largest`")
    cases = load_cases("growth" if order == 2 else "growth_of_order_3")
    said: list[str] = []
    wrong: list[str] = []
    for what, wanted in (("operations", exponents), ("largest", largest or {})):
        for case, power in wanted.items():
            measured = cases[case]["exponent"][what]
            unit = case.partition(", by ")[2] or "nodes"
            name = case if what == "operations" else f"the largest tensor of {case}"
            text = (
                f"{name} {measured:.2f} (claimed {power:g}; {cases[case]['sizes'][-2]:,} to "
                f"{cases[case]['sizes'][-1]:,} {unit})"
            )
            (said if abs(measured - power) <= tolerance else wrong).append(text)
    others = f"not as claimed: {', '.join(wrong)}; others: " if wrong else ""
    return CheckResult(not wrong, f"exponents of counted operations: {others}{', '.join(said)}", confirmed=True)
