"""All claims, and runs of ours for the numbers that a claim compares."""

from gt_bench.claims.checks.registry import find_check
from gt_bench.claims.evaluate import Claim, load_claims
from gt_bench.leaderboard.row import Row, Summary
from gt_bench.papers.published import lookup
from gt_bench.papers.units import Unit
from gt_bench.records.state import CellState
from gt_bench.stats.verdict import Verdict, VerdictWord

ALL = {claim.id: claim for claim in load_claims()}


def claim_of(paper, kind, arguments):
    """Returns a claim with this test."""
    return Claim(id="x", paper=paper, place="here", sentence="so it is", test={"kind": kind, "arguments": arguments})


def run(place, mean, runs=5, std=1e-3):
    """Returns a row of the leaderboard for a published number; provisional with fewer than five runs."""
    return Row(
        "tokengt/x/y", "accuracy", "max", Unit.NONE, CellState(ended="ok", wanted=runs, done=runs),
        Summary((mean,) * runs, mean, std, runs, runs, 5), published=lookup(*place),
        verdict=Verdict(VerdictWord.CONSISTENT, (0.0, 1.0)),
    )  # fmt: skip


def runs_of(claim, change=lambda place, mean: mean, **how):
    """Returns the claim, and runs of every number that it compares, with the published means."""
    comparisons = find_check(claim.test.kind)(paper=claim.paper, **claim.test.arguments).comparisons
    places = sorted({place for comparison in comparisons for place in (comparison.ours, *comparison.rivals)})
    return claim, [
        run(place, mean, **how) for place in places if (mean := change(place, lookup(*place).mean)) is not None
    ]


HOT = "Ours (S, ϕ)"
