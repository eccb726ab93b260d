"""What the papers say in words, judged by the shipped records."""

import json
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
    paper: str | None,
    grid: Grid,
    records: Path = ROOT,
    data: Path = Path("data"),
    write: Path | None = None,
    as_json: bool = False,
) -> None:
    """Print claims with their verdicts, and which findings were computed by other code than the current one.

    Args:
        paper: name of the suite; None for all.
        grid: the grid.
        records: folder of suites with shipped records.
        data: folder of the datasets.
        write: also write the claims to this Markdown file.
        as_json: print JSON (docs/json.md) instead.

    Raises:
        RecipeError: the paper has no claims.
    """
    paper = paper and suite_name(paper)
    chosen = [claim for claim in load_claims() if paper in (None, claim.paper)]
    if not chosen:
        known = list(dict.fromkeys(claim.paper for claim in load_claims()))
        raise RecipeError(
            f"no claim of a paper {paper!r} in any claims.yaml{nearest(paper or '', known)}; it has claims of {', '.join(known)}"
        )
    verdicts = verdicts_of(chosen, every_row(grid, records), data, grid.run.verdict)
    if as_json:
        lines = [
            {
                **claim.model_dump(include={"id", "paper", "place", "sentence", "case"}),
                "verdict": verdicts[claim.id][0],
                "why": verdicts[claim.id][1],
            }
            for claim in chosen
        ]
        print(json.dumps(lines, indent=1))
        return
    show(chosen, verdicts)
    stale = {name: len(registry.stale(name)) for name in registry.experiments()}
    if other := [f"{name} ({count} of {len(registry.load(name))} cases)" for name, count in stale.items() if count]:
        print_text(
            f"computed by other code than the present: {', '.join(other)}; `gt-bench claims --recompute NAME` computes one anew and compares"
        )
    if write:
        print_text(f"written: {write_bytes(write, page(chosen, verdicts).encode())}")
