"""A paper in a few sentences: what agrees, what does not, and why.

The first ones are counted, the others are in its suite.yaml.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gt_bench.claims.evaluate import ClaimVerdict
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.config.suite import load_suite
from gt_bench.leaderboard.coverage import Coverage
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.whole_paper import sentence, whole_paper
from gt_bench.reports.paper_table import our_number
from gt_bench.utils.paths import MANIFEST, SUITES


class PaperSummary(NamedTuple):
    """A paper in short.

    Attributes:
        counts: Sentences that are counted: numbers, the test of the whole paper, claims.
        text: The summary of its suite.yaml, with our numbers in it.
    """

    counts: str
    text: str

    def __str__(self) -> str:
        return f"{self.counts} {self.text}"


def every_in_short(
    covered: Iterable[Coverage], verdicts: Iterable[tuple[str, str]], rows: Sequence[Row]
) -> dict[str, PaperSummary]:
    """Summarize each paper that has a summary in its suite.yaml.

    Args:
        covered: of each paper.
        verdicts: (paper, verdict) of claims that need no data files.
        rows: of leaderboards; the names of cells between braces take our numbers from them.

    Raises:
        RecipeError: for a cell or metric that has no number.
    """
    numbers, told = _numbers(rows), list(verdicts)
    summaries: dict[str, PaperSummary] = {}
    for coverage in covered:
        summary = load_suite(coverage.paper).summary
        if summary is None:
            continue
        claims = _claims(Counter(verdict for paper, verdict in told if paper == coverage.paper))
        text = " ".join(summary.split()).format_map(_Numbers(numbers, coverage.paper))
        whole = f" {sentence(whole_paper(coverage.paper, rows))}" if coverage.judged else ""
        summaries[coverage.paper] = PaperSummary(f"{coverage.sentence}{whole} {claims}", text)
    return summaries


def _numbers(rows: Sequence[Row]) -> dict[str, str]:
    """Returns values of the placeholders.

    `suite/dataset/row` is our mean ± std, formatted as in the published table. A metric follows if a cell has several.
    With ` printed` at the end it is the published number.
    """
    texts: dict[str, str] = {}
    for row in rows:
        if row.published and row.summary.mean is not None:
            for name in (row.cell, f"{row.cell} {row.metric}"):
                texts.setdefault(name, our_number(row, row.published))
                texts.setdefault(f"{name} printed", row.published.printed)
    return texts


class _Numbers(dict[str, str]):
    def __init__(self, numbers: dict[str, str], paper: str):
        super().__init__(numbers)
        self.paper = paper

    def __missing__(self, key: str) -> str:
        problem = f"no number of {key!r} is shipped{nearest(key, list(self))}"
        raise RecipeError(problem, file=SUITES / self.paper / MANIFEST, place="summary", value=key)


def _claims(verdicts: Counter[str]) -> str:
    says = {
        ClaimVerdict.HOLDS: ("holds", "hold"),
        ClaimVerdict.AS_PUBLISHED: ("agrees in the paper", "agree in the paper"),
        ClaimVerdict.FAILS: ("fails", "fail"),
        ClaimVerdict.INCONSISTENT: (
            "contradicts another statement of the paper",
            "contradict other statements of the paper",
        ),
        ClaimVerdict.UNDECIDED: ("is undecided", "are undecided"),
    }
    counts = [f"{verdicts[word]} {forms[verdicts[word] > 1]}" for word, forms in says.items() if verdicts[word]]
    if not counts:
        return "None of its claims was tested without data files."
    tested = sum(verdicts[word] for word in says)
    return f"Of its claims, {tested} were tested without data files: {', '.join(counts)}."
