"""Splits that are drawn for user-supplied data: what is in which part, and the error for each mistake."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gt_bench.api.dataset_summary import summary
from gt_bench.config.schema import RecipeError
from gt_bench.data.custom.splits import SplitRows, SplitSection, drawn, section_of
from gt_bench.data.declared import declared
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.custom_data import mine, packed
from tests.refusals import refused

SHARES = (0.6, 0.2, 0.2)


def rows(column=None, count: int = 60, level: str = "node", classes=None, labelled=None) -> SplitRows:
    count = count if column is None else len(column)
    known = np.ones(count, bool) if labelled is None else np.asarray(labelled)
    return SplitRows(level, known, None if column is None else np.asarray(column), classes)


FORMS = {
    "random": {"kind": "random"},
    "random:0.5,0.25,0.25": {"kind": "random", "shares": [0.5, 0.25, 0.25]},
    "temporal:year": {"kind": "temporal", "column": "year"},
    "temporal:year:2018,2020": {"kind": "temporal", "column": "year", "cuts": [2018, 2020]},
    "temporal:t:2018-05-01,2020-01-01": {"kind": "temporal", "column": "t", "cuts": ["2018-05-01", "2020-01-01"]},
    "temporal:year:0.5,0.3,0.2": {"kind": "temporal", "column": "year", "shares": [0.5, 0.3, 0.2]},
    "grouped:customer": {"kind": "grouped", "column": "customer"},
    "k-fold:10": {"kind": "k-fold", "folds": 10},
    "k-fold:5:0.2": {"kind": "k-fold", "folds": 5, "val": 0.2},
    "{kind: temporal, column: 'a:b', cuts: [1, 2]}": {"kind": "temporal", "column": "a:b", "cuts": [1, 2]},
}


@pytest.mark.parametrize("text", FORMS)
def test_forms_of_a_split(text):
    assert section_of(text).content() == FORMS[text]
    assert section_of(FORMS[text]) == section_of(text)


BOTH = {"kind": "temporal", "column": "a", "cuts": [1, 2], "shares": [0.6, 0.2, 0.2]}


@pytest.mark.parametrize(
    ("split", "place", "value", "problem"),
    [
        ("temporary:year", "", "temporary:year", "no kind 'temporary' (did you mean 'temporal'?)"),
        ("temporal:year:2018", "", "temporal:year:2018", "'2018' is not two cuts or three shares"),
        ("grouped:customer:1,2", "", "grouped:customer:1,2", "'1,2' is not three shares"),
        ("k-fold:many", "", "k-fold:many", "'many' is not a whole number"),
        ("k-fold", "", "k-fold", "the number of folds is missing"),
        ("random:a,b,c", "", "random:a,b,c", "'a' is not a number"),
        ("{kind: [", "", "{kind: [", "invalid YAML"),
        ("k-fold:1", "folds", 1, "greater than or equal to 2"),
        ("k-fold:5:1.5", "val", 1.5, "less than 1"),
        ("random:0.6,0.2,0.3", "", None, "add up to 1; got (0.6, 0.2, 0.3)"),
        ("random:0.6,0.4,0", "", None, "must be above 0 and add up to 1; got (0.6, 0.4, 0.0)"),
        ("random:60,20,20", "", None, "write 0.6 for 60 %"),
        (BOTH, "", None, "shares and cuts exclude each other"),
        ({"kind": "random", "folds": 3}, "", None, "kind random has no folds"),
        ({"kind": "grouped", "colum": "a"}, "colum", "a", "unknown key (did you mean 'column'?)"),
    ],
)
def test_a_split_that_cannot_be(split, place, value, problem):
    with refused(RecipeError, place=place, value=value) as error:
        section_of(split)
    assert problem in error.value.problem


BIG = 1700000000000000000


def test_earliest_rows_train_and_latest_rows_test():
    found = drawn(section_of("temporal:year"), rows(np.arange(10)[::-1]), SHARES, 1, 0)
    assert found.codes.tolist() == [[3, 3, 2, 2, 1, 1, 1, 1, 1, 1]]
    assert (found.codes == found.seen).all()
    assert found.stated == "temporal by year: train before 6, val from 6, test from 8"
    year = np.repeat([2015, 2016, 2017, 2018], [50, 5, 20, 25])  # rows of one time are in one part
    found = drawn(section_of("temporal:year"), rows(year), SHARES, 1, 0)
    assert found.codes[0].tolist() == np.repeat([1, 2, 3], [55, 20, 25]).tolist()
    assert "0.55/0.2/0.25" in found.stated


@pytest.mark.parametrize(
    ("texts", "cuts", "expected"),
    [
        (["2019-12-31", "2020-01-01", "2021-01-01T00:00", "2021-02"], ["2020", "2021"], [1, 2, 3, 3]),
        ([1.5, 2, 1e3, -4], [2, 3.5], [1, 2, 3, 1]),
        ([BIG + 1, BIG + 2, BIG + 3], [BIG + 2, BIG + 3], [1, 2, 3]),
    ],
)
def test_cuts(texts, cuts, expected):
    section = SplitSection(kind="temporal", column="t", cuts=cuts)
    assert drawn(section, rows(texts), SHARES, 1, 0).codes.tolist() == [expected]


UTC = ["2019-12-31", "2020-01-01", "2020-06-01T10:00", "2021-01-01T00:00+02:00"]  # the last one is in 2020
ROW = "column t: node 1 (counted from 0)"


@pytest.mark.parametrize(
    ("column", "split", "place", "remedy"),
    [
        (UTC, "temporal:t:2020-01-01,2021-01-01", "column t", "move them"),
        (["2020", "last week", "2021", "2022"], "temporal:t", ROW, None),
        (["2020-01-01", "2020-02-30", "2021-01-01"], "temporal:t", ROW, None),
        (["2020-01-01", "2020-02-01", "2020-03-01"], "temporal:t:red,blue", "column t", None),
        ([1, 2, 3], "temporal:t:1,x", "column t", None),
        ([1, 2, 3], "temporal:t:3,1", "", None),
        ([1, 2, 3], "temporal:t:0,2", "column t", None),
        ([1, 2, 1, 2], "temporal:t", "column t", None),
        ([1.0, np.nan, 3.0, np.nan], "temporal:t", ROW, None),
        (["2020", "", "2021"], "temporal:t", ROW, None),
        (["a", "b", "a", "b"], "grouped:t", "column t", None),
        (["a", "", "b", "c"], "grouped:t", ROW, None),
    ],
)
def test_columns_that_do_not_split(column, split, place, remedy):
    with refused(DatasetError, place=place, **{"remedy": remedy} if remedy else {}):
        drawn(section_of(split), rows(column), SHARES, 1, 0)


def test_rows_without_a_target_are_in_no_part_and_seen_by_their_time_or_group():
    labelled, times = [True, True, True, False, False, False, True], [1.0, 2.0, 3.0, 1.0, 3.0, np.nan, 1.0]
    found = drawn(section_of("temporal:t:2,3"), rows(times, labelled=labelled), SHARES, 1, 0)
    assert found.codes.tolist() == [[1, 2, 3, 0, 0, 0, 1]]
    assert found.seen.tolist() == [[1, 2, 3, 1, 3, 3, 1]]
    found = drawn(section_of("grouped:g"), rows(["a", "b", "c", "a", "b", "", "c"], labelled=labelled), SHARES, 4, 0)
    assert (found.codes[:, 3:6] == 0).all()
    assert (found.seen[:, 3:] == np.c_[found.codes[:, :2], [[3]] * 4, found.codes[:, 2]]).all()
    alone = drawn(section_of("grouped:g"), rows(["a", "b", "c", "d"], labelled=[True, True, True, False]), SHARES, 1, 0)
    assert alone.seen[0, 3] == 1, "a group without any target is neither val nor test"


@given(st.lists(st.integers(1, 30), min_size=3, max_size=40), st.integers(0, 5))
def test_groups_never_cross_parts(sizes, seed):
    group = np.repeat(np.arange(len(sizes)), sizes)
    for codes in drawn(section_of("grouped:g"), rows(group), SHARES, 2, seed).codes:
        assert set(codes) == {1, 2, 3}
        assert len({*zip(group, codes, strict=True)}) == len(sizes)
        # each part is off by no more than the largest group, unless the last groups had to fill empty parts
        if len(sizes) > 12 and max(sizes) < 0.1 * len(group):
            assert np.abs(np.bincount(codes, minlength=4)[1:] - len(group) * np.array(SHARES)).max() <= 2 * max(sizes)


@pytest.mark.parametrize("stratified", [True, False])
def test_every_row_is_tested_in_one_fold(stratified):
    classes = np.repeat([0, 1, 2], [40, 15, 5])
    found = drawn(section_of("k-fold:5:0.25"), rows(classes=classes if stratified else None), SHARES, 1, 0)
    assert found.codes.shape == (5, 60)
    assert ((found.codes == 3).sum(0) == 1).all()
    for codes in found.codes:
        assert np.bincount(codes).tolist() == [0, 36, 12, 12]
        assert not stratified or all(np.bincount(classes[codes == part]).tolist() == [8, 3, 1] for part in (2, 3))


@given(st.integers(2, 12), st.integers(2, 60), st.integers(0, 3))
def test_folds_of_any_size(folds, count, seed):
    if folds > count or count - -(-count // folds) < 10:  # a tenth of the rest is less than one row
        with refused(DatasetError, value=folds if folds > count else 0.1):
            drawn(section_of(f"k-fold:{folds}"), rows(count=count), SHARES, 1, seed)
        return
    found = drawn(section_of(f"k-fold:{folds}"), rows(count=count), SHARES, 1, seed)
    assert ((found.codes == 3).sum(0) == 1).all()
    assert all(set(codes) == {1, 2, 3} for codes in found.codes)


# through the reader


def shop(folder, header: str = "y,year,size"):
    """40 nodes; four of each year, from 100 on."""
    folder.mkdir(exist_ok=True)
    lines = [f"{i % 2},{100 + i // 4},{i / 7:.3f}" for i in range(40)]
    (folder / "nodes.csv").write_text("\n".join([header, *lines]) + "\n")
    (folder / "edges.csv").write_text("source,target\n" + "".join(f"{i},{(i * 7 + 1) % 40}\n" for i in range(40)))
    return folder


@pytest.mark.parametrize(
    ("column", "options"),
    [
        ("year", {"split": "temporal:year"}),
        ("time", {"split": "temporal"}),
        ("day", {"split": "temporal", "time": "day"}),
    ],
)
def test_rows_are_split_by_a_column_that_is_no_feature(column, options, tmp_path):
    data = packed(shop(tmp_path / "shop", f"y,{column},size"), tmp_path / "out", **options)
    assert (data.header.in_dim, data.header.num_splits) == (1, 1)
    assert [data.split(part).tolist() for part in ("train", "test")] == [[*range(24)], [*range(32, 40)]]
    assert [c["role"] for c in data.header.provenance["columns"] if c["name"] == column] == ["time"]
    assert summary(data.header)[-2:] == [
        "  splits    1: train 24, val 8, test 8 nodes",
        f"            temporal by {column}: train before 106, val from 106, test from 108",
    ]


def test_a_column_that_identifies_rows_can_group_them(tmp_path):
    """A group may be called none, but not be missing."""
    folder = shop(tmp_path / "shop", "y,customer_id,size")
    text = (folder / "nodes.csv").read_text()
    for name, other in (("100", "none"), ("101", "Na"), ("102", "home")):
        text = text.replace(f",{name},", f",{other},")
    (folder / "nodes.csv").write_text(text)
    data = packed(folder, tmp_path / "out", split="grouped:customer_id", num_splits=2)
    assert (data.header.in_dim, data.header.num_splits) == (1, 2)
    codes = data.array("split").view(2, 10, 4)
    assert (codes > 0).all()
    assert (codes == codes[..., :1]).all()
    (folder / "nodes.csv").write_text(text.replace(",home,", ",NA,"))
    remedy = "add it, or remove the target"
    with refused(DatasetError, place="column customer_id: node 8 (counted from 0)", remedy=remedy):
        packed(folder, tmp_path / "out", split="grouped:customer_id", num_splits=2)


def test_the_split_of_the_data_is_replaced_if_another_is_stated(tmp_path):
    folder = shop(tmp_path / "shop")
    with refused(DatasetError, place="split", value="given"):
        packed(folder, tmp_path / "none", split="given")
    head, *lines = (folder / "nodes.csv").read_text().splitlines()
    lines = [f"{line},{('train', 'val', 'test', 'none')[i % 4]}" for i, line in enumerate(lines)]
    (folder / "nodes.csv").write_text("\n".join([head + ",split", *lines]))
    usual, given_, drawn_ = (
        packed(folder, tmp_path / str(number), **declared)
        for number, declared in enumerate([
            {}, {"split": "given", "inductive": True}, {"split": "random:0.5,0.25,0.25", "num_splits": 3},
        ])
    )  # fmt: skip
    assert usual.split("train").tolist() == given_.split("train").tolist() == list(range(0, 40, 4))
    assert given_.array("seen")[0].tolist() == [1, 2, 3, 1] * 10
    assert [len(drawn_.split(part, 2)) for part in ("train", "val", "test")] == [20, 10, 10]


def test_nodes_and_edges_of_inductive_training_are_stated(tmp_path):
    data = packed(shop(tmp_path / "shop"), tmp_path / "out", split="temporal:year:106,108", inductive=True)
    assert data.header.extras == {"seen": "table"}
    assert torch.equal(data.array("seen"), data.array("split"))
    last = torch.maximum(data.array("source").long(), data.array("target").long())
    edges = [int((last < n).sum()) for n in (24, 32, 40)]
    assert summary(data.header)[-1].endswith(
        f"; inductive: training sees 24 nodes and {edges[0]} edges, validation 32 and {edges[1]}, test all 40 and 40 "
        "(the first split)"
    )


def test_a_digest_depends_on_the_split_and_a_stated_random_split_is_the_usual_one(tmp_path):
    folder = shop(tmp_path / "shop")
    splits = [{"split": split} for split in (None, "random", "temporal:year", "k-fold:5")] + [{"inductive": True}]
    assert len({mine(folder, **options).digest for options in splits}) == 5
    usual, stated = (
        packed(folder, tmp_path / str(len(split)), split=split, num_splits=2) for split in (SHARES, "random")
    )
    assert torch.equal(usual.array("split"), stated.array("split"))


def test_an_attribute_or_an_array_splits(tmp_path):
    one = {"x": torch.ones(3, 1), "edge_index": torch.tensor([[0], [1]])}
    graphs = [Data(**one, y=torch.tensor([float(i)]), scaffold=f"s{i // 4}") for i in range(24)]
    data = packed(lambda: graphs, tmp_path / "out", "graph-regression", split="grouped:scaffold")
    codes = data.array("split")[0].view(6, 4)
    assert (codes == codes[:, :1]).all()
    with refused(DatasetError, place="graph 0: split", value="scafold"):
        packed(lambda: graphs, tmp_path / "out", "graph-regression", split="grouped:scafold")
    arrays = {"x": np.ones((9, 2)), "edge_index": np.array([[0], [1]]), "y": np.arange(9) % 2}
    np.savez(tmp_path / "a.npz", **arrays, day=np.array([f"2021-01-0{1 + i}" for i in range(9)]))
    data = packed(tmp_path / "a.npz", tmp_path / "b", split="temporal:day")
    assert [len(data.split(part)) for part in ("train", "val", "test")] == [5, 2, 2]
    with refused(DatasetError, file=str(tmp_path / "a.npz"), place="split", value="week"):
        packed(tmp_path / "a.npz", tmp_path / "b", split="temporal:week")


def test_an_entry_of_datasets_yaml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shop(tmp_path / "shop")

    def read(split):
        entry = f"shop: {{source: shop, task: node-classification, metric: accuracy, split: {split}}}\n"
        (tmp_path / "datasets.yaml").write_text(entry)
        return declared("shop")

    spec = read("{kind: temporal, column: year, cuts: [2006-01-01, 2008-01-01]}")
    assert spec.arguments["reader"].section.cuts == ("2006-01-01", "2008-01-01")
    for split, place in (("{kind: temporal, colum: year}", "colum"), ("[0.6, 0.4]", "shares.2")):
        with refused(RecipeError, file="datasets.yaml", place=f"shop.split.{place}"):
            read(split)
