"""Checks of claims of the Edge Transformer, based on its experiments."""

from gt_bench.claims.checks.findings import load_cases
from gt_bench.claims.checks.registry import CheckResult, register_check


@register_check
def relation(
    paper: str, model: str, steps: int, without: str | None = None, good: float = 0.99, bad: float = 0.9
) -> CheckResult:
    """Checks that the model learns a relation, and that `without` does not.

    Args:
        paper: the paper of the claim.
        model: the model, as experiments/relations.py names it.
        steps: the relation is this number of steps of MOTHER.
        without: the model that does not learn it.
        good: smallest F1 that counts as learnt: on new families, on families of twice the size, and on families that
            contain every person twice.
        bad: the relation is not learnt if one of the three F1 values is below this.

    Returns:
        None if a value is between the two thresholds.
    """
    found = [load_cases("relations")[f"{name}, {steps} steps"] for name in (model, without) if name]
    worst = [min(value[key] for key in ("f1", "larger", "twins")) for value in found]
    said = "; ".join(
        f"{name}: F1 {value['f1']:.3f}, on families twice as large {value['larger']:.3f}, on two equal ones "
        "in one graph "
        f"{value['twins']:.3f}"
        for name, value in zip((model, without), found, strict=False)
    )
    right = worst[0] >= good and all(w < bad for w in worst[1:])
    wrong = worst[0] < bad or any(w >= good for w in worst[1:])
    return CheckResult(True if right else False if wrong else None, f"{steps} steps of MOTHER; {said}", confirmed=True)
