"""Published numbers, found by their names."""

import pytest

from gt_bench.papers.published import lookup, resolve
from gt_bench.papers.results_file import PublishedError, papers, read_entries
from tests.refusals import refused

PAPERS = ("tokengt", "hot", "ppgt", "edge-transformer", "polynormer")
ENTRIES = [entry for paper in papers() for entry in read_entries(paper)]


@pytest.mark.parametrize(
    ("names", "mean", "std", "runs"),
    [
        (("edge-transformer", "Table 3", "ET", "cornell"), 0.657, 0.049, None),
        (("edge-transformer", "Table 3", "GCN", "wisconsin", "accuracy"), 0.694, 0.027, None),
        (("polynormer", "Table 2", "Polynormer-r", "minesweeper", "roc-auc"), 0.9746, 0.0036, 10),
        (("ppgt", "Table 3", "PPGT", "peptides-struct", "mae"), 0.245, 0.0017, 4),
        (("polynormer", "Table 6", "Polynormer", "pokec", "gpu-memory-gb"), 21.54, None, None),
    ],
)
def test_a_published_number_is_found_in_raw_units(names, mean, std, runs):
    found = lookup(*names)
    assert found.mean == pytest.approx(mean, abs=1e-12)
    assert found.std == (None if std is None else pytest.approx(std, abs=1e-12))
    assert found.runs == runs


def test_every_published_number_is_found_by_its_own_names():
    for entry in ENTRIES:
        found = lookup(*(entry[k] for k in ("paper", "table", "method", "dataset", "metric", "split")))
        assert (found.printed, found.oom) == (entry["printed"], entry["oom"])
        scale = 100 if entry["unit"] == "percent" else 1
        assert (found.mean is None) == (entry["mean"] is None)
        assert found.mean is None or found.mean * scale == pytest.approx(entry["mean"], rel=1e-12)
    assert len([entry for entry in ENTRIES if entry["paper"] in PAPERS]) == 907


@pytest.mark.parametrize("position", range(5))
def test_a_name_that_is_not_printed_is_an_error_with_the_nearest(position):
    names = ["edge-transformer", "Table 3", "(2,1)-SpeqNet", "cornell", "accuracy"]
    right = names[position]
    names[position] = right + "x"
    key = ("paper", "table", "method", "dataset", "metric")[position]
    with refused(PublishedError, place=key, value=right + "x") as error:
        lookup(*names)
    assert repr(right) in error.value.problem


def test_several_numbers_ask_for_a_choice_and_the_test_split_is_the_default():
    with refused(PublishedError, value=["metric seconds-per-epoch, split train", "metric gpu-memory-gb, split train"]):
        lookup("polynormer", "Table 6", "Polynormer", "pokec")
    names = (
        "tokengt",
        "table:equivariant_basis_approximation_std",
        "node id. = ORF, type id. = yes",
        "ba-equivariant-basis-dense",
        "l2",
    )
    assert lookup(*names).split == "test"
    assert lookup(*names, "train").split == "train"
    assert lookup(*names, "train").mean != lookup(*names).mean


def test_our_metric_names_and_the_cell_fill_what_a_reference_leaves_out():
    reference = {"paper": "ppgt", "table": "Table 2", "method": "PPGT", "dataset": None, "metric": None}
    assert resolve(reference, "pattern", "balanced-accuracy").metric == "weighted-accuracy"
    assert resolve(reference | {"dataset": "cluster"}, "sbm-cluster", "balanced-accuracy").dataset == "cluster"
    assert resolve(None, "pattern", "accuracy") is None


def test_flags_and_folders_are_read_once_for_all_numbers_of_a_paper(monkeypatch):
    """`gt-bench page` looks up thousands of numbers."""
    from gt_bench.papers import published

    read = []
    monkeypatch.setattr(published, "read_flags", lambda paper: read.append(paper) or [])
    published._published.cache_clear()
    assert len(published.published_of("polynormer")) > 100
    assert len(published.printed_at({"paper": "polynormer"})) > 100
    assert read == ["polynormer"]
    published._published.cache_clear()
