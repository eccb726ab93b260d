"""The tests of claims that a computation of ours decides: judgements over what stages/findings keeps."""

from typing import Any

from stages import findings
from stages.report.found import Found, test


def of(name: str) -> dict[str, Any]:
    return findings.values(name)


@test
def monomials(paper: str) -> Found:
    """Every monomial of the theorem is represented, for all sizes."""
    from stages.findings.polynomials import SIZES

    found = of("polynomials")
    said = ", ".join(f"{case}: {found[case]['represented']} of {found[case]['monomials']}" for case in SIZES)
    return Found(all(found[case]["represented"] == found[case]["monomials"] for case in SIZES), said, shown=True)


@test
def index_sets(paper: str) -> Found:
    """Equations 9 to 11 give the output of the model, for all numbers of layers."""
    from stages.findings.polynomials import EQUATION_9

    found = {f"L = {layers}": of("polynomials")[case] for case, layers in EQUATION_9.items()}
    wrong = [case for case, value in found.items() if not value["as printed"]]
    right = [case for case, value in found.items() if value["as derived"]]
    return Found(
        not wrong,
        f"unequal to the model's output for {', '.join(wrong) or 'none'}; with W at the first index of each half instead, equal for {', '.join(right)}",
        shown=True,
    )


@test
def told_apart(paper: str, pair: str) -> Found:
    """Polynormer-v2 tells the pair of Appendix K apart: by more than it does two choices of the eigenvector on one graph, for every number of
    layers tried; False where for none, None where it hangs on the number. Version 1 must not, or the pair would show nothing."""
    found = of("second_eigenvector")
    first, second = found[f"{pair}, v1"], found[f"{pair}, v2"]
    if max(first["between the graphs"]) > 1e-9:
        raise AssertionError(f"version 1 tells {pair} apart")
    beyond = [gap > 10 * max(*within, 1e-9) for gap, within in zip(second["between the graphs"], second["within one"], strict=True)]
    apart = [gap > max(within) for gap, within in zip(second["between the graphs"], second["within one"], strict=True)]
    said = "; ".join(
        f"{layers} layers: the graphs differ by {gap:.2g}, choices of the eigenvector on one graph by up to {max(within):.2g}, its relabelled copies by {max(copies):.2g}"
        for layers, gap, within, copies in zip(
            second["layers"], second["between the graphs"], second["within one"], second["relabelled copies"], strict=True
        )
    )
    said += f"; the second eigenvalue is {'simple' if max(second['multiplicity']) == 1 else 'double'}"
    return Found(True if all(beyond) else None if any(apart) else False, said, shown=True)


@test
def outputs_unique(paper: str, pair: str) -> Found:
    """Every node of either graph of the pair has an output of its own under Polynormer-v2."""
    found = of("second_eigenvector")[f"{pair}, v2"]
    said = "; ".join(
        f"{layers} layers: {a} and {b} different outputs of {found['nodes'][0]} and {found['nodes'][1]} nodes"
        for layers, (a, b) in zip(found["layers"], found["distinct outputs"], strict=True)
    )
    return Found(all(pair == found["nodes"] for pair in found["distinct outputs"]), said, shown=True)


@test
def at_least_one_wl(paper: str, forms: list[str]) -> Found:
    """Each of `forms` tells apart all connected graphs of six nodes that colour refinement tells apart, all features alike."""
    found = of("one_wl")
    said = ", ".join(f"{form} {found[form]['classes']}" for form in forms)
    refinement = found["colour refinement"]
    return Found(
        all(found[form]["at least 1-WL"] for form in forms),
        f"of {refinement['graphs']} connected graphs of six nodes colour refinement makes {refinement['classes']} classes, {said}",
        shown=True,
    )


@test
def nearest_key(paper: str, form: str) -> Found:
    """The largest score of `form` is the nearest key's in every draw."""
    found = of("nearest_key")[form]
    shares = [value["nearest"] for value in found.values()]
    return Found(min(shares) == 1.0, f"{form}, the largest score is the nearest key's in {_range(shares)} of draws", shown=True)


@test
def fewer_long_keys(paper: str, form: str) -> Found:
    """The longest key gets the largest score in fewer draws under `form` than under scaled dot products, for every width and number of keys."""
    found, dots = of("nearest_key")[form], of("nearest_key")["scaled dot product"]
    ours, theirs = ([value["longest"] for value in values.values()] for values in (found, dots))
    fewer = all(a < b for a, b in zip(ours, theirs, strict=True))
    return Found(
        fewer, f"the longest key has the largest score in {_range(ours)} of draws, by scaled dot products in {_range(theirs)}", shown=True
    )


@test
def magnitude_kept(paper: str, norm: str, kept: bool, most: float = 0.1, least: float = 0.5) -> Found:
    """Auto-encoders with `norm` recover magnitudes (`kept`: an error of at most `most` of their spread) or lose them (at least `least`); None where it hangs on
    what is unprinted: width and bias."""
    found = {case.partition(", ")[2]: value["magnitude"] for case, value in of("auto_encoders").items() if case.startswith(f"{norm}, ")}
    right = [error <= most if kept else error >= least for error in found.values()]
    said = ", ".join(f"{setting} {error:.2g}" for setting, error in found.items())
    return Found(
        True if all(right) else None if any(right) else False, f"error of the magnitude over its spread, {norm}: {said}", shown=True
    )


def _range(shares: list[float]) -> str:
    low, high = f"{100 * min(shares):.1f}", f"{100 * max(shares):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"
