"""Checks of figures in the text: differences, shares, sums and significance of published numbers."""

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Literal

from gt_bench.claims.checks.registry import CheckResult, register_check
from gt_bench.claims.checks.tables import sign_of
from gt_bench.papers.published import lookup, printed_at
from gt_bench.papers.results_file import RESULTS, PublishedError, read_entries
from gt_bench.stats.student import upper_tail


@register_check
def gain(
    paper: str,
    printed: float,
    of: Mapping[str, str],
    over: Mapping[str, str] | None = None,
    tolerance: float = 0.0,
) -> CheckResult:
    """Checks that `of` is better than `over` by `printed`, up to the rounding of the numbers.

    Args:
        paper: paper of the table.
        printed: published difference, in the published unit.
        of: place of the better number. Without a dataset, the largest gain of the table counts ("up to").
        over: place of the other number. The best other number of the column by default.
        tolerance: additional accepted difference.
    """
    if unknown := of.keys() - {"table", "method", "dataset", "metric", "split"}:
        raise PublishedError(f"unknown keys {sorted(unknown)}", place="of", value=of)
    if "dataset" in of:
        entries = [lookup(paper, **of)]
    else:
        entries = [e for e in printed_at({"paper": paper, **of}) if not e.measured and e.mean is not None]
        if not entries:
            raise PublishedError(f"{RESULTS} of {paper} has no number at {of}", place="of", value=of)
    gains = []
    for entry in entries:
        rivals = [lookup(paper, **over)] if over else entry.rivals()
        rival = max(rivals, key=lambda e: sign_of(entry) * e.number)
        scale = 100 if entry.unit == "percent" else 1
        gains.append(
            (
                scale * sign_of(entry) * (entry.number - rival.number),
                scale * (entry.rounding + rival.rounding),
                entry,
                rival,
            )
        )
    value, rounding, entry, rival = max(gains, key=operator.itemgetter(0))
    # half a unit of the last digit in the sentence
    digits = 0.5 * 10.0 ** -_decimals(printed)
    return CheckResult(
        abs(value - printed) <= rounding + digits + tolerance - 1e-9,
        f"{entry.printed} ({entry.method}) against {rival.printed} ({rival.method}) on {entry.dataset}: {value:.4g}, "
        f"published {printed:g}",
        internal=True,
    )


@register_check
def share(
    paper: str,
    printed: float,
    of: Mapping[str, str],
    over: Mapping[str, str],
    what: Literal["mean", "params"] = "mean",
    saving: bool = False,
) -> CheckResult:
    """Checks that 100 of / over, rounded to the last digit, is `printed` per cent.

    Args:
        paper: paper of the tables.
        printed: published percentage.
        of: place of the numerator.
        over: place of the denominator.
        what: "mean", or "params" for numbers of parameters.
        saving: compute 100 (1 - of / over) instead.
    """
    first, second = (_raw(paper, place, what) for place in (of, over))
    value = 100 * (1 - first / second) if saving else 100 * first / second
    return CheckResult(
        abs(value - printed) <= 0.5 * 10.0 ** -_decimals(printed) + 1e-9,
        f"{first:g} against {second:g}: {value:.4g} %, published {printed:g} %",
        internal=True,
    )


def _welch(
    mean: float, std: float, runs: float, other_mean: float, other_std: float, other: float
) -> tuple[float, float]:
    """Returns t and the p value of Welch's test that the first mean is larger, from sample deviations."""
    mine, theirs = std**2 / runs, other_std**2 / other
    if mine + theirs == 0.0:
        return math.nan, 1.0 if mean <= other_mean else 0.0
    t = (mean - other_mean) / math.sqrt(mine + theirs)
    return t, upper_tail(t, (mine + theirs) ** 2 / (mine**2 / (runs - 1) + theirs**2 / (other - 1)))


@register_check
def not_significant(
    paper: str, first: Mapping[str, str], second: Mapping[str, str], level: float = 0.05
) -> CheckResult:
    """Checks that `first` is not significantly better than `second`, by Welch's one-tailed t-test at `level`.

    If it is unknown which deviation is published, population and sample deviation must agree.
    """
    a, b = lookup(paper, **first), lookup(paper, **second)
    readings: list[list[float]] = [[], []]  # with the smallest and the largest sample deviations
    for entry in (a, b):
        if entry.std is None or entry.largest_std is None or not entry.runs or entry.runs < 2:
            return CheckResult(
                None, f"{entry.printed} of {entry.method}: no standard deviation or no number of runs is published"
            )
        smallest = entry.largest_std if entry.std_ddof == 0 else entry.std
        for sides, std in zip(readings, (smallest, entry.largest_std), strict=True):
            sides += [sign_of(a) * entry.number, std, entry.runs]
    tests = [_welch(*sides) for sides in readings]
    words = {p > level for _, p in tests}
    shown = " or ".join(dict.fromkeys(f"t {t:.3f}, one-tailed p {p:.3f}" for t, p in tests))
    return CheckResult(
        words.pop() if len(words) == 1 else None,
        f"{a.printed} ({a.method}) against {b.printed} ({b.method}): {shown}",
    )


@register_check
def equals(paper: str, printed: float, of: Mapping[str, str]) -> CheckResult:
    """Checks that a number in the text equals the number in the table, in the published unit."""
    entry = lookup(paper, **of)
    value = entry.number * (100 if entry.unit == "percent" else 1)
    return CheckResult(
        abs(value - printed) <= 0.5 * 10.0 ** -_decimals(printed) + 1e-9,
        f"{entry.printed} in {entry.table} ({entry.method}), {printed:g} in the text",
        internal=True,
    )


@register_check
def adds_up(paper: str, total: Mapping[str, str], parts: Sequence[str]) -> CheckResult:
    """Checks that the number at `total` is the sum of the numbers on the datasets `parts`."""
    whole = lookup(paper, **total)
    values = [lookup(paper, **{**total, "dataset": part}).number for part in parts]
    return CheckResult(
        sum(values) == whole.mean,
        f"{' + '.join(f'{v:g}' for v in values)} = {sum(values):g}, published {whole.printed}",
        internal=True,
    )


def _raw(paper: str, place: Mapping[str, str], what: str) -> float:
    number = lookup(paper, **place)
    if what == "mean" and number.mean is not None:
        return number.mean
    (entry,) = [
        e
        for e in read_entries(paper)
        if tuple(e[k] for k in ("paper", "table", "method", "dataset", "metric", "split")) == number.place
    ]
    if entry.get(what) is None:
        raise PublishedError(f"no {what} published", place=number.source, value=what)
    return float(entry[what])


def _decimals(value: float) -> int:
    return len(repr(float(value)).partition(".")[2].rstrip("0"))
