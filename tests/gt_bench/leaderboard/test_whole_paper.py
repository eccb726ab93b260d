"""A paper as a whole: which rows count, and the sentences about them."""

import pytest

from gt_bench.leaderboard.whole_paper import sentence, whole_paper
from gt_bench.papers.published import lookup


def row(method, dataset, effect, table="Table 1", runs=10, half=0.01):
    published = lookup("polynormer", table, method, dataset)
    return {
        "published_place": list(published.place), "difference": effect * half, "interval_low": (effect - 1) * half,
        "interval_high": (effect + 1) * half, "runs": runs, "seeds": 10, "reduced": [],
        "chosen_on_test": False,
    }  # fmt: skip


def test_each_own_number_counts_once_and_baselines_do_not():
    rows = [
        row("Polynormer", "photo", -0.5),
        row("Polynormer-v1", "photo", -0.5, table="Table 7"),  # the same number
        row("Polynormer", "computer", -0.2, runs=1),
        row("Polynormer", "computer", 0.3, runs=10),  # more runs of it
        row("GCN", "photo", -3.0),
        row("Polynormer", "wikics", -3.0) | {"chosen_on_test": True},
        row("Polynormer", "cs", 0.0),
        row("Polynormer", "physics", -1.0) | {"interval_low": None},
    ]
    test = whole_paper("polynormer", rows).all
    assert (test.numbers, test.worse, test.datasets) == (2, 1, 2)
    assert whole_paper("hot", rows).all.numbers == 0


def test_the_sentence_names_methods_and_both_p_values():
    names = ("computer", "photo", "cs", "physics", "wikics")
    rows = [row(method, name, -0.5) for name in names for method in ("Polynormer", "Polynormer-r")]
    assert sentence(whole_paper("polynormer", rows)) == (
        "Taken together, 10 of 10 numbers are worse than published (Polynormer 5 of 5, Polynormer-r 5 of 5), "
        "on 5 datasets: too few for a test of all of them."
    )
    rows += [row("Polynormer", "minesweeper", -0.5, table="Table 2")]
    assert sentence(whole_paper("polynormer", rows)).endswith(
        ": p = 0.031 over 6 datasets, or p = 0.00098 by a sign test that takes them for independent."
    )
    assert sentence(whole_paper("polynormer", [])) == "No number differs from its published one."


def test_an_error_is_worse_if_it_is_larger():
    published = lookup(
        "tokengt",
        "table:equivariant_basis_approximation_std",
        "node id. = ORF, type id. = yes",
        "ba-equivariant-basis-sparse",
    )
    larger = row("Polynormer", "photo", 0.5) | {"published_place": list(published.place)}
    assert whole_paper("tokengt", [larger]).all.worse == 1
    assert whole_paper("tokengt", [larger | {"difference": -0.005}]).all.worse == pytest.approx(0)
