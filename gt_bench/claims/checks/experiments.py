"""The tests of claims by small experiments on generated data, made anew: keys and norms (PPGT), what grows with the size, relations of families."""

from typing import Literal

from gt_bench.claims.checks.experiment_values import of, percentages
from gt_bench.claims.checks.registry import Found, test
from gt_bench.papers.published import PublishedError


@test
def nearest_key(paper: str, form: str) -> Found:
    """The largest score of `form` is the nearest key's in every draw."""
    found = of("nearest_key")[form]
    shares = [value["nearest"] for value in found.values()]
    return Found(
        min(shares) == 1.0,
        f"{form}, the largest score is the nearest key's in {percentages(shares)} of draws",
        shown=True,
    )


@test
def fewer_long_keys(paper: str, form: str) -> Found:
    """The longest key gets the largest score in fewer draws under `form` than under scaled dot products, for every width and number of keys."""
    found, dots = of("nearest_key")[form], of("nearest_key")["scaled dot product"]
    ours, theirs = ([value["longest"] for value in values.values()] for values in (found, dots))
    fewer = all(a < b for a, b in zip(ours, theirs, strict=True))
    return Found(
        fewer,
        f"the longest key has the largest score in {percentages(ours)} of draws, by scaled dot products in {percentages(theirs)}",
        shown=True,
    )


@test
def magnitude_kept(paper: str, norm: str, kept: bool, most: float = 0.1, least: float = 0.5) -> Found:
    """Auto-encoders with `norm` recover magnitudes (`kept`: an error of at most `most` of their spread) or lose them (at least `least`); None where it hangs on
    what is unprinted: width and bias."""
    found = {
        case.partition(", ")[2]: value["magnitude"]
        for case, value in of("auto_encoders").beginning(f"{norm}, ").items()
    }
    right = [error <= most if kept else error >= least for error in found.values()]
    said = ", ".join(f"{setting} {error:.2g}" for setting, error in found.items())
    return Found(
        True if all(right) else None if any(right) else False,
        f"error of the magnitude over its spread, {norm}: {said}",
        shown=True,
    )


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
