"""A paper as a whole: which rows count, and the sentences about them."""

from dataclasses import replace

from gt_bench.leaderboard.row import Row, Summary
from gt_bench.leaderboard.whole_paper import judged_numbers, sentence, several_recipes, whole_paper
from gt_bench.papers.published import lookup
from gt_bench.papers.units import Unit
from gt_bench.records.state import CellState
from gt_bench.stats.verdict import Verdict, VerdictWord


def row(method, dataset, effect, table="Table 1", runs=10, half=0.01, high=None, place=None, **changes):
    """A row whose difference is `effect` times half its interval."""
    published = lookup(*place) if place else lookup("polynormer", table, method, dataset)
    interval = (effect - 1) * half, (effect + 1) * half if high is None else high
    return replace(
        Row(
            f"polynormer/{dataset}/m", published.metric, "max", Unit.PERCENT, CellState(ended="ok", wanted=10),
            Summary(mean=published.mean + effect * half, runs=runs, wanted=10, full=10), published=published,
            verdict=Verdict(VerdictWord.CONSISTENT, interval),
        ),
        **changes,
    )  # fmt: skip


def test_each_own_number_counts_once_and_baselines_do_not():
    rows = [
        row("Polynormer", "photo", -0.5),
        row("Polynormer-v1", "photo", -0.5, table="Table 7"),  # the same number
        row("Polynormer", "computer", -0.2, runs=1),
        row("Polynormer", "computer", 0.3, runs=10),  # more runs of it
        row("GCN", "photo", -3.0),
        row("Polynormer", "wikics", -3.0, chosen_on_test=True),
        row("Polynormer", "cs", 0.0),
        row("Polynormer", "physics", -1.0, verdict=None),
    ]
    test = whole_paper("polynormer", rows).every
    assert (test.numbers, test.worse, test.datasets) == (2, 1, 2)
    assert whole_paper("hot", rows).every.numbers == 0


def test_declared_rows_are_tested_and_the_p_value_of_all_stands_next_to_it():
    names = ("computer", "photo", "cs", "physics", "wikics")
    rows = [row(method, name, -0.5) for name in names for method in ("Polynormer", "Polynormer-r")]
    few = whole_paper("polynormer", rows)
    assert (few.final.by_dataset, few.methods) == (None, {"Polynormer": (5, 5), "Polynormer-r": (5, 5)})
    rows += [row("Polynormer", "minesweeper", -0.5, table="Table 2")]
    alone = whole_paper("polynormer", rows)
    assert (alone.final.by_dataset, alone.final) == (2 / 2**6, alone.every)
    # Polynormer-v2 of Table 7 is no final model
    found = whole_paper("polynormer", [*rows, row("Polynormer-v2", "minesweeper", 5.0, table="Table 7")])
    assert found.final == alone.final
    assert found.every.by_dataset > 0.05
    said = sentence(found)
    assert f"{found.final.by_dataset:.2g}" in said
    assert f"{found.every.by_dataset:.2g}" in said
    assert sentence(whole_paper("polynormer", [])) == "No number differs from its published one."


def test_of_complete_recipes_the_described_one_counts_whatever_its_verdict():
    def of(model, runs=10):
        place = ("edge-transformer", "Table 3", "ET", "texas")
        return row("ET", "texas", 0.1, runs=runs, place=place, cell=f"edge-transformer/texas/{model}")

    described, released = of("edge-transformer-as-printed"), of("edge-transformer")
    for rows in ([described, released], [released, described]):
        (taken,) = judged_numbers("edge-transformer", rows).values()
        assert taken.model == "edge-transformer-as-printed"
        (several,) = several_recipes("edge-transformer", rows).values()
        assert [one.model for one in several] == ["edge-transformer-as-printed", "edge-transformer"]
    begun = of("edge-transformer-as-printed", runs=1)
    (taken,) = judged_numbers("edge-transformer", [begun, released]).values()
    assert taken.model == "edge-transformer"


def test_the_share_at_an_end_does_not_change_an_effect():
    whole, cut = (whole_paper("polynormer", [row("Polynormer", "photo", -0.5, high=high)]) for high in (None, 0.002))
    assert whole == cut


def test_an_error_is_worse_if_it_is_larger():
    dataset, method = "ba-equivariant-basis-sparse", "node id. = ORF, type id. = yes"
    place = ("tokengt", "table:equivariant_basis_approximation_std", method, dataset)
    for effect, worse in (0.5, 1), (-0.5, 0):
        assert whole_paper("tokengt", [row(method, dataset, effect, place=place)]).every.worse == worse
