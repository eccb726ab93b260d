"""What gt_bench/claims/experiments keeps, as the tests of claims read it (theorem_claims.py, experiment_claims.py, trained_claims.py, brec_claims.py)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gt_bench.claims.checks.registry import Found
from gt_bench.claims.experiments import registry
from gt_bench.config.schema import nearest
from gt_bench.papers.published import PublishedError


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
    return Cases(name, registry.values(name))


def so_far(name: str, cases: Collection[str]) -> dict[str, Any]:
    """Of these cases of a finding those that have been computed. Raises FindingError, and PublishedError for cases that it does not have."""
    known = registry.module_of(name).CASES
    if unknown := [case for case in cases if case not in known]:
        raise PublishedError(f"the finding {name} has no case {unknown[0]!r}{nearest(unknown[0], known)}")
    return {case: value for case, value in registry.partial(name).items() if case in cases}


def to_compute(name: str, cases: list[str], cells: Sequence[str] = (), so_far: str = "") -> Found:
    """What has not been computed, by which commands it is, and what was found so far."""
    trained = f"{', '.join(f'`gt-bench train {cell}`' for cell in cells)}, then " if cells else ""
    what = (
        "a trained run with its weights: "
        if len(cells) == 1
        else f"{len(cells)} trained runs with their weights: "
        if cells
        else ""
    )
    needs = f"needs {what}{trained}`{registry.command(name)} {' '.join(f'--case {case!r}' for case in cases)}`"
    return Found(None, f"{needs}; {so_far}" if so_far else needs, tried=False)


def percentages(shares: list[float]) -> str:
    """ "12.5 %" or "12.5 to 20.0 %": the lowest and the highest."""
    low, high = f"{100 * min(shares):.1f}", f"{100 * max(shares):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"
