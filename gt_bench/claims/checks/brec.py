"""Checks on the pairs of BREC: pairs that colour refinement and networks with random weights distinguish."""

import operator
from collections.abc import Callable, Mapping
from pathlib import Path

from gt_bench.claims.checks.findings import load_cases
from gt_bench.claims.checks.registry import CheckResult, register_check
from gt_bench.config.schema import nearest
from gt_bench.papers.pair_counts import PAIRS
from gt_bench.papers.results_file import PublishedError


@register_check
def colour_refinement(
    paper: str, data: Path, method: str, counts: Mapping[str, int], bound: bool = False
) -> CheckResult:
    """Checks how many pairs of BREC a colour refinement distinguishes.

    Args:
        paper: the paper of the claim.
        data: folder that contains packed/.
        method: 1-wl, 3-wl, gd-wl-rrwp or gd-wl-shortest-paths.
        counts: published count of each category.
        bound: if true, the published counts are lower bounds, because a trained network of that class can reach them.
    """
    from gt_bench.data.brec_pairs import brec_pairs

    apart = refinement(method)
    if unknown := [name for name in counts if name not in PAIRS]:
        problem = f"BREC has no category {unknown[0]!r}{nearest(unknown[0], list(PAIRS))}"
        raise PublishedError(problem, place="counts", value=unknown[0])
    pairs = brec_pairs(data)
    if pairs is None:
        return CheckResult(None, f"needs {data / 'packed' / 'brec'}: `dvc repro download@brec`")
    ours = {name: sum(apart(*pairs[i]) for i in PAIRS[name]) for name in counts}
    compare = operator.ge if bound else operator.eq
    said = ", ".join(f"{name.removeprefix('brec-')} {n} (published {counts[name]})" for name, n in ours.items())
    return CheckResult(all(compare(n, counts[name]) for name, n in ours.items()), f"{method}: {said}", confirmed=True)


@register_check
def at_least(paper: str, network: str, refinement: str) -> CheckResult:
    """Checks that an untrained network distinguishes all pairs of BREC that a colour refinement distinguishes.

    Args:
        paper: the paper of the claim.
        network: network of the finding `separation`.
        refinement: colour refinement of the same finding.

    Returns:
        None if these draws of the weights miss some pairs, because other draws may not miss them.
    """
    missed = _apart(refinement) - _apart(network)
    return CheckResult(None if missed else True, _said(network, refinement, missed=missed), confirmed=True)


@register_check
def between(paper: str, network: str, above: str, below: str) -> CheckResult:
    """Checks that a network distinguishes more pairs of BREC than `above`, and none that `below` does not."""
    mine, beyond = _apart(network), _apart(network) - _apart(below)
    said = _said(network, above, below, beyond=beyond)
    return CheckResult(not beyond and mine > _apart(above), said, confirmed=True)


@register_check
def no_more_than(paper: str, network: str, refinement: str) -> CheckResult:
    """Checks that colour refinement distinguishes every pair of BREC that the untrained network distinguishes."""
    beyond = _apart(network) - _apart(refinement)
    return CheckResult(not beyond, _said(network, refinement, beyond=beyond), confirmed=True)


@register_check
def same_pairs(paper: str, first: str, second: str) -> CheckResult:
    """Checks that two methods distinguish the same pairs of BREC."""
    different = _apart(first) ^ _apart(second)
    return CheckResult(not different, _said(first, second, different=different), confirmed=True)


def refinement(method: str) -> Callable[..., bool]:
    """Returns the colour refinement of this name, a function of two graphs.

    Raises:
        PublishedError: there is no such refinement.
    """
    from gt_bench.data.color_refinement import gd_wl, one_wl, random_walks, shortest_paths, three_wl

    known = {
        "1-wl": one_wl,
        "3-wl": three_wl,
        "gd-wl-rrwp": lambda a, b: gd_wl(a, b, random_walks(32)),
        "gd-wl-shortest-paths": lambda a, b: gd_wl(a, b, shortest_paths),
    }
    if method not in known:
        raise PublishedError(f"no refinement {method!r}{nearest(method, list(known))}", value=method)
    return known[method]


def _apart(name: str) -> set[int]:
    return {pair for value in load_cases("separation").with_prefix(f"{name}, ").values() for pair in value["apart"]}


def _said(*names: str, **pairs: set[int]) -> str:
    """Returns how many pairs of each category the methods distinguish, and the first of the named pairs."""
    cases = load_cases("separation")
    counts = {name: [len(value["apart"]) for value in cases.with_prefix(f"{name}, ").values()] for name in names}
    said = ", ".join(f"{name} {'/'.join(map(str, its))}" for name, its in counts.items())
    listed = {
        what: ", ".join(map(str, sorted(its)[:8])) + (" ..." if len(its) > 8 else "") for what, its in pairs.items()
    }
    return said + "".join(f"; {what}: {text}" for what, text in listed.items() if text)
