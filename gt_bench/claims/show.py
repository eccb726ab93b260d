"""The command `gt-bench claims`."""

from pathlib import Path

from gt_bench.claims.evaluate import evaluate_claims, load_claims
from gt_bench.claims.experiments import registry
from gt_bench.claims.table import page, show
from gt_bench.config.grid import Grid
from gt_bench.config.schema import RecipeError, nearest
from gt_bench.leaderboard.collect import every_row
from gt_bench.store.shipped_files import ROOT
from gt_bench.utils.format import print_json, print_text
from gt_bench.utils.io import write_bytes


def show_claims(
    paper: str | None,
    grid: Grid,
    records: Path = ROOT,
    data: Path = Path("data"),
    write: Path | None = None,
    as_json: bool = False,
) -> None:
    """Prints claims with their verdicts, and findings that were computed by another version of their code.

    Args:
        paper: only claims of this paper.
        grid: the grid.
        records: folder of shipped records.
        data: folder that contains packed/.
        write: file that the claims are written to as Markdown.
        as_json: print JSON (docs/json_output.md) instead.

    Raises:
        RecipeError: the paper has no claims.
    """
    chosen = [claim for claim in load_claims() if paper in (None, claim.paper)]
    if not chosen:
        known = list(dict.fromkeys(claim.paper for claim in load_claims()))
        problem = f"no claims of a paper {paper!r}{nearest(paper or '', known)}; papers with claims: {', '.join(known)}"
        raise RecipeError(problem, value=paper)
    verdicts = evaluate_claims(chosen, every_row(grid, records), data, grid.run.verdict)
    if as_json:
        keys = {"id", "paper", "place", "sentence", "case"}
        print_json(
            [
                claim.model_dump(include=keys) | {"verdict": verdicts[claim.id].verdict, "why": verdicts[claim.id].why}
                for claim in chosen
            ]
        )
        return
    show(chosen, verdicts)
    stale = {name: len(registry.stale(name)) for name in registry.experiments()}
    if other := [f"{name} ({count} of {len(registry.load(name))} cases)" for name, count in stale.items() if count]:
        print_text(
            f"computed by another version of the code: {', '.join(other)}; run `gt-bench claims --recompute NAME` to "
            "compute one again and compare"
        )
    if write:
        print_text(f"written: {write_bytes(write, page(chosen, verdicts).encode())}")
