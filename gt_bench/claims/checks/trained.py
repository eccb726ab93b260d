"""The tests of claims that look into trained runs: whether they crash, and where they attend. What was not computed yet says by which command it is."""

from statistics import fmean, pstdev
from typing import Literal

from gt_bench.claims.checks.experiment_values import percentages, so_far, to_compute
from gt_bench.claims.checks.registry import Found, test
from gt_bench.claims.experiments import registry
from gt_bench.claims.experiments.registry import module_of


@test
def trains_or_crashes(paper: str, crashes: dict[str, bool]) -> Found:
    """Each run of Table 13 (norm, learning rate) crashes or trains as printed."""
    found = so_far("stress_test", crashes)
    if missing := [case for case in crashes if case not in found]:
        cases = " ".join(f"--case {case!r}" for case in missing)
        return Found(
            None,
            f"needs {len(missing)} runs of an hour of one core: `{registry.command('stress_test')} {cases}`",
            tried=False,
        )

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
