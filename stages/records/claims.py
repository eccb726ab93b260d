"""What the papers say in words, judged by the shipped records."""

from pathlib import Path

from stages import findings
from stages.files import write_bytes
from stages.params import Grid
from stages.records.gathered import every_row
from stages.records.shipped import ROOT
from stages.report.claims import load_claims, verdicts_of
from stages.report.claims_table import page, show
from stages.schema import RecipeError, nearest
from stages.texts import print_text


def show_claims(paper: str | None, grid: Grid, records: Path = ROOT, data: Path = Path("data"), write: Path | None = None) -> None:
    """The claims of a paper, or of all, with their verdicts, on the terminal and as Markdown in the file `write`; and which findings behind them
    other code than the present computed. Raises RecipeError for a paper without claims."""
    chosen = [claim for claim in load_claims() if paper in (None, claim.paper.replace("_", "-"), claim.paper)]
    if not chosen:
        known = list(dict.fromkeys(claim.paper for claim in load_claims()))
        raise RecipeError(
            f"no claim of a paper {paper!r} in published/claims.yaml{nearest(paper or '', known)}; it has claims of {', '.join(known)}"
        )
    verdicts = verdicts_of(chosen, every_row(grid, records), data, grid.run.verdict)
    show(chosen, verdicts)
    stale = {name: len(findings.stale(name)) for name in findings.NAMES}
    if other := [f"{name} ({count} of {len(findings.load(name))} cases)" for name, count in stale.items() if count]:
        print_text(
            f"computed by other code than the present: {', '.join(other)}; `gt-bench claims --recompute NAME` computes one anew and compares"
        )
    if write:
        print_text(f"written: {write_bytes(write, page(chosen, verdicts).encode())}")
