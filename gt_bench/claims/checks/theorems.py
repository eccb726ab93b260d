"""The tests of claims that are proved: what the equations of a paper give, on graphs and weights made for it (gt_bench/claims/experiments)."""

from gt_bench.claims.checks.experiment_values import of
from gt_bench.claims.checks.registry import Found, test
from gt_bench.claims.experiments.registry import module_of

# relabelled copies of one graph may differ by so much, which is rounding
CONTROL = 1e-9
# a sharpness of gt_bench/claims/experiments/equivariant_layers.py that is shown beside the last
SHARP = 5


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
def equivariant_layers(paper: str, layers: list[str], most: float = 1e-9) -> Found:
    """The Transformer with the proof's weights gives the equivariant layers to any precision: each sharpness brings it closer, and the last within `most`."""
    found = {
        case: value for layer in layers for case, value in of("equivariant_layers").beginning(f"{layer}, n = ").items()
    }
    right = all(
        value["rounding"] <= most and value["error"] == sorted(value["error"], reverse=True) for value in found.values()
    )
    other = of("equivariant_layers")["one layer, weights of n = 4, n = 5"]["rounding"]
    said = ", ".join(
        f"{case} {value['rounding']:.0e} (with scores {SHARP} apart {value['error'][1]:.0e})"
        for case, value in found.items()
    )
    return Found(
        right, f"largest relative errors: {said}; weights made for 4 nodes are {other:.1g} off on 5", shown=True
    )


@test
def message_passing(paper: str, reading: str, otherwise: str, most: float = 1e-12) -> Found:
    """Test whether two layers can be a message passing layer.

    Args:
        paper: The paper.
        reading: The equation as published: it is refuted if nodes with different numbers of neighbours always get the same value.
        otherwise: Another reading, shown next to it: weights for which the layers are a message passing layer.
        most: Differences up to this are rounding.

    Returns:
        False if the draws refute the published reading; None if they do not.
    """
    finding = of("message_passing")
    found = finding.beginning(reading)
    alike = all(value["differ"] <= most and value["control"] is not False for value in found.values())
    said = "; ".join(
        f"{case.removeprefix(f'{reading}, ')}: nodes of {_listed(value['degrees'])} neighbours differ by {value['differ']:.0e}"
        for case, value in found.items()
    )
    (other,) = finding.beginning(otherwise).values()
    said += (
        f". With {otherwise}: relative error {other['error']:.0e} on {other['nodes']} nodes and {other['edges']} edges"
    )
    return Found(False if alike else None, f"whatever the weights, {said}", shown=True)


@test
def beyond_message_passing(paper: str, networks: list[str], datasets: list[str], others: list[str]) -> Found:
    """On each dataset each of `networks` tells apart all that 1-WL does and more; of `others` it is said what they tell apart. None where one draw does not."""
    found = of("identifiers")

    def said(method: str) -> str:
        counts = ", ".join(f"{name} {found[f'{method}; {name}']['apart']}" for name in datasets)
        return f"{method}: {counts}"

    right = all(
        found[f"{network}; {name}"]["apart"] > found[f"1-WL; {name}"]["apart"]
        for network in networks
        for name in datasets
    )
    pairs = ", ".join(f"{name} {found[f'1-WL; {name}']['pairs']}" for name in datasets)
    return Found(right or None, f"of {pairs} pairs {'; '.join(map(said, ('1-WL', *networks, *others)))}", shown=True)


def _listed(numbers: list[int]) -> str:
    return " and ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])]) if len(numbers) > 1 else str(numbers[0])
