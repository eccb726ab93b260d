"""Checks of claims of TokenGT, based on its experiments."""

from statistics import fmean, pstdev
from typing import Literal

from gt_bench.claims.checks.findings import load_cases, not_computed, partial_values
from gt_bench.claims.checks.registry import CheckResult, register_check

# cells of the cases of experiments/attention_maps.py and attention_distance.py, and the case that decides nothing
MAPS = {
    f"{tokens}, {name}": f"tokengt/ba-equivariant-basis-{tokens}/tokengt-attention-{identifiers}-type"
    for tokens in ("sparse", "dense")
    for name, identifiers in (("ORF", "orf"), ("Lap", "lap"))
}
DISTANCES = {"PCQM4Mv2, ORF": "tokengt/pcqm4mv2/tokengt-orf", "PCQM4Mv2, Lap": "tokengt/pcqm4mv2/tokengt-lap"}
STAND_IN = "stand-in"
# sharpness of experiments/equivariant_layers.py that is reported in addition to the last one
SHARP = 5


@register_check
def equivariant_layers(paper: str, layers: list[str], most: float = 1e-9) -> CheckResult:
    """Checks that the Transformer with the weights of the proof converges to the equivariant layers.

    Args:
        paper: the paper of the claim.
        layers: cases of experiments/equivariant_layers.py.
        most: largest error at the last sharpness. The error must decrease with each sharpness.
    """
    found = {
        case: value
        for layer in layers
        for case, value in load_cases("equivariant_layers").with_prefix(f"{layer}, n = ").items()
    }
    right = all(
        value["rounding"] <= most and value["error"] == sorted(value["error"], reverse=True) for value in found.values()
    )
    other = load_cases("equivariant_layers")["one layer, weights of n = 4, n = 5"]["rounding"]
    said = ", ".join(
        f"{case} {value['rounding']:.0e} (with scores {SHARP} apart {value['error'][1]:.0e})"
        for case, value in found.items()
    )
    return CheckResult(
        right, f"largest relative errors: {said}; weights made for 4 nodes are {other:.1g} off on 5", confirmed=True
    )


@register_check
def message_passing(paper: str, reading: str, otherwise: str, most: float = 1e-12) -> CheckResult:
    """Checks whether two layers can be a message passing layer.

    Args:
        paper: the paper of the claim.
        reading: the equation as published. It is refuted if nodes with different numbers of neighbours always have
            equal values.
        otherwise: another interpretation, for which weights exist that give a message passing layer. It is reported in
            addition.
        most: differences up to this are rounding.

    Returns:
        False if the draws refute the published equation, None otherwise.
    """
    finding = load_cases("message_passing")
    found = finding.with_prefix(reading)
    alike = all(value["differ"] <= most and value["control"] is not False for value in found.values())
    said = "; ".join(
        f"{case.removeprefix(f'{reading}, ')}: nodes of {_listed(value['degrees'])} neighbours differ by "
        f"{value['differ']:.0e}"
        for case, value in found.items()
    )
    (other,) = finding.with_prefix(otherwise).values()
    said += (
        f". With {otherwise}: relative error {other['error']:.0e} on {other['nodes']} nodes and {other['edges']} edges"
    )
    return CheckResult(False if alike else None, f"whatever the weights, {said}", confirmed=True)


@register_check
def beyond_message_passing(paper: str, networks: list[str], datasets: list[str], others: list[str]) -> CheckResult:
    """Checks that each network distinguishes more pairs than 1-WL on each dataset.

    Args:
        paper: the paper of the claim.
        networks: methods of experiments/identifiers.py.
        datasets: names of datasets.
        others: methods that are only reported.

    Returns:
        None if one draw of the weights does not.
    """
    found = load_cases("identifiers")

    def said(method: str) -> str:
        counts = ", ".join(f"{name} {found[f'{method}; {name}']['apart']}" for name in datasets)
        return f"{method}: {counts}"

    right = all(
        found[f"{network}; {name}"]["apart"] > found[f"1-WL; {name}"]["apart"]
        for network in networks
        for name in datasets
    )
    pairs = ", ".join(f"{name} {found[f'1-WL; {name}']['pairs']}" for name in datasets)
    return CheckResult(
        right or None, f"of {pairs} pairs {'; '.join(map(said, ('1-WL', *networks, *others)))}", confirmed=True
    )


def _listed(numbers: list[int]) -> str:
    return " and ".join([", ".join(map(str, numbers[:-1])), str(numbers[-1])]) if len(numbers) > 1 else str(numbers[0])


@register_check
def maps_are_bases(paper: str, cases: list[str], share: float = 0.9) -> CheckResult:
    """Checks that the attention map of each head is nearest to its own basis tensor.

    Args:
        paper: the paper of the claim.
        cases: cases of experiments/attention_maps.py.
        share: smallest share of a head's attention on the entries of its tensor.

    Returns:
        False if a map is nearest to another tensor. None if the shares are smaller, or runs are missing.
    """
    found = partial_values("attention_maps", [*cases, STAND_IN], [*MAPS, STAND_IN])
    other = {case: [h for h, basis in enumerate(value["nearest"]) if h != basis] for case, value in found.items()}
    said = "; ".join(
        f"{case}: {15 - len(other[case])} of 15 heads nearest to their own tensor, on its entries "
        f"{100 * min(value['share']):.1f} to {100 * max(value['share']):.1f} % of the attention "
        f"(of uniform attention {100 * min(value['uniform']):.1f} to {100 * max(value['uniform']):.1f} %)"
        for case, value in found.items()
    )
    if any(other[case] for case in cases if case in found):
        return CheckResult(False, said, confirmed=True)
    if missing := [case for case in cases if case not in found]:
        return not_computed("attention_maps", missing, [MAPS[case] for case in missing], said)
    return CheckResult(
        True if min(min(found[case]["share"]) for case in cases) >= share else None, said, confirmed=True
    )


@register_check
def attention_distances(
    paper: str, said: Literal["deeper", "lowest", "spread"], far: float = 0.8, near: float = 0.5
) -> CheckResult:
    """Checks a statement on the distances of attention in the runs of the paper, ORF and Lap.

    Args:
        paper: the paper of the claim.
        said: "deeper": the heads of the upper half of the layers have larger mean distances than those of the lower
            half, and most of them are global. "lowest": in the lowest quarter of the layers, one head is global and one
            is local. "spread": distances vary more over heads with Lap.
        far: a head is global if its distance is at least this share of the distance of uniform attention.
        near: a head is local if its distance is at most this share.

    Returns:
        The result. The stand-in run is reported and does not decide.
    """
    found = partial_values("attention_distance", [*DISTANCES, STAND_IN], [*DISTANCES, STAND_IN])
    shares = {
        case: [[head / value["uniform"] for head in layer] for layer in value["distance"]]
        for case, value in found.items()
    }
    said_of = "; ".join(
        f"{case}, {len(layers)} layers: distances divided by that of uniform attention "
        f"({found[case]['uniform']:.2f} hops) "
        f"{', '.join(f'{min(layer):.2f} to {max(layer):.2f}' for layer in layers)}"
        for case, layers in shares.items()
    )
    if missing := [case for case in DISTANCES if case not in found]:
        return not_computed("attention_distance", missing, [DISTANCES[case] for case in missing], said_of)
    right: list[bool | None] = []
    for case in DISTANCES:
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
        orf, lap = (fmean(pstdev(layer) for layer in shares[case]) for case in DISTANCES)
        right.append(lap > orf)
    return CheckResult(False if False in right else None if None in right else True, said_of, confirmed=True)
