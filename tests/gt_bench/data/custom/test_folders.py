"""Folders of OGB and TUDataset: as their own loaders read them, and the error for each mistake."""

import gzip

import numpy as np
import pytest
import torch

from gt_bench.data.custom.description import Description
from gt_bench.data.custom.source import Reader
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.custom_data import mine, packed

SIZES = [3, 2, 4, 3]
YEARS = "temporal:node_year:2012,2014"


def gz(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.write("".join(",".join(map(str, row)) + "\n" for row in rows))


def write_ogb(folder, level="graph", **changed):
    """Four graphs, or one of 12 nodes; edges in one direction."""
    sizes = SIZES if level == "graph" else [12]
    edges = [(i, i + 1) for size in sizes for i in range(size - 1)]
    rows = len(sizes) if level == "graph" else 12
    files = {
        "edge": edges,
        "num-node-list": [(size,) for size in sizes],
        "num-edge-list": [(size - 1,) for size in sizes],
        "node-feat": [(i % 5, i % 2) if level == "graph" else (i / 7, 0.5) for i in range(12)],
        f"{level}-label": [(i % 2,) for i in range(rows)],
        **(
            {"edge-feat": [(i % 3,) for i in range(len(edges))]}
            if level == "graph"
            else {"node_year": [(2010 + i // 2,) for i in range(12)]}
        ),
        **changed,
    }
    for name, content in files.items():
        if content is not None:
            gz(folder / f"raw/{name}.csv.gz", content)
    parts = {"train": [(0,), (1,)], "valid": [(2,)], "test": [(3,)]}
    for part, ids in parts.items():
        gz(folder / f"split/scaffold/{part}.csv.gz", ids)
    return folder


def write_tu(folder, **changed):
    """Two graphs: a triangle, and an edge, each edge in both directions."""
    files = {
        "A": "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 1\n4, 5\n5, 4\n",
        "graph_indicator": "1\n1\n1\n2\n2\n",
        "graph_labels": "1\n-1\n",
        "node_labels": "3\n1\n1\n2\n3\n",
        "edge_labels": "0\n0\n1\n1\n2\n2\n0\n0\n",
        **changed,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if text is not None:
            (folder / f"RINGS_{name}.txt").write_text(text)
    return folder


def arrays(folder, level="graph", **declared) -> dict:
    (block,) = Reader(folder, Description.parsed(declared, "test"), f"{level}-").blocks()
    return block


def task_of(folder) -> str:
    return Reader(folder, Description()).infer_task()


def test_graphs_of_ogb_are_those_of_its_own_reader(tmp_path):
    read = pytest.importorskip("ogb.io.read_graph_raw").read_csv_graph_raw
    folder = write_ogb(tmp_path / "ogbg_mine")
    assert task_of(folder) == "graph-classification"
    expected = read(str(folder / "raw"))
    found = arrays(folder)
    assert found["num_nodes"].tolist() == [graph["num_nodes"] for graph in expected]
    np.testing.assert_array_equal(found["x"], np.concatenate([graph["node_feat"] for graph in expected]))
    np.testing.assert_array_equal(found["edge_attr"], np.concatenate([graph["edge_feat"] for graph in expected]))
    np.testing.assert_array_equal(
        found["edge_index"], np.concatenate([graph["edge_index"] for graph in expected], axis=1)
    )
    assert found["split"].tolist() == [1, 1, 2, 3]
    assert found["y"].tolist() == [0, 1, 0, 1]


def test_nodes_of_ogb_with_its_years(tmp_path):
    folder = write_ogb(tmp_path / "ogbn_mine", "node")
    assert task_of(folder) == "node-classification"
    found = arrays(folder, "node")
    assert found["x"].dtype == np.float32
    assert found["split"].tolist() == [1, 1, 2, 3] + [0] * 8
    assert packed(folder, tmp_path / "out", split=YEARS).split("test").tolist() == [8, 9, 10, 11]
    with pytest.raises(DatasetError):
        arrays(folder, "node", split="temporal:node_yaer")
    digest = mine(folder, split=YEARS).digest
    gz(folder / "raw/node_year.csv.gz", [(2010,)] * 12)
    assert mine(folder, split=YEARS).digest != digest, "files in subfolders count"


def test_several_labels_with_gaps(tmp_path):
    folder = write_ogb(tmp_path / "ogbg_mine", **{"graph-label": [(1, ""), (0, 1), ("", 0), (1, 1)]})
    assert task_of(folder) == "graph-multilabel"
    np.testing.assert_array_equal(arrays(folder)["y"], np.array([[1, np.nan], [0, 1], [np.nan, 0], [1, 1]], np.float32))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num-node-list": None}, "num-node-list.csv.gz: no such file; a dataset of OGB has it"),
        (
            {"graph-label": None},
            "graph-label.csv.gz: no such file; a dataset of OGB has node-label.csv.gz or graph-label",
        ),
        (
            {"graph-label": [("a b",), ("c",), ("d",), ("e",)]},
            "graph-label.csv.gz: row 0, column 0 .* is 'a b'; expected a number",
        ),
        ({"graph-label": [(1,), (), (1,), (0,)]}, "graph-label.csv.gz: line 2 is empty"),
        ({"graph-label": [(1,)]}, "graph-label.csv.gz: has 1 rows, expected 4"),
        ({"node-feat": [(1,)]}, "node-feat.csv.gz: has 1 rows, expected 12"),
        ({"edge": [(0, 1, 2)]}, "edge.csv.gz: has 3 columns, expected 2"),
        ({"edge": [(0, -1)] * 8}, "edge ids must be whole numbers"),
        ({"edge": [(0, 7)] * 8}, "names node 7 of graph 0"),
        ({"num-edge-list": [(1,)] * 4}, "num_edges|edge_index has 8 entries for 4 edges"),
    ],
)
def test_mistakes_in_ogb(tmp_path, changed, message):
    with pytest.raises(DatasetError, match=message):
        packed(write_ogb(tmp_path / "ogbg_mine", **changed), tmp_path / "out", "graph-classification")


def test_splits_of_ogb(tmp_path):
    folder = write_ogb(tmp_path / "ogbg_mine")
    gz(folder / "split/random/train.csv.gz", [(0,)])
    with pytest.raises(DatasetError, match="split: has random, scaffold; keep one, or draw a split: --split random"):
        arrays(folder)
    assert "split" not in arrays(folder, split="k-fold:2"), "not read if another is stated"
    (folder / "split/random/train.csv.gz").unlink()
    (folder / "split/random").rmdir()
    gz(folder / "split/scaffold/test.csv.gz", [(0,)])
    with pytest.raises(DatasetError, match="split/scaffold: duplicate id 0 in a split; correct it, or draw a split"):
        arrays(folder)
    gz(folder / "split/scaffold/test.csv.gz", [(99,)])
    with pytest.raises(DatasetError, match="split/scaffold: a split names id 99 of .* rows; correct it"):
        arrays(folder)
    (folder / "split/scaffold/test.csv.gz").unlink()
    with pytest.raises(DatasetError, match="test.csv.gz: no such file; add it, or draw a split"):
        arrays(folder)


def test_the_binary_form_of_ogb_is_named(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/data.npz").write_bytes(b"")
    with pytest.raises(DatasetError, match="data.npz: the binary form of OGB is not read"):
        arrays(tmp_path)


@pytest.mark.parametrize("place", ["", "raw"])
def test_a_tu_dataset_is_that_of_torch_geometric(tmp_path, place):
    from torch_geometric.io import read_tu_data

    folder = tmp_path / "RINGS"
    write_tu(folder / place)
    assert task_of(folder) == "graph-classification"
    found, (data, slices, _) = arrays(folder), read_tu_data(str(folder / place), "RINGS")
    assert found["num_nodes"].tolist() == slices["x"].diff().tolist()
    assert found["num_edges"].tolist() == slices["edge_index"].diff().tolist()
    assert found["y"].tolist() == data.y.tolist()
    assert found["x"].ravel().tolist() == data.x.argmax(1).tolist()
    graph = np.repeat([0, 1], found["num_edges"]).tolist()
    ours = zip(*found["edge_index"].tolist(), found["edge_attr"].ravel().tolist(), graph, strict=True)
    theirs = zip(*data.edge_index.tolist(), data.edge_attr.argmax(1).tolist(), graph, strict=True)
    assert sorted(ours) == sorted(theirs)


def test_attributes_and_targets_of_a_tu_dataset(tmp_path):
    folder = write_tu(
        tmp_path / "RINGS",
        node_attributes="0.5, 1\n1.5, 2\n2.5, 3\n3.5, 4\n4.5, 5\n",
        graph_labels=None,
        graph_attributes="1, 2\n3, 4\n",
    )
    found = arrays(folder)
    assert found["x"].tolist()[0] == [0.5, 1.0, 0.0, 0.0, 1.0]
    assert found["y"].dtype == np.float32
    assert found["y"].tolist() == [[1, 2], [3, 4]]
    assert task_of(folder) == "graph-regression"
    bare = arrays(write_tu(tmp_path / "BARE", node_labels=None, edge_labels=None))
    assert bare["x"].ravel().tolist() == [0] * 5
    assert "edge_attr" not in bare


def test_a_tu_dataset_in_folds(tmp_path):
    count = 20
    folder = write_tu(
        tmp_path / "RINGS",
        A="".join(f"{2 * i + 1}, {2 * i + 2}\n" for i in range(count)),
        graph_indicator="".join(f"{i + 1}\n{i + 1}\n" for i in range(count)),
        graph_labels="".join(f"{i % 2}\n" for i in range(count)),
        node_labels=None,
        edge_labels=None,
    )
    data = packed(folder, tmp_path / "out", "graph-classification", split="k-fold:5")
    assert sorted(torch.cat([data.split("test", fold) for fold in range(5)]).tolist()) == list(range(count))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"graph_indicator": None}, "RINGS_graph_indicator.txt: no such file; a TUDataset has it"),
        ({"graph_indicator": "1\n2\n1\n2\n2\n"}, "graph_indicator.txt: line 3: rows of a graph must be adjacent"),
        ({"graph_indicator": "0\n0\n0\n1\n1\n"}, "graph_indicator.txt: line 1: 0 is not a whole number from 1"),
        ({"A": "1, 2\n2, 9\n"}, "RINGS_A.txt: line 2: 9 is not a whole number from 1 to 5"),
        ({"A": "1, 2\n2, 4\n"}, "RINGS_A.txt: line 2: joins nodes of two graphs"),
        ({"A": "1\n2\n"}, "RINGS_A.txt: has 1 columns, expected 2"),
        ({"graph_labels": None}, "has neither graph_labels nor graph_attributes"),
        ({"graph_labels": "1\n"}, "graph_labels.txt: has 1 rows, expected 2"),
        ({"graph_labels": "1\nring\n"}, "graph_labels.txt: line 2: 'ring' is not a number"),
        ({"node_labels": "1\n"}, "node_labels.txt: has 1 rows, expected 5"),
        ({"node_labels": "1.5\n1\n1\n1\n1\n"}, "node_labels.txt: has a number that is not whole"),
        ({"node_attributes": "1\nnan\n1\n1\n1\n"}, "node_attributes.txt: has a number that is not finite"),
        ({"graph_labels": ""}, "graph_labels.txt: not a readable table"),
        ({"graph_labels": "1\n\n"}, "graph_labels.txt: has 1 rows, expected 2"),
        ({"graph_labels": "\n1\n"}, "graph_labels.txt: line 1 is empty"),
        ({"A": "1, 2\n2, 1\n2, 3\n"}, "RINGS_A.txt: ids go only up to 3 of 5 nodes, and 1 of 2 graphs have no edge"),
        ({"graph_attributes": "0.5\n1.5\n"}, "--target graph_labels or --target graph_attributes"),
    ],
)
def test_mistakes_in_a_tu_dataset(tmp_path, changed, message):
    with pytest.raises(DatasetError, match=message):
        arrays(write_tu(tmp_path / "RINGS", **changed))


def test_a_tu_dataset_has_no_columns(tmp_path):
    with pytest.raises(DatasetError):
        arrays(write_tu(tmp_path / "RINGS"), split="temporal:year")
