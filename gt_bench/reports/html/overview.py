"""The first section of the page: one line per paper, and which rows decide its numbers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypedDict

from gt_bench.leaderboard.coverage import Coverage
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.whole_paper import judged_numbers, whole_paper
from gt_bench.papers.results_file import label_of
from gt_bench.reports.html.content import id_of
from gt_bench.reports.paper_table import KINDS, NOT_JUDGED, kind_of


class KindCount(TypedDict):
    """A kind of verdict, and the number of verdicts of it."""

    word: str
    sign: str
    count: int


class PaperLine(TypedDict):
    """A line of the table of papers; see `of_papers`."""

    paper: str
    label: str
    numbers: int
    complete: int
    provisional: int
    kinds: list[KindCount]
    worse: str
    p: str


def of_papers(covered: Iterable[Coverage], rows: Sequence[Row]) -> list[PaperLine]:
    """Count the own numbers of each paper by verdict.

    Args:
        covered: Coverage of each paper.
        rows: Rows of leaderboards.

    Returns:
        One line per paper. `kinds` counts complete verdicts, and numbers without any; with the provisional verdicts
        they add up to `numbers`. `worse` and `p` are the test of the whole paper over its declared numbers.
    """
    lines: list[PaperLine] = []
    for paper in covered:
        judged = judged_numbers(paper.paper, rows).values()
        counts = Counter(kind_of(row).word for row in judged if not row.provisional)
        complete = counts.total()
        provisional = len(judged) - complete
        counts[NOT_JUDGED] += paper.numbers - complete - provisional
        test = whole_paper(paper.paper, rows).final
        lines.append(
            {
                "paper": paper.paper,
                "label": label_of(paper.paper),
                "numbers": paper.numbers,
                "complete": complete,
                "provisional": provisional,
                "kinds": [{"word": kind.word, "sign": kind.sign, "count": counts[kind.word]} for kind in KINDS],
                "worse": f"{test.worse:g} of {test.numbers}" if test.numbers else "–",
                "p": "–" if test.by_dataset is None else f"{test.by_dataset:.2g}",  # None: too few datasets
            }
        )
    return lines


def total(lines: Iterable[PaperLine]) -> dict[str, int]:
    """Return the number of verdicts of each kind over all papers."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update({kind["word"]: kind["count"] for kind in line["kinds"] if kind["word"] != NOT_JUDGED})
    return {kind.word: counts[kind.word] for kind in KINDS}


def rows_of_numbers(covered: Iterable[Coverage], rows: Sequence[Row]) -> dict[tuple[str, str | None], str]:
    """Return {(id of a row, its metric): label of the paper} of the rows that decide an own number of a paper."""
    return {
        (id_of(row), row.metric): label_of(paper.paper)
        for paper in covered
        for row in judged_numbers(paper.paper, rows).values()
    }
