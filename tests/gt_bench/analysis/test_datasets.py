"""Filters of datasets: by size, task, name and homophily."""

import pytest

from gt_bench.analysis.datasets import Filter, range_in
from gt_bench.config.option_text import OptionError
from tests.conftest import ROOT
from tests.refusals import refused


def test_sizes_tasks_and_names_filter_datasets(monkeypatch):
    monkeypatch.chdir(ROOT)
    accepts = Filter(nodes=(100, 300), tasks=["node-classification"])
    assert accepts.accepts("cornell")
    assert not accepts.accepts("zinc")
    assert not accepts.accepts("ogbn-arxiv")
    assert not Filter(["texas"]).accepts("cornell")
    assert not Filter(graphs=(2, 1e9)).accepts("cornell")


def test_homophily_is_that_of_the_packed_data(project):
    from gt_bench.claims.checks.homophily import class_homophily
    from gt_bench.data.packed import PackedDataset

    packed = PackedDataset.open(project.root / "data/packed/web")
    value = class_homophily(*(packed.array(key).numpy() for key in ("source", "target", "y")))
    assert Filter(homophily=(value - 0.01, value + 0.01)).accepts("web")
    assert not Filter(homophily=(value + 0.01, 1)).accepts("web")
    accepts = Filter(homophily=(0, 1))
    assert not accepts.accepts("cornell")
    assert "homophily needs the data" in accepts.unknown["cornell"]


@pytest.mark.parametrize("text", ["5", "a..b", "..", "1..2..3", ""])
def test_a_range_that_is_none_is_refused(text):
    with refused(OptionError, place="--nodes", value=text):
        range_in("--nodes", text)


def test_ranges():
    assert range_in("--nodes", "10..20.5") == (10, 20.5)
    assert range_in("--nodes", "..20") == (float("-inf"), 20)
    assert range_in("--nodes", "1e3..") == (1000, float("inf"))
    assert range_in("--nodes", None) is None
    with refused(OptionError, place="--nodes", value="2..1", remedy="write 1..2"):
        range_in("--nodes", "2..1")
