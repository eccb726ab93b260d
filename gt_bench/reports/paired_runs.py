"""`gt-bench compare`: models, or versions of a cell, on their common seeds and splits.

A name is a row (`gcn`: all its cells), `SUITE/ROW`, or a cell `SUITE/DATASET/ROW`. The suite `tried` has the runs of
`gt-bench try`. A suffix selects a version of the records: `@own`, `@shipped`, or `@2` for the second attempt
(`gt-bench history` numbers them).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gt_bench.analysis.paired_examples import example_error
from gt_bench.config.grid import Grid
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import OWN, SHIPPED, Gathered, Version, tested_values
from gt_bench.papers.units import PERCENT, difference_text, number_texts, span_of
from gt_bench.stats import ranking
from gt_bench.stats.paired import (
    EQUAL,
    FEWEST_PAIRS,
    FIRST,
    SECOND,
    SPREADLESS,
    TOO_FEW,
    ExampleError,
    Paired,
    Ranks,
    bayesian,
    bayesian_over_datasets,
    paired,
    ranks,
)
from gt_bench.store.run_store import Store
from gt_bench.store.shipped_files import ROOT
from gt_bench.utils.format import print_text

Run = tuple[int, int]  # seed, split
OTHER_DATA = "different data (their files changed, or are read or split in another way)"


class Side(NamedTuple):
    """One version of a cell.

    Attributes:
        name: of the cell, with the version.
        version: its result and records.
        values: test values by seed and split.
        remark: why it is another version than expected.
    """

    name: str
    version: Version
    values: Mapping[Run, float]
    remark: str = ""


class PairedRuns(NamedTuple):
    """Two sides on one dataset.

    Attributes:
        dataset, metric: what is compared.
        first, second: the sides.
        found: result of the paired comparison.
        without_examples: why the uncertainty of the test examples is unknown; empty if it is known.
        left_out: number of runs that only one side has.
        bayes: probabilities that the first is better, equal, worse; None if not requested.
    """

    dataset: str
    metric: str
    first: Side
    second: Side
    found: Paired
    without_examples: str
    left_out: int
    bayes: tuple[float, float, float] | None


def sides(name: str, grid: Grid, held: Gathered, datasets: Sequence[str] = ()) -> dict[str, list[Side]]:
    """Return the versions that a name means: dataset -> sides, in the order of the grid.

    Args:
        name: as in the docstring of the module.
        grid: the grid.
        held: all results.
        datasets: only these; default: all.

    Raises:
        RecipeError: there is no such row, or it has no run.
        NoAttempt: there is no such attempt.
    """
    bare, _, source = name.partition("@")
    if source not in ("", OWN, SHIPPED) and not source.isdecimal():
        raise RecipeError(
            f"{name}: expected `own` (records of this machine), `shipped` or the number of an attempt after @, not "
            f"{source!r}"
        )
    first, slash, rest = bare.partition("/")
    bare = f"{grid.suite_name(first)}/{rest}" if slash else bare
    parts = bare.split("/")
    cells = [
        cell
        for cell in grid.cells.values()
        if bare in (cell.cell, cell.key, cell.model) or (len(parts) == 2 and parts == cell.cell.split("/")[::2])
    ]
    if not cells:
        known = [
            *dict.fromkeys(cell.model for cell in grid.cells.values()),
            *(cell.cell for cell in grid.cells.values()),
        ]
        raise RecipeError(f"no row, and no cell, is named {bare!r}{nearest(bare, known)}; `gt-bench list` shows them")
    taken = {row["cell"]: row["source"] for row in held.rows}
    found: dict[str, list[Side]] = {}
    for cell in cells:
        if datasets and cell.dataset not in datasets:
            continue
        shown, remark = source, ""
        if source.isdecimal():
            version: Version | None = _attempt(cell.cell, int(source), held)
        else:
            version = held.versions.get((source or taken.get(cell.cell) or OWN, cell.cell))
            shipped = held.versions.get((SHIPPED, cell.cell))
            if version and not source and version.result["reduced"] and shipped and not shipped.result["reduced"]:
                remark = (
                    f"{cell.cell}: your runs are reduced ({', '.join(version.result['reduced'])}), so the shipped runs "
                    f"are compared; {cell.cell}@{OWN} selects yours"
                )
                shown, version = SHIPPED, shipped
        if version is None:
            continue
        if values := tested_values(version.records):
            found.setdefault(cell.dataset, []).append(
                Side(f"{cell.cell}{'@' if shown else ''}{shown}", version, values, remark)
            )
    if not found:
        where = f" on {', '.join(datasets)}" if datasets else ""
        raise RecipeError(
            f"{name}: none of its {len(cells)} cells has a run that ended well{where}; run one: "
            f"`dvc repro train@{cells[0].key}`"
        )
    return found


def _attempt(cell: str, number: int, held: Gathered) -> Version:
    from gt_bench.reports.attempt_history import chosen, history

    current = held.versions.get((OWN, cell))
    attempt = chosen(history(cell, Store(), current and current.result), number)
    return Version(f"attempt {number}", attempt.result, attempt.records, [])


def compare(
    first: Mapping[str, Sequence[Side]],
    second: Mapping[str, Sequence[Side]],
    rules: Rules,
    rope: float | None = None,
    root: Path = ROOT,
) -> tuple[list[PairedRuns], list[str]]:
    """Compare two names.

    Args:
        first: sides of each dataset.
        second: sides of each dataset.
        rules: settings of the tests.
        rope: differences below it count as equal, for Bayesian probabilities; None for none.
        root: folder of shipped records.

    Returns:
        A comparison per common dataset, and why others are left out. If several suites have a dataset, cells of the
        same suite are compared.
    """
    found, why = [], []
    for dataset in first:
        if dataset not in second:
            why.append(f"{dataset}: only {first[dataset][0].name} has runs")
            continue
        pairs = [(a, b) for a in first[dataset] for b in second[dataset]]
        same = [(a, b) for a, b in pairs if a.version.result["suite"] == b.version.result["suite"]]
        a, b = (same or pairs)[0]
        if _measure(a) != _measure(b):
            why.append(f"{dataset}: {a.name} has {_measure(a)}, {b.name} {_measure(b)}")
            continue
        if _data(a) != _data(b):
            if a.version.result["cell"] != b.version.result["cell"]:
                why.append(f"{dataset}: {a.name} and {b.name} have {OTHER_DATA}; train the older one again")
                continue
            b = b._replace(remark=f"{a.name} and {b.name} have {OTHER_DATA}: the difference is not of the model alone")
        common = sorted(a.values.keys() & b.values.keys())
        if not common:
            why.append(f"{dataset}: no seed and split in common: {_runs(a)} of {a.name}, {_runs(b)} of {b.name}")
            continue
        metric, direction = a.version.result["metric"] or "", a.version.result["direction"] or ""
        values = [a.values[run] for run in common], [b.values[run] for run in common]
        bayes = bayesian(*values, direction, rope) if rope is not None and len(common) > 1 else None
        left_out = len(a.values.keys() ^ b.values.keys())
        examples = _example_error(a, b, common, metric, root)
        known = examples if isinstance(examples, ExampleError) else None
        result = paired(*values, direction, rules, known, span_of(metric))
        found.append(PairedRuns(dataset, metric, a, b, result, "" if known else str(examples), left_out, bayes))
    return found, why + [
        f"{dataset}: only {second[dataset][0].name} has runs" for dataset in second if dataset not in first
    ]


def _example_error(a: Side, b: Side, common: Sequence[Run], metric: str, root: Path) -> ExampleError | str:
    """Return the standard error of the mean difference by the test examples, or why it is unknown."""
    runs = [
        {(run["seed"], run["split"]): record for record in side.version.records if (run := record["deterministic"])}
        for side in (a, b)
    ]
    cells = a.version.result["cell"], b.version.result["cell"]
    return example_error(cells, [(runs[0][run], runs[1][run]) for run in common], metric, Store(), root)


def _measure(side: Side) -> str:
    """Return metric, unit and the rule that chose the epoch; only values with the same are paired."""
    result = side.version.result
    targets, on_test = result["recipe"].get("targets"), result["recipe"].get("select") == "test"
    unit = f" in standard deviations (targets: {targets})" if targets else ""
    return f"{result['metric']}{unit}{' of an epoch chosen on test (select: test)' if on_test else ''}"


def _data(side: Side) -> set[str]:
    """Return the digests of the data of a side's runs."""
    return {record["deterministic"]["digests"]["data"] for record in side.version.records}


def mean_ranks(named: Mapping[str, Mapping[str, Sequence[Side]]], rules: Rules) -> tuple[Ranks | None, list[str]]:
    """Return mean ranks over the datasets that all names have, and these datasets; None if there are none.

    Datasets on which metrics, units or data of the names differ are left out. Differences of several metrics have no
    common unit: over such datasets the order on each one is tested alone.
    """
    common = [dataset for dataset in next(iter(named.values())) if all(dataset in found for found in named.values())]
    protocols = {d: {(_measure(found[d][0]), *sorted(_data(found[d][0]))) for found in named.values()} for d in common}
    common = [dataset for dataset in common if len(protocols[dataset]) == 1]
    if not common:
        return None, []
    means = _means(named, common)
    if len({measure for dataset in common for measure, *_ in protocols[dataset]}) > 1:
        order = -ranking.ranks_of(np.array(list(means.values())).T).T
        means = dict(zip(means, order.tolist(), strict=True))
    return ranks(means, rules), common


def _means(named: Mapping[str, Mapping[str, Sequence[Side]]], common: Sequence[str]) -> dict[str, list[float]]:
    """Return the mean of each name on each dataset; larger is better."""
    sign = {d: 1 if next(iter(named.values()))[d][0].version.result["direction"] == "max" else -1 for d in common}
    return {name: [sign[d] * _mean(found[d][0]) for d in common] for name, found in named.items()}


def _compared(
    names: Sequence[str], grid: Grid, held: Gathered, datasets: Sequence[str], rope: float | None, root: Path
) -> tuple[dict[str, dict[str, list[Side]]], list[tuple[str, list[PairedRuns]]], list[str]]:
    """Return (sides of each name, comparisons of each other name with the first, why datasets are left out)."""
    named = {name: sides(name, grid, held, datasets) for name in names}
    everything, reasons = [], []
    for other in names[1:]:
        found, why = compare(named[names[0]], named[other], grid.run.verdict, rope, root)
        everything.append((other, found))
        reasons += why
    if not any(found for _, found in everything):
        raise RecipeError(f"nothing to compare: {'; '.join(reasons)}")
    return named, everything, list(dict.fromkeys(reasons))


def as_json(
    names: Sequence[str],
    grid: Grid,
    held: Gathered,
    datasets: Sequence[str] = (),
    rope: float | None = None,
    root: Path = ROOT,
) -> dict[str, object]:
    """Return the comparisons as JSON (docs/json.md); arguments and errors as for `show`."""
    named, everything, reasons = _compared(names, grid, held, datasets, rope, root)
    lines = []
    for other, found in everything:
        for one in found:
            common = one.first.values.keys() & one.second.values.keys()
            sides_of = {
                which: {"cell": side.name, "mean": _mean(side, common)}
                for which, side in (("first", one.first), ("second", one.second))
            }
            lines.append(
                {
                    "names": [names[0], other],
                    "dataset": one.dataset,
                    "metric": one.metric,
                    "direction": one.first.version.result["direction"],
                    **sides_of,
                    **asdict(one.found),
                    "verdict": verdict_of(one.found),
                    "without_examples": one.without_examples or None,
                    "left_out": one.left_out,
                    "bayes": one.bayes,
                }
            )
    found_ranks, common_datasets = mean_ranks(named, grid.run.verdict)
    ranked = found_ranks is not None and len(common_datasets) > 1
    return {
        "comparisons": lines,
        "ranks": asdict(found_ranks) if ranked and found_ranks else None,
        "left_out": reasons,
    }


def show(
    names: Sequence[str],
    grid: Grid,
    held: Gathered,
    datasets: Sequence[str] = (),
    rope: float | None = None,
    root: Path = ROOT,
) -> None:
    """Print the comparison of every other name with the first, dataset by dataset, and mean ranks over all datasets.

    Args:
        names: two or more, see the docstring of the module.
        grid: the grid.
        held: all results.
        datasets: only these; default: all.
        rope: as for `compare`.
        root: folder of shipped records.

    Raises:
        RecipeError: a name does not exist, or nothing is in common.
    """
    from gt_bench.utils.terminal import print_table

    rules = grid.run.verdict
    named, everything, reasons = _compared(names, grid, held, datasets, rope, root)
    sure = f"{100 * (1 - rules.level):g} %"
    for other, found in everything:
        heads = ["dataset", "metric", "first", "second", f"difference [{sure}]", "d", "first ahead", "verdict"]
        heads += ["P(first), P(equal), P(second)"] if rope is not None else []
        texts = [_texts(one, rope is not None) for one in found]
        print_table(
            heads,
            texts,
            "dataset",
            heads[4],
            "verdict",
            "first",
            *heads[8:],
            wrapped=("verdict", heads[-1]),
            right=("first", "second"),
            title=f"{names[0]} (first) and {other} (second)",
            stacks=(("dataset", "metric"), ("first", "second"), (heads[4], "verdict"), ("d", "first ahead")),
        )
    for reason in reasons:
        print_text(f"  left out: {reason}")
    compared = [one for _, found in everything for one in found]
    if lonely := dict.fromkeys(text for one in compared for text in _left_out(one)):
        print_text(f"  left out, as the other has no run of the same seed and split: {', '.join(lonely)}")
    for remark in dict.fromkeys(side.remark for one in compared for side in (one.first, one.second) if side.remark):
        print_text(f"  {remark}")
    if unknown := dict.fromkeys(one.without_examples for one in compared if one.without_examples):
        print_text(f"  without the uncertainty of the test examples: {'; '.join(unknown)}")
    stale = {
        side.name: side.version.stale for one in compared for side in (one.first, one.second) if side.version.stale
    }
    if stale:
        print_text(
            "  the current code would compute other values: "
            f"{'; '.join(name + ': ' + ' and '.join(why) for name, why in stale.items())}"
        )
    print_text(
        "A positive difference is in favour of the first. Intervals contain the spread over runs and over test "
        "examples. d: Cohen's, of the pairs. inconclusive (+n): n more pairs would decide at this spread. too few "
        f"runs: fewer than {FEWEST_PAIRS} pairs, or at most {SPREADLESS} without a spread."
    )
    _show_ranks(named, rules, rope)


def _left_out(one: PairedRuns) -> list[str]:
    """Return how many runs of each side the other side does not have."""
    sides = (one.first, one.second), (one.second, one.first)
    return [
        f"{count} of {side.name}" for side, other in sides if (count := len(side.values.keys() - other.values.keys()))
    ]


def _show_ranks(named: Mapping[str, Mapping[str, Sequence[Side]]], rules: Rules, rope: float | None) -> None:
    found, common = mean_ranks(named, rules)
    if found is None or len(common) < 2:
        return
    print_text(
        f"mean ranks over {len(common)} datasets: "
        f"{', '.join(f'{name} {rank:.2f}' for name, rank in found.mean_ranks.items())}"
    )
    if found.test is None:
        print_text(f"  too few datasets for a test over them: {ranking.FEWEST} are needed")
        return
    critical = (
        f"; ranks that differ by less than {found.critical:.2f} are not significantly different (Nemenyi)"
        if found.critical
        else ""
    )
    print_text(f"  {found.test}: p = {found.p_value:.3g}{critical}")
    if rope is not None and len(named) == 2:
        first, second = _means(named, common).values()
        better, same, worse = bayesian_over_datasets(first, second, rope)
        print_text(
            f"  over all of them: P(first) {better:.3f}, P(equal within {rope:g}) {same:.3f}, P(second) {worse:.3f}"
        )


def _texts(one: PairedRuns, bayes: bool) -> list[str]:
    percent, found = one.metric in PERCENT, one.found
    common = one.first.values.keys() & one.second.values.keys()
    means = number_texts([_mean(one.first, common), _mean(one.second, common)], percent)
    arrow = "↑" if one.first.version.result["direction"] == "max" else "↓"
    texts = [
        one.dataset,
        f"{one.metric} {arrow}{' %' if percent else ''}",
        *means,
        difference_text(found.difference, found.interval, percent),
        "–" if found.effect is None else f"{found.effect:.2f}",
        f"{found.ahead} of {found.pairs}" + (f", {found.ties} equal" if found.ties else ""),
        verdict_of(found),
    ]
    return texts + ([", ".join(f"{p:.3f}" for p in one.bayes) if one.bayes else "–"] if bayes else [])


def verdict_of(found: Paired) -> str:
    """Return the verdict in words, with the number of additional pairs that would decide."""
    words = {FIRST: "first is better", SECOND: "second is better", EQUAL: "equal in every pair", TOO_FEW: TOO_FEW}
    if found.word in words:
        return words[found.word]
    return (
        f"inconclusive (+{found.more_pairs})"
        if found.more_pairs
        else "inconclusive (no number of seeds up to 1000 decides)"
    )


def _mean(side: Side, runs: Collection[tuple[int, int]] | None = None) -> float:
    values = [value for run, value in side.values.items() if runs is None or run in runs]
    return math.fsum(values) / len(values)


def _runs(side: Side) -> str:
    runs = sorted(side.values)
    shown = ", ".join(f"{seed}/{split}" for seed, split in runs[:4])
    return f"seed/split {shown}{', ...' if runs[4:] else ''}"
