"""The tests of claims that a computation of ours decides: judgements over what stages/findings keeps."""

from collections.abc import Collection, Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any, Literal

from stages import findings
from stages.report.found import Found, test
from stages.report.published import PublishedError
from stages.schema import nearest

# relabelled copies of one graph may differ by so much, which is rounding
CONTROL = 1e-9
# a sharpness of stages/findings/equivariant_layers.py that is shown beside the last
SHARP = 5


class Cases(dict[str, Any]):
    """Case -> value of the finding `name`. Raises PublishedError for cases that it does not have."""

    def __init__(self, name: str, values: Mapping[str, Any]):
        super().__init__(values)
        self.name = name

    def __missing__(self, case: str) -> Any:
        raise PublishedError(f"the finding {self.name} has no case {case!r}{nearest(case, list(self))}")

    def beginning(self, start: str) -> dict[str, Any]:
        """Those whose names begin so."""
        return {case: value for case, value in self.items() if case.startswith(start)} or self[start]


def of(name: str) -> Cases:
    """Raises FindingError."""
    return Cases(name, findings.values(name))


def so_far(name: str, cases: Collection[str]) -> dict[str, Any]:
    """Of these cases of a finding those that have been computed. Raises FindingError, and PublishedError for cases that it does not have."""
    known = findings.module_of(name).CASES
    if unknown := [case for case in cases if case not in known]:
        raise PublishedError(f"the finding {name} has no case {unknown[0]!r}{nearest(unknown[0], known)}")
    return {case: value for case, value in findings.partial(name).items() if case in cases}


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
    if max(first["between the graphs"]) > CONTROL:
        raise AssertionError(f"version 1 tells {pair} apart")
    rows = list(zip(*(second[key] for key in ("layers", "between the graphs", "within one", "relabelled copies")), strict=True))
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
    """Each of `forms` tells apart all connected graphs of six nodes that colour refinement tells apart, all features alike."""
    found = of("one_wl")
    said = ", ".join(f"{form} {found[form]['classes']}" for form in forms)
    refinement = found["colour refinement"]
    if (control := max(found[case]["control"] for case in ("colour refinement", *forms))) > CONTROL:
        return Found(None, f"relabelled copies of one graph differ by {control:.1g}")
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
    found = {case.partition(", ")[2]: value["magnitude"] for case, value in of("auto_encoders").beginning(f"{norm}, ").items()}
    right = [error <= most if kept else error >= least for error in found.values()]
    said = ", ".join(f"{setting} {error:.2g}" for setting, error in found.items())
    return Found(
        True if all(right) else None if any(right) else False, f"error of the magnitude over its spread, {norm}: {said}", shown=True
    )


@test
def growth(
    paper: str, exponents: dict[str, float], largest: dict[str, float] | None = None, tolerance: float = 0.35, order: Literal[2, 3] = 2
) -> Found:
    """The counted operations of each model grow with that power of the size, and the numbers of its largest tensor with those of `largest`. Lower terms
    make what is counted at finite sizes a little flatter: `tolerance`. `order`: of the tensors."""
    if not exponents and not largest:
        raise PublishedError("growth names no model: give `exponents` or `largest`")
    found = of("growth" if order == 2 else "growth_of_order_3")
    said, right = [], True
    for what, wanted in (("operations", exponents), ("largest", largest or {})):
        for case, power in wanted.items():
            measured = found[case]["exponent"][what]
            right &= abs(measured - power) <= tolerance
            unit = case.partition(", by ")[2] or "nodes"
            name = case if what == "operations" else f"the largest tensor of {case}"
            said.append(f"{name} {measured:.2f} (said {power:g}; {found[case]['sizes'][-2]:,} to {found[case]['sizes'][-1]:,} {unit})")
    return Found(right, f"exponents of counted operations: {', '.join(said)}", shown=True)


@test
def trains_or_crashes(paper: str, crashes: dict[str, bool]) -> Found:
    """Each run of Table 13 (norm, learning rate) crashes or trains as printed."""
    found = so_far("stress_test", crashes)
    if missing := [case for case in crashes if case not in found]:
        cases = " ".join(f"--case {case!r}" for case in missing)
        return Found(None, f"needs {len(missing)} runs of an hour of one core: `{findings.command('stress_test')} {cases}`", tried=False)

    def said(case: str) -> str:
        value = found[case]
        if value["status"] != "ok":
            return f"{case} {value['status']} in epoch {value['epochs'] + 1}"
        return f"{case} {'crashes' if value['crashed'] else 'trains'} (training loss {value['losses'][0]:.2f} to {value['losses'][-1]:.2f})"

    right = all(found[case]["crashed"] == printed for case, printed in crashes.items())
    return Found(right, f"one seed: {', '.join(map(said, crashes))}", shown=True)


@test
def important_nodes_far_away(paper: str) -> Found:
    """In every draw of Figure 4's nodes more pairs of one label lie beyond 5 hops than within."""
    from stages.findings.same_label import PAIRS

    found = so_far("same_label", [PAIRS]).get(PAIRS)
    if found is None:
        return _to_compute("same_label", [PAIRS])
    shares = [near / same for near, same in zip(found["within 5 hops"], found["same label"], strict=True)]
    pairs = sum(found["same label"]) / len(shares)
    return Found(
        max(shares) < 0.5, f"of {pairs:,.0f} ordered pairs of one label among 100 nodes {_range(shares)} lie within 5 hops", shown=True
    )


@test
def attention_differentiates_labels(paper: str, good: float = 0.8, poor: float = 0.6) -> Found:
    """For targets of either label attention is larger on nodes of that label: an AUC of at least `good` in every draw of nodes; below `poor` in every draw it is not. None in between."""
    from stages.findings.same_label import ATTENTION, CELL

    found = so_far("same_label", [ATTENTION]).get(ATTENTION)
    if found is None:
        return _to_compute("same_label", [ATTENTION], [CELL])
    said = "; ".join(
        f"{name}: AUC {min(value['same label']):.2f} to {max(value['same label']):.2f}, of targets of the worse label {min(value['of the worse label']):.2f} to {max(value['of the worse label']):.2f}, "
        f"for one label within 5 hops {min(value['same label within 5 hops']):.2f} to {max(value['same label within 5 hops']):.2f}, {min(value['ratio']):.2f} to {max(value['ratio']):.2f} times the attention"
        for name, value in found.items()
        if name != "run"
    )
    worse = found["trained"]["of the worse label"]
    return Found(True if min(worse) >= good else False if max(worse) < poor else None, said, shown=True)


@test
def maps_are_bases(paper: str, cases: list[str], share: float = 0.9) -> Found:
    """Each head's map is nearest to its own basis tensor and has `share` of its attention there. False where one is nearest to another, None where they are less acute."""
    from stages.findings.attention_maps import CELLS, STAND_IN

    found = so_far("attention_maps", [*cases, STAND_IN])
    other = {case: [h for h, basis in enumerate(value["nearest"]) if h != basis] for case, value in found.items()}
    said = "; ".join(
        f"{case}: {15 - len(other[case])} of 15 heads nearest to their own tensor, on its entries {100 * min(value['share']):.1f} to {100 * max(value['share']):.1f} % of the attention "
        f"(of even attention {100 * min(value['uniform']):.1f} to {100 * max(value['uniform']):.1f} %)"
        for case, value in found.items()
    )
    if any(other[case] for case in cases if case in found):
        return Found(False, said, shown=True)
    if missing := [case for case in cases if case not in found]:
        return _to_compute("attention_maps", missing, [CELLS[case] for case in missing], said)
    return Found(True if min(min(found[case]["share"]) for case in cases) >= share else None, said, shown=True)


@test
def attention_distances(paper: str, said: Literal["deeper", "lowest", "spread"], far: float = 0.8, near: float = 0.5) -> Found:
    """The paper's runs, ORF and Lap. `deeper`: on average the heads of the upper half of the layers attend further than those of the lower half, and most of them globally: to `far` or more of the distance of
    even attention. `lowest`: of the heads of the lowest quarter of the layers one attends globally and one to at most `near` of it. `spread`: distances scatter more over heads with Lap. The stand-in decides nothing."""
    from stages.findings.attention_distance import CELLS, STAND_IN

    found = so_far("attention_distance", list(CELLS))
    shares = {case: [[head / value["uniform"] for head in layer] for layer in value["distance"]] for case, value in found.items()}
    said_of = "; ".join(
        f"{case}, {len(layers)} layers: distances over that of even attention ({found[case]['uniform']:.2f} hops) {', '.join(f'{min(layer):.2f} to {max(layer):.2f}' for layer in layers)}"
        for case, layers in shares.items()
    )
    papers = [case for case in CELLS if case != STAND_IN]
    if missing := [case for case in papers if case not in found]:
        return _to_compute("attention_distance", missing, [CELLS[case] for case in missing], said_of)
    right: list[bool | None] = []
    for case in papers:
        layers = shares[case]
        half, quarter = len(layers) // 2, max(1, len(layers) // 4)
        upper, lower = ([head for layer in part for head in layer] for part in (layers[half:], layers[:half]))
        lowest = [head for layer in layers[:quarter] for head in layer]
        if said == "deeper":
            right.append(False if fmean(upper) <= fmean(lower) else True if sum(head >= far for head in upper) > len(upper) / 2 else None)
        elif said == "lowest":
            right.append(max(lowest) >= far and min(lowest) <= near)
    if said == "spread":
        orf, lap = (fmean(pstdev(layer) for layer in shares[case]) for case in papers)
        right.append(lap > orf)
    return Found(False if False in right else None if None in right else True, said_of, shown=True)


def _to_compute(name: str, cases: list[str], cells: Sequence[str] = (), so_far: str = "") -> Found:
    """What has not been computed, by which commands it is, and what was found so far."""
    trained = f"{', '.join(f'`gt-bench train {cell}`' for cell in cells)}, then " if cells else ""
    what = "a trained run with its weights: " if len(cells) == 1 else f"{len(cells)} trained runs with their weights: " if cells else ""
    needs = f"needs {what}{trained}`{findings.command(name)} {' '.join(f'--case {case!r}' for case in cases)}`"
    return Found(None, f"{needs}; {so_far}" if so_far else needs, tried=False)


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
    found = {case: value for layer in layers for case, value in of("equivariant_layers").beginning(f"{layer}, n = ").items()}
    right = all(value["rounding"] <= most and value["error"] == sorted(value["error"], reverse=True) for value in found.values())
    other = of("equivariant_layers")["one layer, weights of n = 4, n = 5"]["rounding"]
    said = ", ".join(f"{case} {value['rounding']:.0e} (with scores {SHARP} apart {value['error'][1]:.0e})" for case, value in found.items())
    return Found(right, f"largest relative errors: {said}; weights made for 4 nodes are {other:.1g} off on 5", shown=True)


@test
def message_passing(paper: str, reading: str, most: float = 1e-12) -> Found:
    """Two layers are a message passing layer (`coefficients of one`), or give nodes the same whose numbers of neighbours differ (`equation 21`): then they are none. None where
    the draws show neither."""
    found = of("message_passing").beginning(reading)
    if reading == "coefficients of one":
        (value,) = found.values()
        said = f"{value['nodes']} nodes, {value['edges']} edges: relative error {value['error']:.0e}"
        return Found(value["error"] <= most, said, shown=True)
    alike = all(value["differ"] <= most and value["control"] is not False for value in found.values())
    said = "; ".join(
        f"{case.removeprefix(f'{reading}, ')}: nodes of {_listed(value['degrees'])} neighbours differ by {value['differ']:.0e}"
        for case, value in found.items()
    )
    return Found(False if alike else None, f"whatever the weights, {said}", shown=True)


@test
def beyond_message_passing(paper: str, networks: list[str], datasets: list[str], others: list[str]) -> Found:
    """On each dataset each of `networks` tells apart all that 1-WL does and more; of `others` it is said what they tell apart. None where one draw does not."""
    found = of("identifiers")

    def said(method: str) -> str:
        counts = ", ".join(f"{name} {found[f'{method}; {name}']['apart']}" for name in datasets)
        return f"{method}: {counts}"

    right = all(found[f"{network}; {name}"]["apart"] > found[f"1-WL; {name}"]["apart"] for network in networks for name in datasets)
    pairs = ", ".join(f"{name} {found[f'1-WL; {name}']['pairs']}" for name in datasets)
    return Found(right or None, f"of {pairs} pairs {'; '.join(map(said, ('1-WL', *networks, *others)))}", shown=True)


@test
def relation(paper: str, model: str, steps: int, without: str | None = None, good: float = 0.99, bad: float = 0.9) -> Found:
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


def _listed(numbers: list[int]) -> str:
    return " and ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])]) if len(numbers) > 1 else str(numbers[0])


def _range(shares: list[float]) -> str:
    low, high = f"{100 * min(shares):.1f}", f"{100 * max(shares):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"
