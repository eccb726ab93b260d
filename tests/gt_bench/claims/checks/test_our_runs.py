"""Claims that our own runs decide, next to what the paper publishes."""

from dataclasses import replace

import pytest

from gt_bench.claims.checks.registry import find_check
from gt_bench.claims.evaluate import evaluate_claim
from gt_bench.config.verdict_settings import Rules
from tests.gt_bench.cells import with_summary
from tests.gt_bench.claims.cases import ALL, HOT, claim_of, run, runs_of

RANDOM, ORF = "node id. = Random, type id. = yes", "node id. = ORF, type id. = yes"
SPARSE = "ba-equivariant-basis-sparse"


@pytest.mark.parametrize(
    ("change", "how", "verdict", "why"),
    [
        (lambda place, mean: mean, {}, "holds", "our runs: claim holds in all 8 comparisons"),
        (lambda place, mean: 0.0 if place[2] == RANDOM else mean, {}, "fails", "and node id. = Random, type id. = yes "
        "on ba-equivariant-basis-dense"),
        (lambda place, mean: 0.0 if place[2] == RANDOM and place[3] == SPARSE else mean, {}, "fails", "claim fails "
        f"in 4 of 8 comparisons: {ORF} and {RANDOM} on {SPARSE} (l2, train)"),
        (lambda place, mean: mean, {"std": 1.0}, "undecided", "runs have decided 0 of 8 comparisons"),
        (lambda place, mean: mean if place[3] == SPARSE else None, {}, "undecided",
        "runs have decided 4 of 8 comparisons"),
        (lambda place, mean: mean if place[2] != RANDOM else None, {}, "holds", "claim holds in all 8"),
         # compared with published values
        (lambda place, mean: mean if place[2] == RANDOM else None, {}, "agrees in the paper", "8 of 8 comparisons"),
        (
            lambda place, mean: mean if place[3] == SPARSE else None, {"runs": 1, "std": 0.0},
            "agrees in the paper", "8 of 8 comparisons; provisional, by 1 of 5 runs, of 8 comparisons: 4 hold",
        ),
        (
            lambda place, mean: 5.0 if place[2] == ORF and place[3] == SPARSE else mean, {"runs": 1, "std": 0.0},
            "agrees in the paper", f"6 hold, 2 fail (fail: {ORF} and {RANDOM} on {SPARSE} (l2, train)",
        ),
    ],
)  # fmt: skip
def test_our_runs_decide_which_of_two_is_better(change, how, verdict, why):
    found = evaluate_claim(*runs_of(ALL["tokengt-random-inaccurate"], change, **how))
    assert (found.verdict, why in found.why) == (verdict, True), found.why
    assert found.provisional == ("runs" in how)


def hyper(change):
    """Returns the verdict on HOT over Hyper-SAGNN in all but one of six columns, for these means of HOT.

    A mean is None where HOT was not run.
    """
    return evaluate_claim(
        *runs_of(ALL["hot-over-hyper-sagnn"], lambda place, mean: change(place, mean) if place[2] == HOT else None)
    )


def test_a_claim_with_one_exception_is_decided_by_our_runs():
    assert hyper(lambda place, mean: None).verdict == "agrees in the paper"
    exception = ("movielens", "aupr")
    assert hyper(lambda place, mean: 0.5 if place[3:5] == exception else 0.999).verdict == "holds"
    one_more = hyper(lambda place, mean: 0.5 if place[3:5] in (exception, ("gps", "auc")) else 0.999)
    assert one_more.verdict == "fails"
    assert "claim fails in 2 of 6 comparisons; the claim needs 5 of 6: " in one_more.why
    # the exception may be another column than in the paper
    other = hyper(lambda place, mean: 0.5 if place[3:5] == ("gps", "auc") else 0.999)
    assert other.verdict == "holds"
    alone = hyper(lambda place, mean: 0.5 if place[3] == "gps" else None)
    assert alone.verdict == "fails"  # two columns are more than one
    assert hyper(lambda place, mean: 0.5 if place[3:5] == ("gps", "auc") else None).verdict == "undecided"


@pytest.mark.slow
def test_best_of_all_others_needs_every_column():
    claim = ALL["polynormer-r-heterophilic"]
    found = find_check("best")(paper="polynormer", **claim.test.arguments)
    places = [comparison.ours for comparison in found.comparisons]
    assert len(places) == 5

    def verdict(means):
        ours = [run(place, mean) for place, mean in zip(places, means, strict=True) if mean is not None]
        return evaluate_claim(claim, ours).verdict

    assert verdict([0.999] * 5) == "holds"
    assert verdict([0.999] * 4 + [0.1]) == "fails"
    assert verdict([0.999] * 4 + [None]) == "undecided"
    assert verdict([None] * 5) == "agrees in the paper"
    some = [run(p, 0.999, runs=3) for p in places]
    assert evaluate_claim(claim, some).verdict == "agrees in the paper"
    # two recipes of one number that differ decide nothing
    assert evaluate_claim(claim, [*(run(p, 0.999) for p in places), run(places[0], 0.1)]).verdict == "undecided"


def test_not_better_is_decided_by_how_many_columns_are_better():
    claim, found = runs_of(ALL["polynormer-v2-not-better"], lambda place, mean: 0.5)
    assert len(found) == 12
    assert evaluate_claim(claim, found).verdict == "holds"
    better = [with_summary(row, mean=0.9) if row.published.method == "Polynormer-v2" else row for row in found]
    assert evaluate_claim(claim, better).verdict == "fails"
    assert evaluate_claim(claim, [replace(row, chosen_on_test=True) for row in better]).verdict == "agrees in the paper"
    three = [
        with_summary(row, mean=0.5) if row.published.dataset in ("photo", "computer", "wikics") else row
        for row in better
    ]
    assert evaluate_claim(claim, three).verdict == "holds"
    assert evaluate_claim(claim, [row for row in found if row.published.dataset == "photo"]).verdict == "undecided"


@pytest.mark.slow
def test_a_shipped_run_that_solves_a_task_contradicts_the_failure_of_its_method(shipped):
    claim = ALL["hot-chains-failure-of-the-mlp"]
    found = evaluate_claim(claim, shipped)
    assert found.verdict == "fails"
    assert found.why.endswith("2 of our 10 runs solve it")
    without = [with_summary(row, values=tuple(min(v, 0.6) for v in row.summary.values)) for row in shipped]
    assert evaluate_claim(claim, without).verdict == "holds"
    begun = [with_summary(row, full=row.summary.runs + 1) for row in shipped]
    assert evaluate_claim(claim, begun).verdict == "agrees in the paper"


@pytest.mark.slow
def test_equal_counts_are_compared_as_published_and_in_our_runs(shipped):
    claim = ALL["ppgt-spe-without-impact"]
    found = evaluate_claim(claim, shipped)
    assert found.verdict == "agrees in the paper"
    assert found.why.count("(ours ") == 2
    other = [with_summary(row, mean=59.0) if row.cell == "ppgt/brec/ppgt-no-spe-basic" else row for row in shipped]
    assert evaluate_claim(claim, other).verdict == "fails"


def with_cost(row, **changes):
    return replace(row, cost=replace(row.cost, **changes)) if row.dataset == "er-scaling-50000" else row


@pytest.mark.slow
def test_memory_is_linear_if_each_added_node_costs_the_same(shipped):
    claim = ALL["polynormer-linear-memory"]
    assert evaluate_claim(claim, shipped).verdict == "holds"
    big = [with_cost(row, peak_memory_mib=40_000.0) for row in shipped]
    assert evaluate_claim(claim, big).verdict == "fails"
    mixed = [with_cost(row, device="a GPU") for row in shipped]
    assert evaluate_claim(claim, mixed).verdict == "undecided"


def test_a_method_that_ran_out_of_memory_is_named_and_has_beaten_nobody():
    def found(better, worse):
        arguments = {"table": "table:transductive_node_classification", "better": better, "worse": worse}
        return evaluate_claim(claim_of("tokengt", "order", arguments))

    ahead = found(["GCN"], ["Graphormer"])
    assert ahead.verdict == "agrees in the paper"
    assert "without OOM of Graphormer on physics" in ahead.why
    assert found(["Graphormer"], ["GCN"]).verdict == "fails"


def test_a_method_of_the_paper_against_another_of_its_own():
    claim, found = runs_of(ALL["polynormer-relu-improves"])
    assert evaluate_claim(claim).verdict == "agrees in the paper"
    assert len(found) == 10
    assert evaluate_claim(claim, [with_summary(one, mean=1 - one.summary.mean) for one in found]).verdict == "fails"


def test_seen_and_unseen_graphs_are_two_columns_of_one_run():
    assert evaluate_claim(*runs_of(ALL["tokengt-transfers-to-unseen-graphs"], std=1e-6)).verdict == "holds"
    unseen = lambda place, mean: mean + (place[5] == "test")  # noqa: E731
    found = evaluate_claim(*runs_of(ALL["tokengt-transfers-to-unseen-graphs"], unseen, std=1e-6))
    assert found.verdict == "fails"


def test_runs_decide_by_the_level_of_params():
    claim, found = runs_of(ALL["tokengt-random-inaccurate"], std=0.15)
    assert evaluate_claim(claim, found, rules=Rules(level=0.05)).verdict == "undecided"
    assert evaluate_claim(claim, found, rules=Rules(level=0.15)).verdict == "holds"
