"""Method against method over datasets: average ranks with critical differences, per paper, and all runs in one ranking.

A paper's diagram compares methods on the datasets that all of them have (Demšar 2006). It is the largest complete part
of the published numbers that contains a model of the paper. Ranks with our runs in place of published numbers are
listed too. Each dataset counts once, with its first metric; parts of a dataset (BREC's categories) count as one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gt_bench.analysis.dataset_numbers import Block, DatasetNumber
from gt_bench.analysis.rank import TOTAL, Ranking, rank, whole_dataset
from gt_bench.analysis.rank_text import other_order, strength
from gt_bench.config.schema import RecipeError
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.whole_paper import counted
from gt_bench.papers.published import Published, published_of
from gt_bench.stats import ranking
from gt_bench.utils.format import markdown_line, markdown_text

RULE = (
    "Average ranks by published numbers on the datasets that all methods have, each with its first metric. Ranks that "
    "differ by less than the critical difference (Nemenyi, 0.05) do not differ significantly."
)
FEWEST_METHODS = 3
Numbers = dict[tuple[str, str], Published]  # by (method, dataset)


@dataclass(frozen=True)
class Method:
    """A method of a diagram.

    Attributes:
        name: as the paper names it.
        own: whether it is a model of the paper.
        rank: average rank by published numbers, 1 is best.
        ours: average rank with our runs in place of published numbers; None if nothing was run.
    """

    name: str
    own: bool
    rank: float
    ours: float | None


@dataclass(frozen=True)
class Diagram:
    """Average ranks of the methods of a paper.

    Attributes:
        paper: the paper.
        methods: best rank first.
        datasets: the datasets that all methods have.
        p_value: of Friedman's test; None if all ranks are equal.
        critical: ranks that differ by less do not differ significantly (Nemenyi, 0.05).
        groups: the largest runs of methods, by (first, last) index, whose ranks do not differ significantly.
        runs: published numbers that our runs replace in `Method.ours`.
        provisional: those of them with fewer runs than the recipe has.
    """

    paper: str
    methods: tuple[Method, ...]
    datasets: tuple[str, ...]
    p_value: float | None
    critical: float
    groups: tuple[tuple[int, int], ...]
    runs: int
    provisional: int


def diagram(paper: str, rows: Sequence[Row]) -> Diagram | None:
    """Ranks the methods of a paper over datasets.

    Args:
        paper: the paper.
        rows: rows of leaderboards.

    Returns:
        The diagram, or None if no three methods, one of them the paper's, have five common datasets.
    """
    numbers: Numbers = {}
    for number in published_of(paper):
        if number.split == "test" and number.mean is not None and not number.measured:
            key = number.canonical or number.method, whole_dataset(number.dataset)
            if key not in numbers or (number.dataset.endswith(TOTAL) and not numbers[key].dataset.endswith(TOTAL)):
                numbers[key] = number
    names, datasets = largest_complete(numbers)
    if not names:
        return None
    ours = counted(row for row in rows if row.summary.mean is not None)
    values, ran, provisional = np.zeros((2, len(datasets), len(names))), 0, 0
    for i, dataset in enumerate(datasets):
        for j, name in enumerate(names):
            number = numbers[name, dataset]
            sign, row = (1 if number.direction == "max" else -1), ours.get(number.first_place)
            values[:, i, j] = sign * number.number
            if row is not None and row.summary.mean is not None:
                values[1, i, j] = sign * row.summary.mean
                ran += 1
                provisional += row.summary.runs < row.summary.full
    published, replaced = (ranking.ranks_of(matrix) for matrix in values)
    means, means_ours = published.mean(0), replaced.mean(0)
    order = np.argsort(means, kind="stable").tolist()
    critical = ranking.critical_difference(len(names), len(datasets))
    assert critical is not None  # `largest_complete` has enough datasets
    methods = tuple(
        Method(
            numbers[names[j], datasets[0]].method,
            any(numbers[names[j], dataset].own for dataset in datasets),
            float(means[j]),
            float(means_ours[j]) if ran else None,
        )
        for j in order
    )
    groups = alike([method.rank for method in methods], critical)
    return Diagram(
        paper, methods, tuple(datasets), ranking.friedman(published), critical, tuple(groups), ran, provisional
    )


def largest_complete(numbers: Numbers) -> tuple[list[str], list[str]]:
    """Chooses methods and datasets such that each method has a number on each dataset.

    For each own model, the other methods are added by the number of datasets in common. Of all sets that arise, the one
    with the most numbers is returned; with the most own models if several have as many.

    Args:
        numbers: the published numbers.

    Returns:
        (methods, datasets), both empty if fewer than three methods have five common datasets.
    """
    datasets_of: dict[str, list[str]] = {}
    own = {name for (name, _), number in numbers.items() if number.own}
    for name, dataset in numbers:
        datasets_of.setdefault(name, []).append(dataset)
    best: tuple[int, int] = (0, 0)
    largest: tuple[list[str], list[str]] = ([], [])
    for first in datasets_of:
        if first not in own:
            continue
        shared = {name: len(set(datasets_of[first]) & set(its)) for name, its in datasets_of.items()}
        names, common = [first], list(datasets_of[first])
        for name in sorted(shared.keys() - {first}, key=lambda one: (-shared[one], one not in own, one)):
            names, common = [*names, name], [one for one in common if one in datasets_of[name]]
            if len(common) < ranking.FEWEST:
                break
            size = (len(names) * len(common), len(own & set(names)))
            if len(names) >= FEWEST_METHODS and size > best:
                best, largest = size, (names, common)
    return largest


def alike(ranks: Sequence[float], critical: float) -> list[tuple[int, int]]:
    """Finds the largest runs of methods whose ranks differ by less than the critical difference.

    Args:
        ranks: average ranks in ascending order.
        critical: the critical difference.

    Returns:
        (first, last) index of each run of at least two methods; no run is part of another one.
    """
    groups: list[tuple[int, int]] = []
    for first, low in enumerate(ranks):
        last = max(i for i, high in enumerate(ranks) if i >= first and (i == first or high - low < critical))
        if last > first and (not groups or last > groups[-1][1]):
            groups.append((first, last))
    return groups


def diagrams(papers: Iterable[str], rows: Sequence[Row]) -> list[Diagram]:
    """Returns the diagrams of all papers that have one."""
    return [drawn for paper in papers if (drawn := diagram(paper, rows)) is not None]


def all_runs(rows: Sequence[Row]) -> Ranking | None:
    """Ranks all models that were run, each on at least two datasets, by Bradley-Terry strengths.

    Args:
        rows: rows of leaderboards. Of a cell the first row counts, and none whose epoch was chosen on the test split.

    Returns:
        The ranking, or None if no two models have results on two common datasets.
    """
    by_cell: dict[str, DatasetNumber] = {}
    for row in rows:
        if row.summary.mean is not None and np.isfinite(row.summary.mean) and not row.chosen_on_test:
            block, runs = Block(row.suite, row.dataset, row.metric or ""), frozenset(row.summary.digests)
            entry = DatasetNumber(row.model, block, row.summary.mean, row.direction or "max", "runs", runs=runs)
            by_cell.setdefault(row.cell, entry)
    try:
        ranked = rank(list(by_cell.values()), at_least=2)
    except RecipeError:
        return None
    return ranked if ranked.datasets > 1 else None


def sentences(diagram: Diagram) -> list[str]:
    """Returns what a diagram shows, in words; `RULE` is the same for all."""
    said = [f"{len(diagram.methods)} methods on {', '.join(diagram.datasets)}."]
    p = "" if diagram.p_value is None else f"Friedman p = {diagram.p_value:.2g}; "
    said.append(f"{p}critical difference {diagram.critical:.2f}.")
    first = diagram.methods[0]
    near = [method.name for method in diagram.methods[1:] if method.rank - first.rank < diagram.critical]
    said.append(
        f"Not distinguished from {first.name}: {', '.join(near)}." if near else f"All others differ from {first.name}."
    )
    if diagram.runs:
        part = f", {diagram.provisional} of them provisional" if diagram.provisional else ""
        said.append(f"With our runs: {diagram.runs} published numbers replaced by our means{part}.")
    return said


def markdown(diagrams: Sequence[Diagram], overall: Ranking | None, labels: Mapping[str, str]) -> list[str]:
    """Returns the section of docs/results.md.

    Args:
        diagrams: the diagrams.
        overall: the ranking of all runs.
        labels: names of all papers as they are shown.
    """
    heads = ("paper", "datasets", "mean rank (with our runs)", "critical difference", "Friedman p", "our runs")
    lines = [RULE, "Models of the paper are bold. `gt-bench rank` ranks any cells.", ""]
    lines += [markdown_line(heads), markdown_line(["---"] * len(heads))]
    for its in diagrams:
        runs = f"{its.runs}, {its.provisional} of them provisional" if its.provisional else str(its.runs)
        lines.append(
            markdown_line(
                [
                    labels[its.paper],
                    ", ".join(its.datasets),
                    ", ".join(_with_rank(method) for method in its.methods),
                    f"{its.critical:.2f}",
                    "–" if its.p_value is None else f"{its.p_value:.2g}",
                    runs,
                ]
            )
        )
    if without := absent(diagrams, labels):
        lines += ["", without]
    if overall is not None:
        lines += ["", said_of_all(overall), "", "| recipe | Elo [95 %] | won | results |", "| --- | --- | --- | --- |"]
        lines += [markdown_line(map(markdown_text, texts)) for texts in lines_of_all(overall)]
    return lines


def _with_rank(method: Method) -> str:
    name = markdown_text(method.name).replace("*", r"\*")
    ours = "" if method.ours is None else f" ({method.ours:.2f})"
    return f"{f'**{name}**' if method.own else name} {method.rank:.2f}{ours}"


def absent(diagrams: Sequence[Diagram], labels: Mapping[str, str]) -> str:
    """Returns why some papers have no diagram; empty if all have one."""
    without = [label for name, label in labels.items() if name not in {diagram.paper for diagram in diagrams}]
    if not without:
        return ""
    return f"Without ranks, because fewer than three methods share five datasets: {', '.join(without)}."


def said_of_all(overall: Ranking) -> str:
    """Returns what the table of all runs is."""
    said = [
        f"{len(overall.models)} recipes, each with results on two or more of {overall.datasets} datasets.",
        f"A pair counts where both have a result of one suite; {overall.missing} of "
        f"{len(overall.blocks) * len(overall.models)} results are missing.",
        *([f"To count them as worst {other_order(overall)}."] if overall.missing else []),
        "Where intervals (bootstrap over datasets) overlap, the order means little.",
        *(
            f"Left out, {why}: {len(models)} recipe{'s' if len(models) > 1 else ''}."
            for why, models in overall.left_out.items()
        ),
    ]
    return " ".join(said)


def lines_of_all(overall: Ranking) -> list[list[str]]:
    """Returns the texts of the table of all runs: recipe, Elo, share of comparisons won, number of results."""
    return [
        [
            model.model,
            strength(model),
            "–" if model.win_rate is None else f"{100 * model.win_rate:.0f} %",
            str(model.datasets),
        ]
        for model in overall.models
    ]
