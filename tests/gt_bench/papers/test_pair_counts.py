"""Published counts of pairs, and which runs are complete for them."""

import pytest

from gt_bench.papers.pair_counts import COUNT, PAIRS, PUBLISHED, counted, is_whole, names_of, pairs_of
from tests.gt_bench.cells import ET, changed, make_record


def record(**told_apart):
    """A run on these pairs, each of which is distinguished or not."""
    pairs = sorted(int(name[1:]) for name in told_apart)
    curves = {"pair": pairs, "distinguished": [told_apart[f"p{pair}"] for pair in pairs]}
    return changed(make_record(ET, 0), run={"epochs": curves})


def test_the_categories_are_the_400_pairs_each_once():
    parts = [PAIRS[name] for name in PAIRS if name != "brec-total"]
    assert sorted(pair for part in parts for pair in part) == sorted(PAIRS["brec-total"]) == list(range(400))
    assert [len(PAIRS[name]) for name in ("brec-basic", "brec-regular", "brec-extension", "brec-cfi")] == [
        60,
        140,
        100,
        100,
    ]


def test_only_a_count_is_of_so_many_pairs():
    assert pairs_of("brec-cfi", COUNT) == 100
    assert pairs_of("brec-total", "accuracy") is None
    assert pairs_of("zinc", COUNT) is None


def test_a_cut_run_has_the_categories_whose_pairs_it_ran():
    basic = record(**{f"p{pair}": pair % 2 for pair in PAIRS["brec-basic"]})
    assert is_whole("brec-basic", basic)
    assert not is_whole("brec-total", basic)
    assert not is_whole("zinc", basic)
    assert not is_whole("brec-basic", make_record(ET, 0))


def test_counts_are_of_the_category_alone_and_accuracy_is_a_share_of_it():
    run = record(**{f"p{pair}": 1 for pair in (0, 1, 2, 260)}, **{f"p{pair}": 0 for pair in (3, 261)})
    assert [counted(name, COUNT, run) for name in ("brec-basic", "brec-cfi", "brec-total")] == [3, 1, 4]
    assert counted("brec-total", "accuracy", run) == pytest.approx(4 / 400)


def test_a_published_count_has_the_name_that_runs_give_it():
    assert names_of("brec-cfi", COUNT) == ["cfi"]
    assert names_of("brec-total", "accuracy") == ["accuracy"]
    assert names_of("zinc", "mae") == []
    assert {place[0] for place in PUBLISHED.values()} == set(PAIRS)
