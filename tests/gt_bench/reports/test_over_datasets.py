"""Methods over datasets: which are compared, their ranks and groups."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gt_bench.leaderboard.row import Row, Summary
from gt_bench.papers.published import lookup
from gt_bench.papers.results_file import papers
from gt_bench.papers.units import Unit
from gt_bench.records.state import CellState
from gt_bench.reports.over_datasets import (
    absent,
    alike,
    all_runs,
    diagram,
    diagrams,
    largest_complete,
    markdown,
    said_of_all,
    sentences,
)
from tests.gt_bench.cells import with_summary


def numbers(**datasets_of):
    """Returns published numbers of methods on datasets; names in capitals are the paper's own."""
    return {
        (name, dataset): SimpleNamespace(own=name.isupper())
        for name, datasets in datasets_of.items()
        for dataset in datasets
    }


def run(cell, mean, place=None, runs=10, digests=(), **more):
    """Returns a row of the leaderboard with ten seeds."""
    summary = Summary((), mean, 0.0, runs, 10, 10, tuple(digests))
    state = CellState(ended="ok", wanted=10, done=runs)
    return Row(cell, "accuracy", "max", Unit.PERCENT, state, summary, published=place and lookup(*place), **more)


def test_the_largest_complete_part_has_a_model_of_the_paper():
    assert largest_complete(numbers(A="12345", b="12345", c="12345", d="123")) == (["A", "b", "c"], list("12345"))
    # seven datasets of three methods are more than five of four
    assert largest_complete(numbers(A="1234567", b="1234567", c="1234567", d="12345"))[1] == list("1234567")
    assert largest_complete(numbers(A="123456", b="123456", c="123456", d="12345"))[1] == list("12345")
    # the largest part without a model of the paper does not count, nor four datasets, nor two methods
    assert largest_complete(numbers(b="1234567", c="1234567", d="1234567", A="1234")) == ([], [])
    assert largest_complete(numbers(A="12345", b="12345", c="12349")) == ([], [])


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([1.0, 1.5, 3.0], [(0, 1)]),
        ([1.0, 1.9, 2.8], [(0, 1), (1, 2)]),
        ([1.0, 1.2, 1.9], [(0, 2)]),
        ([1.0, 2.0, 3.0], []),  # a difference as large as the critical one is significant
        ([2.0, 2.0, 2.0], [(0, 2)]),
    ],
)
def test_groups_are_the_largest_runs_within_the_critical_difference(ranks, expected):
    assert alike(ranks, 1.0) == expected


def test_the_ranks_of_a_paper_and_those_with_our_runs():
    found = diagram("edge-transformer", [])
    assert found.datasets == ("alchemy", "qm9", "cornell", "texas", "wisconsin")
    assert [(one.name, one.own) for one in found.methods][:2] == [("ET", True), ("(2,2)-SpeqNet", False)]
    assert (found.methods[0].rank, found.methods[0].ours, found.runs) == (1.2, None, 0)
    place = ("edge-transformer", "Table 3", "ET", "texas")
    low = run("edge-transformer/texas/edge-transformer", 0.1, place)
    ours = diagram("edge-transformer", [low])
    # last of five instead of first or second on one of five datasets
    assert (ours.methods[0].rank, ours.runs, ours.provisional) == (1.2, 1, 0)
    assert ours.methods[0].ours > 1.2 + 0.5
    assert diagram("edge-transformer", [with_summary(low, runs=3)]).provisional == 1
    # neither a row without a number nor one whose epoch was chosen on test replaces a published number
    without = [with_summary(low, mean=None), replace(low, chosen_on_test=True)]
    assert diagram("edge-transformer", without) == found
    more = run("edge-transformer/texas/other", 0.99, place)
    assert diagram("edge-transformer", [with_summary(low, runs=3), more]).methods[0].ours < 1.5


def test_parts_of_a_dataset_are_one_dataset():
    found = diagrams(papers(), [])
    assert [one.paper for one in found] == ["edge-transformer", "polynormer", "ppgt", "tokengt"]
    assert not any("brec" in name for one in found for name in one.datasets)
    labels = dict.fromkeys(papers(), "") | {"hot": "HOT"}
    assert "fewer than three methods share five datasets" in absent(found, labels)
    assert absent(found, {one.paper: one.paper for one in found}) == ""


def test_the_section_names_every_method_with_its_rank():
    found = diagrams(["polynormer"], [])
    lines = markdown(found, None, {"polynormer": "Polynormer"})
    (row,) = [line for line in lines if line.startswith("| Polynormer |")]
    assert "**Polynormer-r** 1.30, **Polynormer** 2.30, Exphormer 5.50" in row
    assert len(found[0].methods) == row.split(" | ")[2].count(", ") + 1
    assert sentences(found[0])[2].startswith("Not distinguished from Polynormer-r: Polynormer, Exphormer")


def test_all_runs_are_ranked_within_their_suites():
    rows = [run(f"s/{d}/{m}", value) for d in "abc" for m, value in (("good", 0.9), ("bad", 0.1))]
    rows += [run("s/a/test", 1.0, chosen_on_test=True), run("s/b/test", 1.0, chosen_on_test=True)]
    rows += [run(f"other/{d}/good", 0.0) for d in "ab"]  # nothing to compare with
    found = all_runs(rows)
    assert [one.model for one in found.models] == ["good", "bad"]
    assert found.models[0].win_rate == 1.0
    assert len(found.blocks) == 3
    assert all_runs([]) is None
    assert all_runs(rows[:1]) is None


def test_the_sentence_on_all_runs_counts_results_and_names_what_is_left_out():
    rows = [run(f"s/{d}/{m}", value) for d in "abc" for m, value in (("good", 0.9), ("bad", 0.1))]
    rows += [run("s/a/third", 0.5), run("s/b/third", 0.5), run("s/c/once", 0.5)]
    rows += [run(f"t/{d}/{m}", value) for d in "xy" for m, value in (("p", 0.9), ("q", 0.1))]
    said = said_of_all(all_runs(rows))
    assert said.startswith("3 recipes, each with results on two or more of 3 datasets. ")
    assert "1 of 9 results are missing. To count them as worst gives the same order." in said
    assert "Left out, on fewer than 2 datasets with another model: 1 recipe." in said
    assert said.endswith("Left out, no chain of comparisons links them to the others: 2 recipes.")


def test_runs_that_two_suites_share_count_once():
    rows = [run(f"{s}/a/{m}", v, digests=[m]) for s in "st" for m, v in (("good", 0.9), ("bad", 0.1))]
    assert all_runs(rows) is None  # one dataset
    rows += [run("t/b/good", 0.9, digests=["other"]), run("t/b/bad", 0.1, digests=["others"])]
    assert [one.datasets for one in all_runs(rows).models] == [2, 2]
