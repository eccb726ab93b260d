"""Tests of claims of the Edge Transformer by what experiments/ computed."""

from gt_bench.claims.checks.experiment_values import of
from gt_bench.claims.checks.registry import Found, test


@test
def relation(
    paper: str, model: str, steps: int, without: str | None = None, good: float = 0.99, bad: float = 0.9
) -> Found:
    """The model learns the relation of so many steps of MOTHER, and `without` does not: F1 of at least `good` on families that it has not seen, on larger ones and on two alike side
    by side, or below `bad` on one of them. None in between."""
    found = [of("relations")[f"{name}, {steps} steps"] for name in (model, without) if name]
    worst = [min(value[key] for key in ("f1", "larger", "twins")) for value in found]
    said = "; ".join(
        f"{name}: F1 {value['f1']:.3f}, on families twice as large {value['larger']:.3f}, on two alike side by side {value['twins']:.3f}"
        for name, value in zip((model, without), found, strict=False)
    )
    right = worst[0] >= good and all(w < bad for w in worst[1:])
    wrong = worst[0] < bad or any(w >= good for w in worst[1:])
    return Found(True if right else False if wrong else None, f"{steps} steps of MOTHER; {said}", shown=True)
