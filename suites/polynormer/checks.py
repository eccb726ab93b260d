"""Checks of claims of Polynormer, based on its experiments."""

from gt_bench.claims.checks.findings import load_cases, not_computed, partial_values, percentages
from gt_bench.claims.checks.registry import CheckResult, register_check

# cases of experiments/same_label.py, and the cell of the second
PAIRS, ATTENTION, CELL = "labels and hops", "attention", "polynormer/minesweeper/polynormer"
# prefix of cases of experiments/polynomials.py; the others are sizes
EQUATION_9 = "equation 9, "
# rounding: largest relative difference of relabelled copies of one graph
CONTROL = 1e-9


@register_check
def monomials(paper: str) -> CheckResult:
    """Checks that every monomial of the theorem is represented, for all sizes."""
    found = load_cases("polynomials")
    sizes = [case for case in found if not case.startswith(EQUATION_9)]
    said = ", ".join(f"{case}: {found[case]['represented']} of {found[case]['monomials']}" for case in sizes)
    return CheckResult(
        all(found[case]["represented"] == found[case]["monomials"] for case in sizes), said, confirmed=True
    )


@register_check
def index_sets(paper: str) -> CheckResult:
    """Checks that equations 9 to 11 give the output of the model, for all numbers of layers."""
    cases = load_cases("polynomials").with_prefix(EQUATION_9)
    found = {case.removeprefix(EQUATION_9): value for case, value in cases.items()}
    wrong = [case for case, value in found.items() if not value["as printed"]]
    right = [case for case, value in found.items() if value["as derived"]]
    return CheckResult(
        not wrong,
        f"unequal to the model's output for {', '.join(wrong) or 'none'}; with W at the first index of each half "
        f"instead, equal for {', '.join(right)}",
        confirmed=True,
    )


@register_check
def told_apart(paper: str, pair: str) -> CheckResult:
    """Checks that Polynormer-v2 distinguishes a pair of graphs of Appendix K.

    The difference of the two graphs must be larger than that of two choices of the eigenvector on one graph.

    Args:
        paper: the paper of the claim.
        pair: the pair, as experiments/second_eigenvector.py names it.

    Returns:
        True if the pair is distinguished for every number of layers, False if for none, None otherwise.

    Raises:
        AssertionError: version 1 distinguishes the pair, so that it is not a test of version 2.
    """
    found = load_cases("second_eigenvector")
    first, second = found[f"{pair}, v1"], found[f"{pair}, v2"]
    if max(first["between the graphs"]) > CONTROL:
        raise AssertionError(f"version 1 distinguishes {pair}")
    rows = list(
        zip(*(second[key] for key in ("layers", "between the graphs", "within one", "relabelled copies")), strict=True)
    )
    one_graph = [max(*within, *copies, CONTROL) for _, _, within, copies in rows]
    apart = [gap > most for (_, gap, _, _), most in zip(rows, one_graph, strict=True)]
    beyond = [gap > 10 * most for (_, gap, _, _), most in zip(rows, one_graph, strict=True)]
    said = "; ".join(
        f"{layers} layers: the graphs differ by {gap:.2g}, choices of the eigenvector on one graph by up to "
        f"{max(within):.2g}, its relabelled copies by {max(copies):.2g}"
        for layers, gap, within, copies in rows
    )
    said += f"; the second eigenvalue is {'simple' if max(second['multiplicity']) == 1 else 'double'}"
    return CheckResult(True if all(beyond) else None if any(apart) else False, said, confirmed=True)


@register_check
def outputs_unique(paper: str, pair: str) -> CheckResult:
    """Checks that all nodes of each graph of the pair have different outputs under Polynormer-v2."""
    found = load_cases("second_eigenvector")[f"{pair}, v2"]
    said = "; ".join(
        f"{layers} layers: {a} and {b} different outputs of {found['nodes'][0]} and {found['nodes'][1]} nodes"
        for layers, (a, b) in zip(found["layers"], found["distinct outputs"], strict=True)
    )
    return CheckResult(all(pair == found["nodes"] for pair in found["distinct outputs"]), said, confirmed=True)


@register_check
def at_least_one_wl(paper: str, forms: list[str]) -> CheckResult:
    """Checks that each of `forms` distinguishes all graphs that colour refinement distinguishes.

    The graphs are all connected graphs of six nodes with equal features.

    Returns:
        None if some forms do and some do not.
    """
    found = load_cases("one_wl")
    said = ", ".join(f"{form} {found[form]['classes']}" for form in forms)
    refinement = found["colour refinement"]
    if (control := max(found[case]["control"] for case in ("colour refinement", *forms))) > CONTROL:
        return CheckResult(None, f"relabelled copies of one graph differ by {control:.1g}")
    right = [found[form]["at least 1-WL"] for form in forms]
    return CheckResult(
        True if all(right) else None if any(right) else False,
        f"of {refinement['graphs']} connected graphs of six nodes colour refinement makes {refinement['classes']} "
        f"classes, {said}",
        confirmed=True,
    )


@register_check
def overflow(paper: str, graphs: list[str]) -> CheckResult:
    """Checks that with ReLU the denominators of equation 6 exceed the range of float32 on these graphs.

    Returns:
        None if they do not at initialisation, because training may change this.
    """
    found = load_cases("relu_kernel")
    over = [found[case]["largest with ReLU"] > found[case]["most that float32 holds"] for case in graphs]
    said = "; ".join(
        f"{case}: at most {value['largest with ReLU']:.1e} (with the sigmoid "
        f"{value['largest with the sigmoid']:.1e}), 0 / 0 in {value['zeros']:,} of {value['denominators']:,}"
        for case, value in found.items()
    )
    return CheckResult(True if all(over) else None, f"untrained; float32 holds 3.4e+38; {said}", confirmed=True)


@register_check
def important_nodes_far_away(paper: str) -> CheckResult:
    """Checks that most pairs of equal label are more than 5 hops apart, in every draw of Figure 4's nodes."""
    found = partial_values("same_label", [PAIRS], [PAIRS]).get(PAIRS)
    if found is None:
        return not_computed("same_label", [PAIRS])
    shares = [near / same for near, same in zip(found["within 5 hops"], found["same label"], strict=True)]
    pairs = sum(found["same label"]) / len(shares)
    return CheckResult(
        max(shares) < 0.5,
        f"of {pairs:,.0f} ordered pairs of one label among 100 nodes {percentages(shares)} lie within 5 hops",
        confirmed=True,
    )


@register_check
def attention_differentiates_labels(paper: str, good: float = 0.8, poor: float = 0.6) -> CheckResult:
    """Checks that attention is larger on nodes of the target's label, for targets of either label.

    Args:
        paper: the paper of the claim.
        good: smallest AUC of every draw of nodes if it is.
        poor: largest AUC of every draw if it is not.

    Returns:
        None if the AUC is between the two.
    """
    found = partial_values("same_label", [ATTENTION], [ATTENTION]).get(ATTENTION)
    if found is None:
        return not_computed("same_label", [ATTENTION], [CELL])
    said = "; ".join(
        f"{name}: AUC {min(value['same label']):.2f} to {max(value['same label']):.2f}, of targets of the worse label "
        f"{min(value['of the worse label']):.2f} to {max(value['of the worse label']):.2f}, "
        f"for one label within 5 hops {min(value['same label within 5 hops']):.2f} to "
        f"{max(value['same label within 5 hops']):.2f}, {min(value['ratio']):.2f} to {max(value['ratio']):.2f} times "
        "the attention"
        for name, value in found.items()
        if name != "run"
    )
    worse = found["trained"]["of the worse label"]
    return CheckResult(True if min(worse) >= good else False if max(worse) < poor else None, said, confirmed=True)
