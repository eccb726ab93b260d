"""A paper in five sentences: what holds, what does not, and why. The first two are counted, the others are written (records/in_short.yaml)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from gt_bench.claims.evaluate import FAILS, HOLDS, PRINT, UNDECIDED
from gt_bench.config.schema import RecipeError, nearest, read_yaml
from gt_bench.papers.coverage import Coverage
from gt_bench.papers.published import lookup
from gt_bench.reports.paper_table import our_number
from gt_bench.schemas import Row

FILE = "in_short.yaml"  # beside the shipped records


def every_in_short(
    covered: Iterable[Coverage], verdicts: Iterable[tuple[str, str]], rows: Sequence[Row], path: Path
) -> dict[str, str]:
    """Paper -> five sentences; none where the file is absent. `verdicts`: (paper, verdict) of claims; `rows`: of leaderboards, from which the
    names of cells between braces take our numbers. Raises RecipeError for a paper without text, and for a cell or metric that has no number."""
    if not path.exists():
        return {}
    written, numbers, told = read_yaml(path), _Numbers(path, rows), list(verdicts)
    found = {}
    for one in covered:
        if not isinstance(written.get(one.paper), str):
            raise RecipeError(f"{path}: has no text of {one.paper}")
        claims = _claims(Counter(verdict for paper, verdict in told if paper == one.paper))
        found[one.paper] = f"{one.sentence} {claims} {' '.join(written[one.paper].split()).format_map(numbers)}"
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
        PRINT: ("holds by the printed numbers alone", "hold by the printed numbers alone"),
        FAILS: ("fails", "fail"),
        UNDECIDED: ("is undecided", "are undecided"),
    }
    counts = [f"{verdicts[word]} {forms[verdicts[word] > 1]}" for word, forms in says.items() if verdicts[word]]
    if not counts:
        return "None of what it says in words was tested."
    return (
        f"Of what it says in words {sum(verdicts[word] for word in says)} sentences were tested: {', '.join(counts)}."
    )
