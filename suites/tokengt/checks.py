"""Tests of claims of TokenGT by what experiments/ computed."""

from statistics import fmean, pstdev
from typing import Literal

from gt_bench.claims.checks.experiment_values import of, so_far, to_compute
from gt_bench.claims.checks.registry import Found, test
from gt_bench.claims.experiments.registry import module_of

# a sharpness of experiments/equivariant_layers.py that is reported next to the last one
SHARP = 5


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


@test
def maps_are_bases(paper: str, cases: list[str], share: float = 0.9) -> Found:
    """Each head's map is nearest to its own basis tensor and has `share` of its attention there. False where one is nearest to another, None where they are less acute."""
    cells = module_of("attention_maps").CELLS
    stand_in = module_of("attention_maps").STAND_IN
    found = so_far("attention_maps", [*cases, stand_in])
    other = {case: [h for h, basis in enumerate(value["nearest"]) if h != basis] for case, value in found.items()}
    said = "; ".join(
        f"{case}: {15 - len(other[case])} of 15 heads nearest to their own tensor, on its entries {100 * min(value['share']):.1f} to {100 * max(value['share']):.1f} % of the attention "
        f"(of even attention {100 * min(value['uniform']):.1f} to {100 * max(value['uniform']):.1f} %)"
        for case, value in found.items()
    )
    if any(other[case] for case in cases if case in found):
        return Found(False, said, shown=True)
    if missing := [case for case in cases if case not in found]:
        return to_compute("attention_maps", missing, [cells[case] for case in missing], said)
    return Found(True if min(min(found[case]["share"]) for case in cases) >= share else None, said, shown=True)


@test
def attention_distances(
    paper: str, said: Literal["deeper", "lowest", "spread"], far: float = 0.8, near: float = 0.5
) -> Found:
    """The paper's runs, ORF and Lap. `deeper`: on average the heads of the upper half of the layers attend further than those of the lower half, and most of them globally: to `far` or more of the distance of
    even attention. `lowest`: of the heads of the lowest quarter of the layers one attends globally and one to at most `near` of it. `spread`: distances scatter more over heads with Lap. The stand-in decides nothing."""
    cells = module_of("attention_distance").CELLS
    stand_in = module_of("attention_distance").STAND_IN
    found = so_far("attention_distance", list(cells))
    shares = {
        case: [[head / value["uniform"] for head in layer] for layer in value["distance"]]
        for case, value in found.items()
    }
    said_of = "; ".join(
        f"{case}, {len(layers)} layers: distances over that of even attention ({found[case]['uniform']:.2f} hops) {', '.join(f'{min(layer):.2f} to {max(layer):.2f}' for layer in layers)}"
        for case, layers in shares.items()
    )
    papers = [case for case in cells if case != stand_in]
    if missing := [case for case in papers if case not in found]:
        return to_compute("attention_distance", missing, [cells[case] for case in missing], said_of)
    right: list[bool | None] = []
    for case in papers:
        layers = shares[case]
        half, quarter = len(layers) // 2, max(1, len(layers) // 4)
        upper, lower = ([head for layer in part for head in layer] for part in (layers[half:], layers[:half]))
        lowest = [head for layer in layers[:quarter] for head in layer]
        if said == "deeper":
            right.append(
                False
                if fmean(upper) <= fmean(lower)
                else True
                if sum(head >= far for head in upper) > len(upper) / 2
                else None
            )
        elif said == "lowest":
            right.append(max(lowest) >= far and min(lowest) <= near)
    if said == "spread":
        orf, lap = (fmean(pstdev(layer) for layer in shares[case]) for case in papers)
        right.append(lap > orf)
    return Found(False if False in right else None if None in right else True, said_of, shown=True)
