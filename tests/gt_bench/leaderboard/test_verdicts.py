"""Which rows get a verdict, and the comparisons that decide a claim."""

from dataclasses import replace

import numpy as np
import pytest

from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.collect import judged
from gt_bench.leaderboard.columns import cells
from gt_bench.leaderboard.export import tally
from gt_bench.leaderboard.row import Row, Summary
from gt_bench.leaderboard.verdicts import comparisons, with_claims, with_false_discovery
from gt_bench.leaderboard.words import remarks_of, rival_of, status_of
from gt_bench.papers.published import lookup
from gt_bench.papers.units import Unit
from gt_bench.records.state import CellState
from gt_bench.stats.verdict import Verdict, VerdictWord
from tests.gt_bench.cells import ET, changed, make_record, make_result, records, without_data


def test_an_incomplete_a_reduced_and_a_failed_cell_get_no_verdict():
    runs = records(failed=("oom", "diverged"))
    result = make_result(ET, runs)
    row = judged(result, runs)[0]
    assert status_of(row.state) == "ok 3/5 (1 diverged, 1 oom)"
    assert (row.verdict.word, row.summary.runs) == ("failed runs", 3)
    runs = records()
    for cut in ("5 of 10 epochs", "8 of 24 trials", "derived data: stand-in"):
        result = make_result(ET, runs, reduced=("3 of 10 seeds", cut))
        row = judged(result, runs)[0]
        assert (row.verdict.word, row.interval, row.verdict.margin) == ("reduced", None, None)
        assert row.difference == pytest.approx(-0.007)
        assert any(f"reduced, not the published setting: 3 of 10 seeds, {cut}" in r for r in remarks_of(row))
    runs = records(tests=(), failed=("oom", "oom"))
    result = make_result(ET, runs)
    row = judged(result, runs)[0]
    assert (status_of(row.state), row.verdict.word, row.summary.mean) == ("oom", "no result", None)
    result = without_data(ET)
    row = judged(result, [])[0]
    assert (status_of(row.state), row.published.mean) == ("not run: data", 0.562)


def test_a_cell_that_misses_only_seeds_is_judged_with_what_it_has_and_never_counted_with_complete_ones():
    runs = records()
    whole, cut = make_result(ET, runs), make_result(ET, runs, reduced=("3 of 10 seeds",))
    begun = changed(whole, seeds=list(range(10)))
    rows = [judged(result, runs)[0] for result in (whole, cut, begun)]
    assert [row.verdict.word for row in rows] == ["reproduced", "consistent", "consistent"]
    # of all ten seeds, however many were run
    assert rows[0].verdict.margin > rows[1].verdict.margin == rows[2].verdict.margin
    assert rows[1].verdict.power < rows[0].verdict.power
    assert [row.verdict.seeds_needed for row in rows[1:]] == [None, None]
    rows = with_claims(rows)
    assert [row.verdict.q_difference is None for row in rows] == [False, True, True]
    assert tally(rows, Rules()).startswith("1 verdicts on 1 published numbers (1 reproduced). ")
    assert "would on average give p below 0.05 in at most 0.05 of them; 0 have it" in tally(rows, Rules())
    assert "Provisional: 2 verdicts, in none of these counts" in tally(rows, Rules())
    one = judged(cut, runs[:1])[0]
    assert one.verdict.word == "consistent"
    assert one.verdict.assumptions[-1].kind == "one run"


def test_a_claim_is_compared_with_our_own_run_of_the_rival_where_there_is_one():
    printed = {"paper": "polynormer", "table": "Table 2", "metric": "roc-auc"}

    def row(model, values, method, reduced=()):
        runs = [make_record(f"polynormer/minesweeper/{model}", s, test=v) for s, v in enumerate(values)]
        result = changed(make_result(f"polynormer/minesweeper/{model}", runs, reduced=reduced), metric="roc-auc")
        return judged(changed(result, published=printed | {"method": method}), runs)[0]

    noise = np.linspace(-0.002, 0.002, 10)
    ours = row("polynormer-r", 0.95 + noise, "Polynormer-r")
    assert lookup("polynormer", "Table 2", "GAT-sep", "minesweeper").mean == 0.9391  # the best other method
    (alone,) = with_claims([ours])
    assert (alone.claim.word, rival_of(alone.claim.rival)) == ("claim holds", "GAT-sep, printed")
    assert alone.claim.interval[0] > 0
    stronger, weaker = row("gat-sep", 0.955 + noise, "GAT-sep"), row("gat-sep-narrow", 0.90 + noise, "GAT-sep")
    held, other, _ = with_claims([ours, stronger, weaker])
    assert (held.claim.word, rival_of(held.claim.rival)) == ("claim fails", "GAT-sep, our run gat-sep")
    assert other.claim is None  # a baseline claims nothing
    unfinished = row("gat-sep", 0.955 + noise, "GAT-sep", reduced=("10 of 20 seeds",))
    assert rival_of(with_claims([ours, unfinished])[0].claim.rival) == "GAT-sep, printed"
    provisional = row("polynormer-r", 0.95 + noise[:3], "Polynormer-r", reduced=("3 of 10 seeds",))
    assert with_claims([provisional])[0].claim.word == "claim holds"
    four = row("polynormer-r", 0.9391 + 0.001 + noise[::3], "Polynormer-r", reduced=("4 of 10 seeds",))
    (near,) = with_claims([four])
    assert near.claim.word == "undecided"
    assert cells(near)[11].startswith("undecided, 4 of 10 runs")
    # its paper does not claim that it is the best there
    ratings = [make_record("polynormer/x/polynormer", s, test=0.6) for s in range(2)]
    other = {"paper": "ppgt", "table": "Table 3", "method": "PPGT", "dataset": "peptides-func", "metric": "ap"}
    result = changed(make_result("polynormer/computer/polynormer", ratings), published=other)
    assert with_claims(judged(result, ratings))[0].claim.word == "not claimed"


def test_a_claim_on_three_runs_of_one_count_is_not_free_of_noise():
    (row,) = judged(make_result(ET, records()), records())
    published = lookup("ppgt", "Table 1", "I2GNN+PPGT", "brec-total", "pairs-distinguished")
    best = max(rival.mean for rival in published.rivals())
    counts = [Summary(mean=best + more, std=0.0, runs=3, wanted=3, full=3) for more in (1.0, 3.0)]
    claims = [with_claims([replace(row, published=published, summary=one)])[0].claim.word for one in counts]
    assert claims == ["undecided", "claim holds"]


def complete(cell, metric, place, p, mean=0.5, verdict="consistent", std=0.01, full=3):
    """A row with the parts of a verdict that counts use."""
    return Row(
        cell, metric, "max", Unit.PERCENT, CellState(ended="ok", wanted=3, done=3),
        Summary(mean=mean, std=std, runs=3, wanted=3, full=full), published=lookup(*place),
        verdict=Verdict(VerdictWord(verdict), (-1.0, 1.0), p_difference=p),
    )  # fmt: skip


def chains(method, metric):
    return "hot", "Table 1", method, "chains", metric


def four_times_one_event():
    """GCN and GAT on chains in two metrics, with the same published digits and the same results of our runs."""
    return [
        complete(f"hot/chains/{model.lower()}", metric, chains(model, metric), p, mean, "better")
        for model in ("GCN", "GAT")
        for metric, p, mean in (("micro-f1", 0.03, 0.51), ("macro-f1", 0.012, 0.355))
    ]


def test_rows_that_depend_on_each_other_are_one_comparison():
    other = complete("hot/chains/mlp", "micro-f1", chains("MLP_{π} (S)", "micro-f1"), 0.3, 0.6)
    texas = ("edge-transformer", "Table 3", "GCN", "texas")
    recipes = [
        complete(f"edge-transformer/texas/{recipe}", "accuracy", texas, 0.2, mean)
        for recipe, mean in (("gcn", 0.6), ("gcn-as-released", 0.61))
    ]
    repeated = [
        complete(f"polynormer/photo/{n}", "accuracy", ("polynormer", table, method, "photo"), 0.2, 0.9 + n)
        for n, (table, method) in enumerate((("Table 1", "Polynormer"), ("Table 7", "Polynormer-v1")))
    ]
    provisional = complete("a/b/c", "accuracy", ("polynormer", "Table 1", "Polynormer", "cs"), 0.1, full=10)
    rows = [*four_times_one_event(), other, provisional, *recipes, *repeated]
    assert comparisons(rows) == [0, 0, 0, 0, 1, None, 2, 2, 3, 3]
    # a row that links two groups merges them
    link = complete("hot/chains/gcn", "micro-f1", chains("MLP_{π} (S)", "micro-f1"), 0.3)
    assert comparisons([*four_times_one_event()[:2], other, link]) == [0, 0, 0, 0]


def test_false_discovery_is_over_the_rows_that_the_sentence_speaks_of():
    rows = four_times_one_event()
    alone = [row.verdict.q_difference for row in with_false_discovery(rows)]
    assert alone == pytest.approx([0.048] * 4)  # one comparison: four times the smallest p
    others = [
        complete(f"polynormer/{name}/p", "accuracy", ("polynormer", "Table 1", "Polynormer", name), 0.9, n)
        for n, name in enumerate(("computer", "photo", "cs", "physics"))
    ]
    together = with_false_discovery([*rows, *others])
    assert together[0].verdict.q_difference == pytest.approx(5 * 0.048)
    text = tally([*rows, *others], Rules())
    assert text.startswith("8 verdicts on 8 published numbers (4 better, 4 consistent). ")
    assert "5 comparisons" in text
    assert "in at most 0.25 of them; 1 have it, 0 of them with q below 0.05" in text


def test_a_number_that_a_paper_publishes_twice_counts_once():
    first, again = (
        complete("polynormer/photo/polynormer", "accuracy", ("polynormer", table, method, "photo"), 0.2)
        for table, method in (("Table 1", "Polynormer"), ("Table 7", "Polynormer-v1"))
    )
    assert tally([first, again], Rules()).startswith("2 verdicts on 1 published numbers (2 consistent). ")


def test_the_count_of_reproduced_numbers_states_how_many_are_on_generated_data():
    ours, texas = chains("Ours (S)", "micro-f1"), ("edge-transformer", "Table 3", "GCN", "texas")
    easy = complete("hot/chains/hot-sparse", "micro-f1", ours, 1.0, 1.0, "reproduced", std=0.0)
    real = complete("e/texas/gcn", "accuracy", texas, 1.0, 0.6, "reproduced")
    both, alone = tally([easy, real], Rules()), tally([real], Rules())
    assert "Of the 2 reproduced, 1 are on generated data (chains); in 1 of these all runs have the same value." in both
    assert "Of the 1 reproduced, 0 are on generated data." in alone


def test_a_row_whose_epoch_was_chosen_on_test_counts_nowhere():
    rows = four_times_one_event()
    marked = [replace(row, chosen_on_test=True) for row in rows]
    assert comparisons([*marked, *rows])[: len(rows)] == [None] * len(rows)
    assert {row.verdict.q_difference for row in with_false_discovery(marked)} == {None}
    assert tally([*rows, *marked], Rules()) == tally(rows, Rules())
    assert tally(marked, Rules()).startswith("0 verdicts on 0 published numbers")
