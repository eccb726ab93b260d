"""A paper in a few sentences: what agrees, what does not, and why. The first ones are counted, the others are written (in_short.yaml)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from gt_bench.claims.evaluate import FAILS, HOLDS, INCONSISTENT, PRINT, UNDECIDED
from gt_bench.config.schema import RecipeError, nearest, read_yaml
from gt_bench.leaderboard.whole_paper import sentence, whole_paper
from gt_bench.papers.coverage import Coverage
from gt_bench.papers.published import lookup
from gt_bench.reports.paper_table import our_number
from gt_bench.schemas import Row

FILE = "in_short.yaml"  # beside the shipped records


def every_in_short(
    covered: Iterable[Coverage], verdicts: Iterable[tuple[str, str]], rows: Sequence[Row], path: Path
) -> dict[str, str]:
    """Summarise each paper.

    Args:
        covered: Coverage of each paper.
        verdicts: (paper, verdict) of claims.
        rows: Rows of leaderboards, from which the names of cells in braces take our numbers.
        path: File of the written sentences.

    Returns:
        Text by paper; empty where the file is absent.

    Raises:
        RecipeError: A paper has no text, or a cell or metric has no number.
    """
    if not path.exists():
        return {}
    written, numbers, told = read_yaml(path), _Numbers(path, rows), list(verdicts)
    found = {}
    for one in covered:
        if not isinstance(written.get(one.paper), str):
            raise RecipeError(f"{path}: has no text of {one.paper}")
        claims = _claims(Counter(verdict for paper, verdict in told if paper == one.paper))
        whole = f" {sentence(whole_paper(one.paper, rows))}" if one.judged else ""
        found[one.paper] = f"{one.sentence}{whole} {claims} {' '.join(written[one.paper].split()).format_map(numbers)}"
    return found


class _Numbers(dict[str, str]):
    """Values of the placeholders: `suite/dataset/row`, with a metric where a cell has several, is our mean ± std formatted as in the published
    table; followed by ` printed`, the published number."""

    def __init__(self, path: Path, rows: Sequence[Row]):
        self.path = path
        for row in rows:
            if row["published_place"] and row["mean"] is not None:
                published = lookup(*row["published_place"])
                for name in (row["cell"], f"{row['cell']} {row['metric']}"):
                    self.setdefault(name, our_number(row, published))
                    self.setdefault(f"{name} printed", published.printed)

    def __missing__(self, key: str) -> str:
        raise RecipeError(f"{self.path}: no number of {key!r} is shipped{nearest(key, list(self))}")


def _claims(verdicts: Counter[str]) -> str:
    says = {
        HOLDS: ("holds", "hold"),
        PRINT: ("agrees with the published numbers alone", "agree with the published numbers alone"),
        FAILS: ("fails", "fail"),
        INCONSISTENT: ("contradicts another statement of the paper", "contradict other statements of the paper"),
        UNDECIDED: ("is undecided", "are undecided"),
    }
    counts = [f"{verdicts[word]} {forms[verdicts[word] > 1]}" for word, forms in says.items() if verdicts[word]]
    if not counts:
        return "None of its claims was tested."
    return f"Of its claims {sum(verdicts[word] for word in says)} were tested: {', '.join(counts)}."
