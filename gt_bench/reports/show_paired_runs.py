"""`gt-bench compare`: prints comparisons of models, or of versions of a cell, on their common seeds and splits."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gt_bench.config.grid import Grid
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import Gathered
from gt_bench.papers.units import PERCENT, arrow, difference_text, number_texts
from gt_bench.reports.paired_runs import PairedRuns, Side, compare, mean_of, mean_ranks, means_of, sides
from gt_bench.stats import ranking
from gt_bench.stats.paired import EQUAL, FEWEST_PAIRS, FIRST, SECOND, TOO_FEW, Paired, bayesian_over_datasets
from gt_bench.stats.welch import SPREADLESS
from gt_bench.store.shipped_files import ROOT
from gt_bench.utils.format import print_text


@dataclass(frozen=True)
class Comparisons:
    """Comparisons of other names with the first.

    Attributes:
        names: the names, see the docstring of the module.
        sides: sides of each name.
        pairs: each other name with its comparisons, dataset by dataset.
        left_out: why datasets are left out.
        rules: levels of intervals and tests.
        rope: as for `compare`.
    """

    names: Sequence[str]
    sides: Mapping[str, Mapping[str, Sequence[Side]]]
    pairs: Sequence[tuple[str, Sequence[PairedRuns]]]
    left_out: Sequence[str]
    rules: Rules
    rope: float | None


def comparisons(
    names: Sequence[str],
    grid: Grid,
    held: Gathered,
    datasets: Sequence[str] = (),
    rope: float | None = None,
    root: Path = ROOT,
) -> Comparisons:
    """Compare every other name with the first, dataset by dataset.

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
    known = dict.fromkeys(cell.dataset for cell in grid.cells.values())
    for name in datasets:
        if name not in known:
            raise RecipeError(f"no cell has the dataset {name!r}{nearest(name, known)}", place="--dataset", value=name)
    named = {name: sides(name, grid, held, datasets) for name in names}
    everything, reasons = [], []
    for other in names[1:]:
        pairs, why = compare(named[names[0]], named[other], grid.run.verdict, rope, root)
        everything.append((other, pairs))
        reasons += why
    if not any(pairs for _, pairs in everything):
        raise RecipeError(f"nothing to compare: {'; '.join(reasons)}")
    return Comparisons(names, named, everything, list(dict.fromkeys(reasons)), grid.run.verdict, rope)


def as_json(made: Comparisons) -> dict[str, object]:
    """Return comparisons as JSON (docs/json_output.md)."""
    lines = []
    for other, pairs in made.pairs:
        for pair in pairs:
            common = pair.first.values.keys() & pair.second.values.keys()
            sides_of = {
                which: {"cell": side.name, "mean": mean_of(side, common)}
                for which, side in (("first", pair.first), ("second", pair.second))
            }
            lines.append(
                {
                    "names": [made.names[0], other],
                    "dataset": pair.dataset,
                    "metric": pair.metric,
                    "direction": pair.first.version.result.direction,
                    **sides_of,
                    **asdict(pair.found),
                    "verdict": verdict_of(pair.found),
                    "without_examples": pair.without_examples or None,
                    "left_out": pair.left_out,
                    "bayes": pair.bayes,
                }
            )
    ranks, _ = mean_ranks(made.sides, made.rules)
    return {"comparisons": lines, "ranks": asdict(ranks) if ranks else None, "left_out": made.left_out}


def show(made: Comparisons) -> None:
    """Print a table for each other name, and mean ranks over all datasets."""
    from gt_bench.utils.terminal import print_table

    sure, bayes = f"{100 * (1 - made.rules.level):g} %", made.rope is not None
    for other, pairs in made.pairs:
        heads = ["dataset", "metric", "first", "second", f"difference [{sure}]", "d", "first ahead", "verdict"]
        heads += ["P(first), P(equal), P(second)"] if bayes else []
        texts = [_texts(pair, bayes) for pair in pairs]
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
            title=f"{made.names[0]} (first) and {other} (second)",
            always=heads[2:8],
            above=heads[:2],
        )
    for reason in made.left_out:
        print_text(f"  left out: {reason}")
    compared = [pair for _, pairs in made.pairs for pair in pairs]
    if lonely := dict.fromkeys(text for pair in compared for text in _left_out(pair)):
        print_text(f"  left out, as the other has no run of the same seed and split: {', '.join(lonely)}")
    for remark in dict.fromkeys(side.remark for pair in compared for side in (pair.first, pair.second) if side.remark):
        print_text(f"  {remark}")
    if unknown := dict.fromkeys(pair.without_examples for pair in compared if pair.without_examples):
        print_text(f"  without the uncertainty of the test examples: {'; '.join(unknown)}")
    stale = {
        side.name: side.version.stale for pair in compared for side in (pair.first, pair.second) if side.version.stale
    }
    if stale:
        print_text(
            "  the current code would compute other values: "
            f"{'; '.join(name + ': ' + ' and '.join(map(str, why)) for name, why in stale.items())}"
        )
    print_text(
        "A positive difference is in favour of the first. Intervals contain the spread over runs and, if it is known, "
        "over test examples. d: Cohen's, of the pairs. inconclusive (+n): n more pairs would decide at this spread. "
        f"too few runs: fewer than {FEWEST_PAIRS} pairs, or at most {SPREADLESS} without a spread."
    )
    _show_ranks(made.sides, made.rules, made.rope)


def _left_out(pair: PairedRuns) -> list[str]:
    """Return how many runs of each side the other side does not have."""
    sides = (pair.first, pair.second), (pair.second, pair.first)
    return [
        f"{count} of {side.name}" for side, other in sides if (count := len(side.values.keys() - other.values.keys()))
    ]


def _show_ranks(named: Mapping[str, Mapping[str, Sequence[Side]]], rules: Rules, rope: float | None) -> None:
    ranks, common = mean_ranks(named, rules)
    if ranks is None:
        return
    print_text(
        f"mean ranks over {len(common)} datasets: "
        f"{', '.join(f'{name} {rank:.2f}' for name, rank in ranks.mean_ranks.items())}"
    )
    if ranks.test is None:
        print_text(f"  too few datasets for a test over them: {ranking.FEWEST} are needed")
        return
    critical = (
        f"; ranks that differ by less than {ranks.critical:.2f} are not significantly different (Nemenyi)"
        if ranks.critical
        else ""
    )
    print_text(f"  {ranks.test}: p = {ranks.p_value:.3g}{critical}")
    if rope is not None and len(named) == 2:
        first, second = means_of(named, common).values()
        better, same, worse = bayesian_over_datasets(first, second, rope)
        print_text(
            f"  over all of them: P(first) {better:.3f}, P(equal within {rope:g}) {same:.3f}, P(second) {worse:.3f}"
        )


def _texts(pair: PairedRuns, bayes: bool) -> list[str]:
    percent, paired = pair.metric in PERCENT, pair.found
    common = pair.first.values.keys() & pair.second.values.keys()
    means = number_texts([mean_of(pair.first, common), mean_of(pair.second, common)], percent)
    texts = [
        pair.dataset,
        f"{pair.metric} {arrow(pair.first.version.result.direction)}{' %' if percent else ''}",
        *means,
        difference_text(paired.difference, paired.interval, percent),
        "–" if paired.effect is None else f"{paired.effect:.2f}",
        f"{paired.ahead} of {paired.pairs}" + (f", {paired.ties} equal" if paired.ties else ""),
        verdict_of(paired),
    ]
    return texts + ([", ".join(f"{p:.3f}" for p in pair.bayes) if pair.bayes else "–"] if bayes else [])


def verdict_of(paired: Paired) -> str:
    """Return the verdict in words, with the number of additional pairs that would decide."""
    words = {FIRST: "first is better", SECOND: "second is better", EQUAL: "equal in every pair", TOO_FEW: TOO_FEW}
    if paired.word in words:
        return words[paired.word]
    return (
        f"inconclusive (+{paired.more_pairs})"
        if paired.more_pairs
        else "inconclusive (no number of seeds up to 1000 decides)"
    )
