"""`gt-bench compare`: models, or versions of a cell, on their common seeds and splits.

A name is a row (`gcn`: all its cells), `SUITE/ROW`, or a cell `SUITE/DATASET/ROW`. The suite `tried` has the runs of
`gt-bench try`. A suffix selects a version of the records: `@own`, `@shipped`, or `@2` for the second attempt
(`gt-bench history` numbers them).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gt_bench.analysis.paired_examples import compare_runs
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import OWN, SHIPPED, Gathered, Version, tested_values
from gt_bench.reports.attempt_history import chosen, history
from gt_bench.stats import ranking
from gt_bench.stats.paired import TOO_FEW, Paired, Ranks, bayesian, ranks
from gt_bench.store.run_store import Store
from gt_bench.store.shipped_files import ROOT

SeedSplit = tuple[int, int]  # seed, split
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
    values: Mapping[SeedSplit, float]
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


def named_cells(name: str, grid: Grid) -> list[Cell]:
    """Return the cells that a name means, in the order of the grid.

    Args:
        name: as in the docstring of the module.
        grid: the grid.

    Raises:
        RecipeError: there is no such row or cell, or what follows @ is invalid.
    """
    bare, _, source = name.partition("@")
    if source not in ("", OWN, SHIPPED) and not source.isdecimal():
        expected = "expected `own` (records of this machine), `shipped` or the number of an attempt after @"
        raise RecipeError(f"{expected}, not {source!r}", place=name, value=source)
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
        problem = f"no row, and no cell, is named {bare!r}{nearest(bare, known)}"
        raise RecipeError(problem, value=bare, remedy="`gt-bench list` shows them")
    return cells


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
    cells, source = named_cells(name, grid), name.partition("@")[2]
    taken = {row.cell: row.source for row in held.rows}
    by_dataset: dict[str, list[Side]] = {}
    for cell in cells:
        if datasets and cell.dataset not in datasets:
            continue
        shown, remark = source, ""
        if source.isdecimal():
            version: Version | None = _attempt(cell.cell, int(source), held)
        else:
            version = held.versions.get((source or taken.get(cell.cell) or OWN, cell.cell))
            shipped = held.versions.get((SHIPPED, cell.cell))
            if version and not source and version.result.reduced and shipped and not shipped.result.reduced:
                cuts = ", ".join(map(str, version.result.reduced))
                remark = (
                    f"{cell.cell}: your runs are reduced ({cuts}), so the shipped runs are compared; "
                    f"{cell.cell}@{OWN} selects yours"
                )
                shown, version = SHIPPED, shipped
        if version is None:
            continue
        if values := tested_values(version.records):
            by_dataset.setdefault(cell.dataset, []).append(
                Side(f"{cell.cell}{'@' if shown else ''}{shown}", version, values, remark)
            )
    if not by_dataset:
        where = f" on {', '.join(datasets)}" if datasets else ""
        there = [cell.cell for cell in cells if not datasets or cell.dataset in datasets]
        ran = [cell for _, cell in held.versions if cell.split("/")[1] in datasets]
        rows = ", ".join(dict.fromkeys(cell.split("/")[2] for cell in ran)) or "none"
        raise RecipeError(
            f"no run of {name}{where} ended well",
            value=name,
            remedy=f"run one: gt-bench work {there[0]}" if there else f"rows with runs{where}: {rows}",
        )
    return by_dataset


def _attempt(cell: str, number: int, held: Gathered) -> Version:
    current = held.versions.get((OWN, cell))
    attempt = chosen(history(cell, Store(), current.result if current else None), number)
    return Version.of(f"attempt {number}", attempt.result, attempt.records)


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
    compared, why = [], []
    for dataset in first:
        if dataset not in second:
            why.append(f"{dataset}: only {first[dataset][0].name} has runs")
            continue
        pairs = [(a, b) for a in first[dataset] for b in second[dataset]]
        same = [(a, b) for a, b in pairs if a.version.result.suite == b.version.result.suite]
        a, b = (same or pairs)[0]
        if _measure(a) != _measure(b):
            why.append(f"{dataset}: {a.name} has {_measure(a)}, {b.name} {_measure(b)}")
            continue
        if _data(a) != _data(b):
            if a.version.result.cell != b.version.result.cell:
                why.append(f"{dataset}: {a.name} and {b.name} have {OTHER_DATA}; train the older one again")
                continue
            b = b._replace(remark=f"{a.name} and {b.name} have {OTHER_DATA}: the difference is not of the model alone")
        cells = a.version.result.cell, b.version.result.cell
        found = compare_runs(cells, (a.version.records, b.version.records), rules, Store(), root)
        if found is None:
            why.append(f"{dataset}: no seed and split in common: {_runs(a)} of {a.name}, {_runs(b)} of {b.name}")
            continue
        result, without_examples = found
        bayes = None
        # without a spread, the t-test is certain of any difference
        if rope is not None and result.word != TOO_FEW and result.effect is not None:
            common = a.values.keys() & b.values.keys()
            first_values, second_values = ([side.values[run] for run in sorted(common)] for side in (a, b))
            bayes = bayesian(first_values, second_values, a.version.result.direction or "", rope)
        left_out = len(a.values.keys() ^ b.values.keys())
        metric = a.version.result.metric or ""
        compared.append(PairedRuns(dataset, metric, a, b, result, without_examples, left_out, bayes))
    return compared, why + [
        f"{dataset}: only {second[dataset][0].name} has runs" for dataset in second if dataset not in first
    ]


def _measure(side: Side) -> str:
    """Return metric, unit and the rule that chose the epoch; only values with the same are paired."""
    result = side.version.result
    targets, on_test = result.recipe.get("targets"), result.recipe.get("select") == "test"
    unit = f" in standard deviations (targets: {targets})" if targets else ""
    return f"{result.metric}{unit}{' of an epoch chosen on test (select: test)' if on_test else ''}"


def _data(side: Side) -> set[str]:
    """Return the digests of the data of a side's runs."""
    return {record.run.digests.data for record in side.version.records}


def mean_ranks(named: Mapping[str, Mapping[str, Sequence[Side]]], rules: Rules) -> tuple[Ranks | None, list[str]]:
    """Return mean ranks over the datasets that all names have, and these datasets; None if there are fewer than two.

    Datasets on which metrics, units or data of the names differ are left out. Differences of several metrics have no
    common unit: over such datasets the order on each one is tested alone.
    """
    common = [dataset for dataset in next(iter(named.values())) if all(dataset in its for its in named.values())]
    protocols = {d: {(_measure(its[d][0]), *sorted(_data(its[d][0]))) for its in named.values()} for d in common}
    common = [dataset for dataset in common if len(protocols[dataset]) == 1]
    if len(common) < 2:
        return None, common
    means = means_of(named, common)
    if len({measure for dataset in common for measure, *_ in protocols[dataset]}) > 1:
        order = -ranking.ranks_of(np.array(list(means.values())).T).T
        means = dict(zip(means, order.tolist(), strict=True))
    return ranks(means, rules), common


def means_of(named: Mapping[str, Mapping[str, Sequence[Side]]], common: Sequence[str]) -> dict[str, list[float]]:
    """Return the mean of each name on each dataset; larger is better."""
    sign = {d: 1 if next(iter(named.values()))[d][0].version.result.direction == "max" else -1 for d in common}
    return {name: [sign[d] * mean_of(its[d][0]) for d in common] for name, its in named.items()}


def mean_of(side: Side, runs: Collection[tuple[int, int]] | None = None) -> float:
    """Return the mean of the runs of a side, or of these runs."""
    values = [value for run, value in side.values.items() if runs is None or run in runs]
    return math.fsum(values) / len(values)


def _runs(side: Side) -> str:
    runs = sorted(side.values)
    shown = ", ".join(f"{seed}/{split}" for seed, split in runs[:4])
    return f"seed/split {shown}{', ...' if runs[4:] else ''}"
