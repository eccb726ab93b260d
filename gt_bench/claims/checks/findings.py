"""Stored results of experiments, as checks read them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gt_bench.claims.checks.registry import CheckResult
from gt_bench.claims.experiments import registry
from gt_bench.config.schema import nearest
from gt_bench.papers.results_file import PublishedError


class Cases(dict[str, Any]):
    """{case: value} of the finding `name`.

    Raises:
        PublishedError: on access to a case that does not exist.
    """

    def __init__(self, name: str, values: Mapping[str, Any]):
        super().__init__(values)
        self.name = name

    def __missing__(self, case: str) -> Any:
        problem = f"the finding {self.name} has no case {case!r}{nearest(case, list(self))}"
        raise PublishedError(problem, value=case)

    def with_prefix(self, start: str) -> dict[str, Any]:
        """Returns the cases whose names begin with `start`.

        Raises:
            PublishedError: there is none.
        """
        return {case: value for case, value in self.items() if case.startswith(start)} or self[start]


def load_cases(name: str) -> Cases:
    """Returns the values of all cases of a finding.

    Raises:
        FindingError: the finding is missing, incomplete or damaged.
    """
    return Cases(name, registry.values(name))


def partial_values(name: str, cases: Collection[str], known: Collection[str]) -> dict[str, Any]:
    """Returns the values of those `cases` of a finding that have been computed.

    Args:
        name: the finding.
        cases: the cases.
        known: all cases of its experiment that a claim may name.

    Raises:
        FindingError: the finding is damaged.
        PublishedError: a case is not one of `known`.
    """
    if unknown := [case for case in cases if case not in known]:
        problem = f"the finding {name} has no case {unknown[0]!r}{nearest(unknown[0], list(known))}"
        raise PublishedError(problem, value=unknown[0])
    return {case: value for case, value in registry.partial(name).items() if case in cases}


def not_computed(name: str, cases: list[str], cells: Sequence[str] = (), computed: str = "") -> CheckResult:
    """Returns the result of a check whose cases have not all been computed.

    Args:
        name: the finding.
        cases: the missing cases.
        cells: cells that must be trained before.
        computed: text about the cases that have been computed.

    Returns:
        A result whose reason contains the commands that compute the missing cases.
    """
    trained = f"{', '.join(f'`gt-bench train {cell}`' for cell in cells)}, then " if cells else ""
    what = (
        "a trained run with its weights: "
        if len(cells) == 1
        else f"{len(cells)} trained runs with their weights: "
        if cells
        else ""
    )
    needs = f"needs {what}{trained}`{registry.command(name)} {' '.join(f'--case {case!r}' for case in cases)}`"
    return CheckResult(None, f"{needs}; {computed}" if computed else needs, computed=False)


def percentages(shares: list[float]) -> str:
    """Returns the lowest and the highest share as text: "12.5 %" or "12.5 to 20.0 %"."""
    low, high = f"{100 * min(shares):.1f}", f"{100 * max(shares):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"
