"""Models of one suite compared with models of another one on the same datasets: our runs, and published numbers.

suite.yaml declares what is compared (`compare`). Our runs are paired by seed and split; published means are compared
by Welch's test. The comparisons of two models share the level: each dataset has its part (Bonferroni).
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from gt_bench.config.cuts import more_than_seeds
from gt_bench.config.grid import Cell, Grid
from gt_bench.config.suite import SuiteComparison, load_suite
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import Version, tested_values
from gt_bench.leaderboard.coverage import published_numbers
from gt_bench.papers.published import Published
from gt_bench.papers.units import PERCENT, difference_text, mean_and_std
from gt_bench.reports.paired_runs import Side, compare
from gt_bench.stats import ranking
from gt_bench.stats.claim import ClaimWord, JudgedClaim, Number, judge_claim
from gt_bench.stats.paired import EQUAL, FIRST, INCONCLUSIVE, SECOND, TOO_FEW, Paired
from gt_bench.stats.verdict import highest_of
from gt_bench.store.shipped_files import ROOT
from gt_bench.utils.format import markdown_line
from gt_bench.utils.paths import suite_folders

RULE = (
    "Means with their deviation; the number of our runs in parentheses. A difference is positive if the model is "
    "better than its rival. Our runs of the same seed and split are paired; published means are compared by Welch's "
    "test. The datasets of two models share the level 0.05 (Bonferroni). p: the signed-rank test over datasets."
)
COLUMNS = (
    "dataset", "model", "ours", "published", "rival", "ours of the rival", "published of the rival", "our difference",
    "published difference",
)  # fmt: skip
NO_RUN, UNPAIRED = "no run of both", "no common seed and split"
WORDS = {FIRST: "better", SECOND: "worse", INCONCLUSIVE: "undecided", EQUAL: "equal", TOO_FEW: TOO_FEW}
OF_CLAIM = {ClaimWord.HOLDS: "better", ClaimWord.FAILS: "worse", ClaimWord.UNDECIDED: "undecided"}
DECIDED = ("better", "worse", "undecided", "equal")


@dataclass(frozen=True)
class CellPair:
    """A model and its rival on one dataset.

    Attributes:
        dataset, row, rival: what is compared.
        sides: both with our runs, None without.
        numbers: both published numbers, None where there is none.
        ours: the paired comparison, None if there is no common run.
        published: the comparison of the published means, None without both.
    """

    dataset: str
    row: str
    rival: str
    sides: tuple[Side | None, Side | None]
    numbers: tuple[Published | None, Published | None]
    ours: Paired | None
    published: JudgedClaim | None

    @property
    def our_word(self) -> str:
        """What our runs say of the model."""
        return WORDS[self.ours.word] if self.ours else UNPAIRED if all(self.sides) else NO_RUN

    @property
    def gap(self) -> float | None:
        """Published mean minus that of the rival; positive if the model is better."""
        first, second = self.numbers
        if first is None or second is None or first.mean is None or second.mean is None:
            return None
        return (first.mean - second.mean) * (1 if first.direction == "max" else -1)

    @property
    def texts(self) -> list[str]:
        """The cells of the line, as in COLUMNS."""
        metric = next((side.version.result.metric for side in self.sides if side), None)
        percent = metric in PERCENT or any(number and number.unit == "percent" for number in self.numbers)
        ours, interval = self.ours, self.published.interval if self.published else None
        paired = f"{difference_text(ours.difference, ours.interval, percent)}, n = {ours.pairs}: " if ours else ""
        word = f": {OF_CLAIM[self.published.word]}" if self.published else ""
        (mean, printed), (other, its_printed) = (
            (_mean(side, percent), number.printed if number else "–")
            for side, number in zip(self.sides, self.numbers, strict=True)
        )
        return [
            self.dataset, self.row, mean, printed, self.rival, other, its_printed, paired + self.our_word,
            difference_text(self.gap, interval, percent) + word,
        ]  # fmt: skip


@dataclass(frozen=True)
class ComparedSuites:
    """A declared comparison. `sentences`: what follows for each pair of models over several datasets."""

    title: str
    lines: list[CellPair]
    sentences: list[str]


def comparisons(grid: Grid, versions: Mapping[str, Version], root: Path = ROOT) -> list[ComparedSuites]:
    """Returns the declared comparisons of the suites of the grid.

    Args:
        grid: the grid.
        versions: the version of each cell with runs.
        root: folder of shipped records.
    """
    return [
        _compared(suite, declared, grid, versions, root)
        for suite in grid.suites
        if suite in suite_folders()  # a recipe of a user has no suite.yaml
        for declared in load_suite(suite).compare
        if declared.suite in grid.suites
    ]


def _compared(
    suite: str, declared: SuiteComparison, grid: Grid, versions: Mapping[str, Version], root: Path
) -> ComparedSuites:
    rules = grid.run.verdict.model_copy(update={"level": grid.run.verdict.level / len(declared.datasets)})
    known, lines = {cell.cell: cell for cell in grid.cells.values()}, []
    for dataset, row, rival in product(declared.datasets, declared.rows, declared.against):
        names = f"{suite}/{dataset}/{row}", f"{declared.suite}/{dataset}/{rival}"
        if not all(name in known for name in names):
            continue
        cells = known[names[0]], known[names[1]]
        sides = _side(cells[0], versions), _side(cells[1], versions)
        lines.append(_line(cells, sides, rules, root))
    shown = [line for line in lines if line.rival == declared.against[0] or all(line.sides)]
    said = [
        sentence([line for line in lines if (line.row, line.rival) == pair])
        for pair in product(declared.rows, declared.against)
        # of one dataset, the line itself says it all
        if sum((line.row, line.rival) == pair for line in shown) > 1
    ]
    return ComparedSuites(declared.title, shown, said)


def _line(cells: tuple[Cell, Cell], sides: tuple[Side | None, Side | None], rules: Rules, root: Path) -> CellPair:
    dataset, (first, second) = cells[0].dataset, sides
    pairs = compare({dataset: [first]}, {dataset: [second]}, rules, root=root)[0] if first and second else []
    printed, other = (next(iter(published_numbers(cell)), None) for cell in cells)
    return CellPair(
        dataset, cells[0].model, cells[1].model, sides, (printed, other), pairs[0].found if pairs else None,
        _welch(printed, other, rules),
    )  # fmt: skip


def _side(cell: Cell, versions: Mapping[str, Version]) -> Side | None:
    version = versions.get(cell.cell)
    if version is None or more_than_seeds(version.result.reduced):
        return None
    if not (values := tested_values(version.records)):
        return None
    return Side(cell.cell, version, values)


def _welch(first: Published | None, second: Published | None, rules: Rules) -> JudgedClaim | None:
    if first is None or second is None or first.mean is None or second.mean is None:
        return None
    rounding = first.rounding + second.rounding
    return judge_claim(
        Number(first.method, first.mean, first.largest_std, first.runs),
        Number(second.method, second.mean, second.largest_std, second.runs, rounding),
        first.direction,
        rules=rules,
        highest=highest_of(first),
    )


def sentence(lines: Sequence[CellPair]) -> str:
    """Returns what follows for two models over the datasets of `lines`, with or without our runs."""
    published = [line for line in lines if line.published and line.gap is not None]
    ours = Counter(line.our_word for line in lines if line.our_word != NO_RUN)
    higher, lower = (sum(sign * line.gap > 0 for line in published if line.gap) for sign in (1, -1))
    decided = Counter(OF_CLAIM[line.published.word] for line in published if line.published)
    gaps = np.array([round(line.gap, 9) for line in published if line.gap is not None])
    p = f"; p = {ranking.signed_rank(gaps):.2g}" if len(gaps) > ranking.FEWEST else ""
    words = [word for word in (*DECIDED, TOO_FEW, UNPAIRED) if ours[word]]
    counts = words[0] if len(words) == 1 else ", ".join(f"{word} on {ours[word]}" for word in words)
    on = f"Our runs on {ours.total()} of {len(lines)} datasets: {counts}" if ours else "Our runs: no dataset has both"
    return (
        f"{lines[0].row} against {lines[0].rival}, published: better on {higher} of {len(published)} datasets "
        f"({decided['better']} significant), worse on {lower} ({decided['worse']}){p}. {on}."
    )


def _mean(side: Side | None, percent: bool) -> str:
    if side is None:
        return "–"
    values = list(side.values.values())
    std = statistics.pstdev(values) if len(values) > 1 else None
    return f"{mean_and_std(math.fsum(values) / len(values), std, percent)} ({len(values)})"


def markdown(compared: Iterable[ComparedSuites]) -> list[str]:
    """Returns the comparisons as Markdown."""
    parts: list[str] = []
    for suites in compared:
        parts += [f"### {suites.title}", "", *(f"- {line}" for line in suites.sentences), "", markdown_line(COLUMNS)]
        parts += [f"|{' --- |' * len(COLUMNS)}", *(markdown_line(line.texts) for line in suites.lines), ""]
    return parts
