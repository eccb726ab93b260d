"""Checks that read our own runs: values of single runs, equal counts, memory.

The argument `rows` contains rows of leaderboards.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gt_bench.claims.checks.registry import CheckResult, RivalComparison, register_check
from gt_bench.claims.checks.tables import exceptions, not_won
from gt_bench.config.schema import nearest
from gt_bench.papers.published import Published, lookup, printed_at
from gt_bench.papers.results_file import PublishedError, paper_titles

SOLVED = 0.99


@register_check
def no_run_solves(paper: str, table: str, method: str, dataset: str, metric: str, rows: Any = ()) -> CheckResult:
    """Checks that no run of a method solves the task, that is, reaches a value of at least 0.99.

    Args:
        paper: paper of the table.
        table: name of the table.
        method: method that fails by the claim.
        dataset: dataset of the column.
        metric: metric of the column.
        rows: rows of leaderboards.

    Returns:
        False if the published mean or one of our runs reaches 0.99. Confirmed by complete runs.
    """
    published = lookup(paper, table, method, dataset, metric)
    said = f"{method} is published with {published.printed} on {dataset}"
    if published.number >= SOLVED:
        return CheckResult(False, said)
    complete = _complete(published, rows)
    if not complete:
        return CheckResult(True, said)
    values = [value for row in complete for value in row.summary.values]
    solved = sum(value >= SOLVED for value in values)
    return CheckResult(not solved, f"{said}; {solved} of our {len(values)} runs solve it", confirmed=True)


@register_check
def same_counts(
    paper: str, table: str, first: str, second: str, datasets: Sequence[str], rows: Any = ()
) -> CheckResult:
    """Checks that two methods have the same counts on each dataset, in the table and in our runs.

    Args:
        paper: paper of the table.
        table: name of the table.
        first: one method.
        second: the other method.
        datasets: columns to compare.
        rows: rows of leaderboards.

    Returns:
        The result. It is confirmed if our complete runs of both methods cover all datasets.
    """
    if not datasets:
        raise PublishedError("same_counts compares no dataset", place="datasets", remedy="name some")
    right, said, covered = True, [], 0
    for dataset in datasets:
        pair = [lookup(paper, table, method, dataset) for method in (first, second)]
        means = [next((row.summary.mean for row in _complete(number, rows)), None) for number in pair]
        right &= pair[0].number == pair[1].number
        text = f"{dataset} {pair[0].printed} and {pair[1].printed}"
        if None not in means:
            covered += 1
            right &= means[0] == means[1]
            text += f" (ours {means[0]:g} and {means[1]:g})"
        said.append(text)
    return CheckResult(
        right, f"{first} and {second}: {', '.join(said)}", confirmed=covered == len(datasets) or not right
    )


@register_check
def memory_grows_linearly(
    paper: str, model: str, sizes: dict[str, int], factor: float = 1.5, rows: Any = ()
) -> CheckResult:
    """Checks that peak memory per additional node is the same between successive sizes.

    Args:
        paper: suite of the cells.
        model: recipe of the cells.
        sizes: number of nodes of each dataset, at least three, all on the same device.
        factor: largest ratio of two slopes that counts as linear.
        rows: rows of leaderboards.

    Returns:
        The result. None if a dataset was not run or the devices differ.
    """
    if len(sizes) < 3:
        problem = f"memory_grows_linearly needs three sizes or more: {len(sizes)} given"
        raise PublishedError(problem, place="sizes", value=sizes)
    suite = paper.replace("_", "-")
    memory: dict[int, float] = {}
    devices = set()
    for dataset, nodes in sizes.items():
        measured = [
            row.cost
            for row in rows
            if row.cell == f"{suite}/{dataset}/{model}" and row.cost.peak_memory_mib is not None
        ]
        if not measured:
            return CheckResult(None, f"needs a run of {suite}/{dataset}/{model}", computed=False)
        memory[nodes] = measured[0].peak_memory_mib
        devices.add(measured[0].device)
    said = ", ".join(f"{mib:,.0f} MiB at {nodes:,} nodes" for nodes, mib in sorted(memory.items()))
    if len(devices) > 1:
        return CheckResult(None, f"{said}, on different devices: {', '.join(sorted(devices))}")
    slopes = [(b - a) / (m - n) for (n, a), (m, b) in pairwise(sorted(memory.items()))]
    slope_text = ", ".join(f"{1024 * slope:.0f}" for slope in slopes)
    linear = min(slopes) > 0 and max(slopes) <= factor * min(slopes)
    return CheckResult(
        linear, f"one run a size on {devices.pop()}: {said}; {slope_text} KiB for each added node", confirmed=True
    )


@register_check
def best_of_further(paper: str, method: str, source: str, metric: str | None = None) -> CheckResult:
    """Checks that `method` is better than every number of another publication on the same data and splits.

    Args:
        paper: paper of the method.
        method: the method.
        source: suite of the other publication.
        metric: compare only columns of this metric.

    Returns:
        The result over all datasets that both publish, with one comparison each for our runs.
    """
    others = printed_at({"paper": source, "metric": metric})
    if not others:
        problem = f"no numbers of {source!r} are listed{nearest(source, list(paper_titles()))}"
        raise PublishedError(problem, place="source", value=source)
    mine: dict[tuple[str, str], Published] = {}
    for number in printed_at({"paper": paper, "method": method, "split": "test"}):
        if number.mean is not None and any(o.dataset == number.dataset and o.metric == number.metric for o in others):
            mine.setdefault((number.dataset, number.metric), number)
    if not mine:
        problem = f"{paper} publishes no number of {method!r} on a dataset of {source}"
        raise PublishedError(problem, place="method", value=method)
    pairs, comparisons = [], []
    for (dataset, name), number in mine.items():
        rivals = [o for o in others if (o.dataset, o.metric) == (dataset, name)]
        sign = 1 if number.direction == "max" else -1
        pairs.append((number, max(rivals, key=lambda o: sign * o.number)))
        comparisons.append(RivalComparison(number.place, tuple(o.place for o in rivals)))
    lost, tied = not_won(pairs, lambda a, b: f"{a.dataset} {a.printed} against {b.printed} of {b.method}")
    why = f"best on {len(pairs) - len(lost) - len(tied)} of {len(mine)} datasets{exceptions(lost, tied)}"
    return CheckResult(False if lost else None if tied else True, why, comparisons=tuple(comparisons))


def _complete(number: Published, rows: Any) -> list[Any]:
    """Returns the rows of a published number with a complete verdict, so none of modified code or reduced runs."""
    return [row for row in rows if row.published and row.published.place == number.place and row.counts]
