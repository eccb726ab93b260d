"""The tests of claims on the pairs of BREC: which of them colour refinement tells apart, and which networks with random weights (gt_bench/claims/experiments/separation.py)."""

import operator
from collections.abc import Callable, Mapping
from pathlib import Path

from gt_bench.claims.checks.experiment_values import of
from gt_bench.claims.checks.registry import Found, test
from gt_bench.config.schema import nearest
from gt_bench.papers.brec import PAIRS
from gt_bench.papers.published import PublishedError


@test
def colour_refinement(paper: str, data: Path, method: str, counts: Mapping[str, int], bound: bool = False) -> Found:
    """Of the pairs of BREC, `method` (1-wl, 3-wl, gd-wl-rrwp, gd-wl-shortest-paths) tells apart `counts` of each category; `bound`: at least so many, so that a
    trained network of that class can have them."""
    from gt_bench.data.brec_pairs import brec_pairs

    apart = refinement(method)
    if unknown := [name for name in counts if name not in PAIRS]:
        raise PublishedError(f"BREC has no category {unknown[0]!r}{nearest(unknown[0], list(PAIRS))}")
    pairs = brec_pairs(data)
    if pairs is None:
        return Found(None, f"needs {data / 'packed' / 'brec'}: `dvc repro download@brec`")
    found = {name: sum(apart(*pairs[i]) for i in PAIRS[name]) for name in counts}
    compare = operator.ge if bound else operator.eq
    said = ", ".join(f"{name.removeprefix('brec-')} {n} (printed {counts[name]})" for name, n in found.items())
    return Found(all(compare(n, counts[name]) for name, n in found.items()), f"{method}: {said}", shown=True)


@test
def at_least(paper: str, network: str, refinement: str) -> Found:
    """Untrained, the network tells apart all pairs of BREC that colour refinement does. None where one draw of the weights misses some: others may not."""
    missed = _apart(refinement) - _apart(network)
    said = f"{_pairs(network)}, {_pairs(refinement)}"
    return Found(None if missed else True, said + (f"; missed: {_some(missed)}" if missed else ""), shown=True)


@test
def between(paper: str, network: str, above: str, below: str) -> Found:
    """The network tells apart more pairs of BREC than `above`, and none that `below` does not."""
    mine, extra = _apart(network), _apart(network) - _apart(below)
    said = f"{_pairs(network)}, {_pairs(above)}, {_pairs(below)}" + (f"; beyond: {_some(extra)}" if extra else "")
    return Found(not extra and mine > _apart(above), said, shown=True)


@test
def no_more_than(paper: str, network: str, refinement: str) -> Found:
    """Every pair of BREC that the untrained network tells apart, colour refinement does too."""
    extra = _apart(network) - _apart(refinement)
    return Found(
        not extra,
        f"{_pairs(network)}, {_pairs(refinement)}" + (f"; beyond: {_some(extra)}" if extra else ""),
        shown=True,
    )


@test
def same_pairs(paper: str, first: str, second: str) -> Found:
    """Both tell apart the same pairs of BREC."""
    differ = _apart(first) ^ _apart(second)
    return Found(
        not differ,
        f"{_pairs(first)}, {_pairs(second)}" + (f"; different: {_some(differ)}" if differ else ""),
        shown=True,
    )


def refinement(method: str) -> Callable[..., bool]:
    """Raises PublishedError for a method that is not there."""
    from gt_bench.data.color_refinement import gd_wl, one_wl, random_walks, shortest_paths, three_wl

    known = {
        "1-wl": one_wl,
        "3-wl": three_wl,
        "gd-wl-rrwp": lambda a, b: gd_wl(a, b, random_walks(32)),
        "gd-wl-shortest-paths": lambda a, b: gd_wl(a, b, shortest_paths),
    }
    if method not in known:
        raise PublishedError(f"no refinement {method!r}{nearest(method, list(known))}")
    return known[method]


def _apart(name: str) -> set[int]:
    return {pair for value in of("separation").beginning(f"{name}, ").values() for pair in value["apart"]}


def _pairs(name: str) -> str:
    counts = [len(value["apart"]) for value in of("separation").beginning(f"{name}, ").values()]
    return f"{name} {'/'.join(map(str, counts))}"


def _some(pairs: set[int]) -> str:
    return ", ".join(map(str, sorted(pairs)[:8])) + (" ..." if len(pairs) > 8 else "")
