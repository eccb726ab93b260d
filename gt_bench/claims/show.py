"""What the papers say in words, judged by the shipped records."""

from pathlib import Path

from gt_bench.claims.evaluate import load_claims, verdicts_of
from gt_bench.claims.experiments import registry
from gt_bench.claims.table import page, show
from gt_bench.config.grid import Grid
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.leaderboard.collect import every_row
from gt_bench.store.archive import ROOT
from gt_bench.utils.format import print_text
from gt_bench.utils.io import write_bytes
from gt_bench.utils.paths import suite_name


def show_claims(
    paper: str | None, grid: Grid, records: Path = ROOT, data: Path = Path("data"), write: Path | None = None
) -> None:
    """The claims of a paper, or of all, with their verdicts, on the terminal and as Markdown in the file `write`; and which findings behind them
    other code than the present computed. Raises RecipeError for a paper without claims."""
    paper = paper and suite_name(paper)
    chosen = [claim for claim in load_claims() if paper in (None, claim.paper)]
    if not chosen:
        known = list(dict.fromkeys(claim.paper for claim in load_claims()))
        raise RecipeError(
            f"no claim of a paper {paper!r} in any claims.yaml{nearest(paper or '', known)}; it has claims of {', '.join(known)}"
        )
    verdicts = verdicts_of(chosen, every_row(grid, records), data, grid.run.verdict)
    show(chosen, verdicts)
    stale = {name: len(registry.stale(name)) for name in registry.experiments()}
    if other := [f"{name} ({count} of {len(registry.load(name))} cases)" for name, count in stale.items() if count]:
        print_text(
            f"computed by other code than the present: {', '.join(other)}; `gt-bench claims --recompute NAME` computes one anew and compares"
        )
    if write:
        print_text(f"written: {write_bytes(write, page(chosen, verdicts).encode())}")
