"""All claims, and runs of ours for the numbers that a claim compares."""

from gt_bench.claims.checks.registry import find_check
from gt_bench.claims.evaluate import load_claims
from gt_bench.papers.published import lookup

ALL = {claim.id: claim for claim in load_claims()}


def run(place, mean, runs=5, std=1e-3, provisional=False):
    """Returns a row of the leaderboard for a published number."""
    return {
        "cell": "tokengt/x/y", "model": "y", "published_place": list(place), "claim": None, "interval_low": 0.0,
        "mean": mean, "std": std, "runs": runs,
        "seeds": 5, "reduced": [], "provisional": provisional, "chosen_on_test": False,
    }  # fmt: skip


def runs_of(claim, change=lambda place, mean: mean, **how):
    """Returns the claim, and runs of every number that it compares, with the published means."""
    comparisons = find_check(claim.test.kind)(paper=claim.paper, **claim.test.arguments).comparisons
    places = sorted({place for comparison in comparisons for place in (comparison.ours, *comparison.rivals)})
    return claim, [
        run(place, mean, **how) for place in places if (mean := change(place, lookup(*place).mean)) is not None
    ]


HOT = "Ours (S, ϕ)"
