"""Tests of claims of Polynormer by what experiments/ computed."""

from gt_bench.claims.checks.experiment_values import of, percentages, so_far, to_compute
from gt_bench.claims.checks.registry import Found, test
from gt_bench.claims.experiments.registry import module_of

# relabelled copies of one graph may differ by so much, which is rounding
CONTROL = 1e-9


@test
def monomials(paper: str) -> Found:
    """Every monomial of the theorem is represented, for all sizes."""
    sizes = module_of("polynomials").SIZES
    found = of("polynomials")
    said = ", ".join(f"{case}: {found[case]['represented']} of {found[case]['monomials']}" for case in sizes)
    return Found(all(found[case]["represented"] == found[case]["monomials"] for case in sizes), said, shown=True)


@test
def index_sets(paper: str) -> Found:
    """Equations 9 to 11 give the output of the model, for all numbers of layers."""
    layers_of = module_of("polynomials").EQUATION_9
    found = {f"L = {layers}": of("polynomials")[case] for case, layers in layers_of.items()}
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
    if max(first["between the graphs"]) > CONTROL:
        raise AssertionError(f"version 1 tells {pair} apart")
    rows = list(
        zip(*(second[key] for key in ("layers", "between the graphs", "within one", "relabelled copies")), strict=True)
    )
    one_graph = [max(*within, *copies, CONTROL) for _, _, within, copies in rows]
    apart = [gap > most for (_, gap, _, _), most in zip(rows, one_graph, strict=True)]
    beyond = [gap > 10 * most for (_, gap, _, _), most in zip(rows, one_graph, strict=True)]
    said = "; ".join(
        f"{layers} layers: the graphs differ by {gap:.2g}, choices of the eigenvector on one graph by up to {max(within):.2g}, its relabelled copies by {max(copies):.2g}"
        for layers, gap, within, copies in rows
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
    """Each of `forms` distinguishes all connected graphs of six nodes that colour refinement does, all features alike. None if some do and some do not."""
    found = of("one_wl")
    said = ", ".join(f"{form} {found[form]['classes']}" for form in forms)
    refinement = found["colour refinement"]
    if (control := max(found[case]["control"] for case in ("colour refinement", *forms))) > CONTROL:
        return Found(None, f"relabelled copies of one graph differ by {control:.1g}")
    right = [found[form]["at least 1-WL"] for form in forms]
    return Found(
        True if all(right) else None if any(right) else False,
        f"of {refinement['graphs']} connected graphs of six nodes colour refinement makes {refinement['classes']} classes, {said}",
        shown=True,
    )


@test
def overflow(paper: str, graphs: list[str]) -> Found:
    """With ReLU the denominators of equation 6 leave the range of float32 on these graphs. None where they do not at the start: training may do what it likes."""
    found = of("relu_kernel")
    over = [found[case]["largest with ReLU"] > found[case]["most that float32 holds"] for case in graphs]
    said = "; ".join(
        f"{case}: at most {value['largest with ReLU']:.1e} (with the sigmoid {value['largest with the sigmoid']:.1e}), 0 / 0 in {value['zeros']:,} of {value['denominators']:,}"
        for case, value in found.items()
    )
    return Found(True if all(over) else None, f"untrained; float32 holds 3.4e+38; {said}", shown=True)


@test
def important_nodes_far_away(paper: str) -> Found:
    """In every draw of Figure 4's nodes more pairs of one label lie beyond 5 hops than within."""
    case = module_of("same_label").PAIRS
    found = so_far("same_label", [case]).get(case)
    if found is None:
        return to_compute("same_label", [case])
    shares = [near / same for near, same in zip(found["within 5 hops"], found["same label"], strict=True)]
    pairs = sum(found["same label"]) / len(shares)
    return Found(
        max(shares) < 0.5,
        f"of {pairs:,.0f} ordered pairs of one label among 100 nodes {percentages(shares)} lie within 5 hops",
        shown=True,
    )


@test
def attention_differentiates_labels(paper: str, good: float = 0.8, poor: float = 0.6) -> Found:
    """For targets of either label attention is larger on nodes of that label: an AUC of at least `good` in every draw of nodes; below `poor` in every draw it is not. None in between."""
    attention = module_of("same_label").ATTENTION
    cell = module_of("same_label").CELL
    found = so_far("same_label", [attention]).get(attention)
    if found is None:
        return to_compute("same_label", [attention], [cell])
    said = "; ".join(
        f"{name}: AUC {min(value['same label']):.2f} to {max(value['same label']):.2f}, of targets of the worse label {min(value['of the worse label']):.2f} to {max(value['of the worse label']):.2f}, "
        f"for one label within 5 hops {min(value['same label within 5 hops']):.2f} to {max(value['same label within 5 hops']):.2f}, {min(value['ratio']):.2f} to {max(value['ratio']):.2f} times the attention"
        for name, value in found.items()
        if name != "run"
    )
    worse = found["trained"]["of the worse label"]
    return Found(True if min(worse) >= good else False if max(worse) < poor else None, said, shown=True)
