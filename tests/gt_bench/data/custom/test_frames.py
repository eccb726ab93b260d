"""Tables in memory and Parquet are read as the CSV files of the same content, and mistakes in them are named."""

import datetime
import sys
from decimal import Decimal
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

from gt_bench.data.custom.frames import read_parquet, tables_of, to_csv
from gt_bench.data.custom.readers import Given, Reader
from gt_bench.data.custom.splits import section_of
from gt_bench.data.custom.table import read_columns
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.custom_data import mine, packed

NODES = pd.DataFrame(
    {
        "id": [f"n{i}" for i in range(30)],
        "y": pd.array([None if i == 29 else ["no", "yes"][i % 2] for i in range(30)]),
        "price": [float("nan") if i == 4 else 1 / (i + 1) for i in range(30)],
        "level": pd.array([None if i == 7 else i % 3 for i in range(30)], dtype="Int64"),
        "big": [i * 1e19 for i in range(30)],
        "flag": [i % 4 == 0 for i in range(30)],
        "day": [pd.Timestamp("2021-01-01") + pd.Timedelta(days=i) for i in range(30)],
    }
)
EDGES = pd.DataFrame(
    {
        "source": [f"n{i}" for i in range(30)],
        "target": [f"n{(i * 7) % 30}" for i in range(30)],
        "weight": np.float32(0.1),
    }
)


class Polars:
    """What is read of a polars DataFrame, which is not among the dependencies."""

    columns: list[str] = []

    def __init__(self, frame: pd.DataFrame):
        self.frame, self.columns = frame, list(frame.columns)

    def __getitem__(self, name: str):
        values = [
            None if value is pd.NaT or (value != value) is True else value for value in self.frame[name].to_list()
        ]
        return type(
            "Series",
            (),
            {"to_list": lambda _: [v.to_pydatetime() if isinstance(v, pd.Timestamp) else v for v in values]},
        )()


Polars.__module__ = "polars.dataframe.frame"


def arrays(data, level="node", column=None) -> dict:
    source = data if isinstance(data, Path) else Given(lambda: data, "", "here")
    reader = Reader(source, level, (0.6, 0.2, 0.2), 1, 0, section=column and section_of(column))
    (block,) = reader.blocks()
    return block | {"remarks": reader.remarks, "labels": reader.labels}


def assert_same(one: dict, two: dict) -> None:
    assert one.keys() == two.keys()
    for key in one.keys() - {"remarks"}:
        np.testing.assert_array_equal(one[key], two[key])
        assert np.asarray(one[key]).dtype == np.asarray(two[key]).dtype


def test_a_frame_is_read_as_its_csv_file(tmp_path):
    NODES.to_csv(tmp_path / "nodes.csv", index=False)
    EDGES.to_csv(tmp_path / "edges.csv", index=False)
    text = (tmp_path / "nodes.csv").read_text().replace("True", "1").replace("False", "0")
    (tmp_path / "nodes.csv").write_text(text)
    expected = arrays(tmp_path, column="temporal:day")
    found = arrays({"nodes": NODES, "edges": EDGES}, column="temporal:day")
    assert [str(text)[:10] for text in found["by"]] == [str(text)[:10] for text in expected["by"]]
    assert_same({**found, "by": 0}, {**expected, "by": 0})
    assert found["labels"] == ["no", "yes"]
    assert np.isnan(found["x"]).sum() == 1
    assert found["edge_attr"][0, 0] == np.float32(0.1)
    assert found["y"][29] == -1


def test_commas_in_numbers_follow_the_rules_of_csv_files():
    """1,500 is not 1.5; 0,5 is a half."""
    edges = pd.DataFrame({"source": [0], "target": [1]})
    thousands = {"nodes": pd.DataFrame({"price": ["1,500", "2,500"], "y": [0, 1]}), "edges": edges}
    with pytest.raises(DatasetError, match="row 0: column price: the comma of 1,500 may be a decimal mark or a thou"):
        arrays(thousands)
    halves = {"nodes": pd.DataFrame({"price": ["0,5", "1,500"], "y": [0, 1]}), "edges": edges}
    assert arrays(halves)["x"].ravel().tolist() == [0.5, 1.5]


def test_polars_and_pyarrow(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    expected = arrays({"nodes": NODES, "edges": EDGES}, column="temporal:day")
    assert_same(arrays({"nodes": Polars(NODES), "edges": Polars(EDGES)}, column="temporal:day"), expected)
    of_arrow = {"nodes": pyarrow.Table.from_pandas(NODES), "edges": pyarrow.Table.from_pandas(EDGES)}
    assert_same(arrays(of_arrow, column="temporal:day"), expected)


def test_real_polars():
    polars = pytest.importorskip("polars")
    frames = {"nodes": polars.from_pandas(NODES), "edges": polars.from_pandas(EDGES)}
    assert_same(arrays(frames, column="temporal:day"), arrays({"nodes": NODES, "edges": EDGES}, column="temporal:day"))
    lazy = {name: frame.lazy() for name, frame in frames.items()}
    assert_same(arrays(lazy, column="temporal:day"), arrays(frames, column="temporal:day"))


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    NODES.to_parquet(tmp_path / "nodes.parquet", index=False)
    EDGES.to_csv(tmp_path / "edges.csv", index=False)
    assert_same(
        arrays(tmp_path, column="temporal:day"), arrays({"nodes": NODES, "edges": EDGES}, column="temporal:day")
    )
    found = packed(tmp_path, tmp_path / "out", split="temporal:day")
    assert found.header.provenance["arguments"]["labels"] == ["no", "yes"]
    digest = mine(tmp_path).digest
    NODES.iloc[::-1].to_parquet(tmp_path / "nodes.parquet", index=False)
    assert mine(tmp_path).digest != digest


def test_parquet_with_targets_of_graphs(tmp_path):
    pytest.importorskip("pyarrow")
    pd.DataFrame({"graph": [0, 0, 1, 1, 1], "z": [0, 1, 1, 0, 2]}).to_parquet(tmp_path / "nodes.parquet", index=False)
    pd.DataFrame({"graph": [0, 1], "source": [0, 2], "target": [1, 0]}).to_parquet(
        tmp_path / "edges.parquet", index=False
    )
    pd.DataFrame({"y": [0.5, None]}).to_parquet(tmp_path / "graphs.parquet", index=False)
    from gt_bench.data.declared import level_in

    assert level_in(tmp_path) == "graph"
    found = arrays(tmp_path, "graph")
    assert found["num_nodes"].tolist() == [2, 3]
    np.testing.assert_array_equal(found["y"], np.array([0.5, np.nan], np.float32))


def test_mistakes_in_parquet(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    EDGES.to_parquet(tmp_path / "edges.parquet", index=False)
    NODES.set_index("id").to_parquet(tmp_path / "nodes.parquet")
    assert "id" in arrays(tmp_path, column="temporal:day")["remarks"][1], "a named index is a column of the file"
    NODES.set_index(np.arange(30) * 7 % 30).to_parquet(tmp_path / "nodes.parquet")
    with pytest.raises(
        DatasetError, match="nodes.parquet: column __index_level_0__ is the index of a DataFrame; write to_parquet"
    ):
        arrays(tmp_path)
    (tmp_path / "nodes.parquet").write_bytes(b"no parquet")
    with pytest.raises(DatasetError, match="nodes.parquet: not a readable Parquet file"):
        arrays(tmp_path)
    NODES.to_csv(tmp_path / "nodes.csv")
    with pytest.raises(DatasetError, match="has nodes.csv and nodes.parquet; remove one"):
        arrays(tmp_path)
    (tmp_path / "nodes.csv").unlink()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        DatasetError, match="reading Parquet needs the package pyarrow.*pip install pyarrow, or save the table as CSV"
    ):
        arrays(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"price": [[1.0, 2.0]] * 30}, r"/nodes: row 0: column price is a list .*; write one number or word per cell"),
        ({"price": [1.5] * 29 + ["cheap"]}, r"/nodes: row 29: column price: 'cheap' is not a number"),
        ({"price": [1.5] * 29 + [float("inf")]}, "/nodes: row 29: column price is inf; a feature is a finite number"),
        ({"id": ["n1"] * 30}, "/nodes: row 1: column id: duplicate identifier n1, first in row 0"),
        ({"id": [None] * 30}, "/nodes: row 0: column id is empty"),
        ({"y": [None] * 30}, "there is no label|every target is empty|targets"),
        ({"level": [-3] * 30}, "/nodes: row 0: column level is -3; whole numbers are categories"),
    ],
)
def test_mistakes_in_frames(tmp_path, change, message):
    data = {"nodes": NODES.drop(columns="day").assign(**change), "edges": EDGES}
    with pytest.raises(DatasetError, match=message):
        packed(lambda: data, tmp_path / "out")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (NODES, "here: one DataFrame is not a graph, which has nodes and edges; expected a DataFrame per table"),
        (
            {"nodes": NODES},
            "here: a dict with the keys 'nodes'; expected a Data of torch_geometric, or a DataFrame per table",
        ),
        (
            {"nodes": NODES, "edges": EDGES, "extra": EDGES},
            "here: a dict with the keys 'nodes', 'edges', 'extra'; expected",
        ),
        ({"nodes": NODES, "edges": [1, 2]}, "here: edges is a list; expected"),
        ({"nodes": NODES, "edges": EDGES.rename(columns={"weight": "source"})}, "duplicate column 'source'"),
        ({"nodes": NODES[[]], "edges": EDGES}, "here/nodes: has no columns"),
        ({"nodes": NODES, "edges": EDGES.rename(columns={"weight": ""})}, "here/edges: a column has no name"),
    ],
)
def test_data_that_are_not_tables_of_a_graph(data, message):
    with pytest.raises(DatasetError, match=message):
        tables_of(data, "here")


def test_kinds_of_cells():
    frame = pd.DataFrame(
        {
            "a": [
                Decimal("12"),
                np.int8(3),
                np.float32(0.5),
                True,
                datetime.date(2021, 5, 1),
                np.datetime64("2021-05-02"),
                pd.NA,
                pd.NaT,
                None,
                "  x ",
            ]
        },
        dtype=object,
    )
    assert tables_of({"nodes": frame, "edges": EDGES}, "here")["nodes"].columns["a"] == [
        "12.0", "3", "0.5", "1", "2021-05-01", "2021-05-02", "", "", "", "x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "columns",
    [{"id": ['a,"b', "c\nd", "é;x"], "Y": ["1", "0", "1"], "note": ["", "0.5", "1.5"]}, {"size": ["0.5", "", "1.5"]}],
)
def test_a_table_survives_its_csv_file(tmp_path, columns):
    table = tables_of({"nodes": pd.DataFrame(columns), "edges": EDGES}, "here")["nodes"]
    (tmp_path / "nodes.csv").write_text(to_csv(table))
    found = read_columns(tmp_path / "nodes.csv", []).columns
    assert found == table.columns == {name.lower(): cells for name, cells in columns.items()}


# networkx


def test_a_networkx_graph():
    graph = nx.Graph()
    graph.add_node("a", y=0, pos=np.array([0.5, 1.0]))
    graph.add_node(("b", 1), y=1, pos=[1.5, 2.0])
    graph.add_node(3, y=0, pos=(2.5, 3.0))
    graph.add_edge("a", 3, weight=0.25)
    graph.add_edge(3, 3, weight=0.75)
    found = arrays(graph)
    assert found["edge_index"].tolist() == [[0, 2, 2], [2, 0, 2]]
    assert found["edge_attr"].ravel().tolist() == [0.25, 0.25, 0.75]
    assert found["x"].tolist() == [[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]]
    assert found["y"].tolist() == [0, 1, 0]
    directed = nx.DiGraph([(0, 1), (1, 2)])
    nx.set_node_attributes(directed, {0: 0, 1: 1, 2: 1}, "y")
    assert arrays(directed)["edge_index"].tolist() == [[0, 1], [1, 2]]


def test_multigraphs_and_missing_attributes():
    graph = nx.MultiGraph([(0, 1), (0, 1), (1, 2)])
    nx.set_node_attributes(graph, {0: 0.5, 2: 1.5}, "size")
    nx.set_node_attributes(graph, {0: 0, 1: 1, 2: 0}, "y")
    found = arrays(graph)
    assert found["edge_index"].shape == (2, 6)
    np.testing.assert_array_equal(found["x"].ravel(), np.array([0.5, np.nan, 1.5], np.float32))


def test_a_list_of_networkx_graphs():
    graphs = [nx.path_graph(n) for n in (2, 3, 4)]
    for number, graph in enumerate(graphs):
        graph.graph |= {"y": number / 2, "scaffold": f"s{number}"}
        nx.set_node_attributes(graph, 1, "kind")
    found = arrays(graphs, "graph", column="grouped:scaffold")
    assert found["num_nodes"].tolist() == [2, 3, 4]
    assert found["num_edges"].tolist() == [2, 4, 6]
    assert found["y"].tolist() == [0.0, 0.5, 1.0]
    assert found["by"].tolist() == ["s0", "s1", "s2"]


def test_a_list_of_networkx_graphs_with_targets_of_nodes():
    graphs = [nx.path_graph(n) for n in (2, 3)]
    for graph in graphs:
        nx.set_node_attributes(graph, {node: node % 2 for node in graph}, "y")
    assert arrays(graphs)["y"].tolist() == [0, 1, 0, 1, 0]
    assert set(tables_of(graphs, "here")) == {"nodes", "edges"}


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.path_graph(3), "here/nodes: no column y .* with the targets; it has id"),
        (nx.Graph(), "here: has no nodes"),
        (nx.Graph([(0, 1, {"source": 2})]), "here: edge 0 - 1: the attribute 'source' has a reserved name; rename it"),
    ],
)
def test_mistakes_in_networkx_graphs(graph, message):
    with pytest.raises(DatasetError, match=message):
        arrays(graph)


def test_torch_data_are_no_tables():
    from torch_geometric.data import Data, HeteroData

    assert tables_of(Data(x=torch.ones(2, 1)), "here") is None
    assert tables_of([Data()], "here") is None
    assert tables_of(HeteroData(), "here") is None
    assert tables_of([], "here") is None


# the index of pandas


ENDS = pd.DataFrame({"source": [0, 1], "target": [1, 2]})


def labelled(index: object = None, **columns: object) -> pd.DataFrame:
    return pd.DataFrame({"y": [0, 1, 0], "f": [0.5, 1.5, 2.5], **columns}, index=index)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (labelled([2, 0, 1]), r"here/nodes: row 0 has the label 2 in the index, .*reset_index\(drop=True\)"),
        (labelled([0, 2, 3]), "here/nodes: row 1 has the label 2 in the index"),
        (labelled(["a", "b", "c"]), r"row 0 has the label a .*reset_index\(names='id'\) if edges name the labels"),
        (labelled(pd.Index([0, 1, 2], name="id")), r"the index \(id\) is not read; make it columns with reset_index"),
        (labelled(pd.MultiIndex.from_tuples([(0, 0), (0, 1), (1, 0)])), r"the index \(MultiIndex\) is not read"),
        (labelled().T.set_axis(["y", "f"]).T.set_axis(pd.MultiIndex.from_product([["a"], ["y", "f"]]), axis=1),
         r"here/nodes: columns are a MultiIndex \(\('a', 'y'\), \.\.\.\); give each column one name"),
    ],
)  # fmt: skip
def test_an_index_that_would_be_lost(nodes, message):
    with pytest.raises(DatasetError, match=message):
        tables_of({"nodes": nodes, "edges": ENDS}, "here")


def test_an_index_without_content():
    edges = ENDS.set_axis([7, 3])  # rows of edges are not named by anything
    assert arrays({"nodes": labelled(), "edges": edges})["edge_index"].tolist() == [[0, 1], [1, 2]]
    nodes = labelled([5, 3, 4], id=[2, 0, 1])  # edges are joined by the column
    assert arrays({"nodes": nodes, "edges": edges})["edge_index"].tolist() == [[1, 2], [2, 0]]


@pytest.mark.parametrize("data", [np.zeros((3, 3)), ["a", "b"], (labelled(), ENDS), None, 3])
def test_what_is_no_graph(data):
    with pytest.raises(DatasetError, match="here.*: found a .*; expected a Data of torch_geometric, a list of them"):
        arrays(data)


def test_the_index_of_a_parquet_file(tmp_path):
    nodes = labelled()
    ENDS.to_parquet(tmp_path / "edges.parquet")
    for frame, column in ((nodes[1:], "range"), (nodes[nodes.f > 1], "stored"), (nodes.set_index("f"), "named")):
        frame.to_parquet(tmp_path / "nodes.parquet")
        if column == "named":  # pandas stores it as a column of this name
            assert "f" in read_parquet(tmp_path / "nodes.parquet").columns
            continue
        with pytest.raises(DatasetError, match=r"nodes.*(row 0 has the label 1|__index_level_0__ is the index)"):
            read_parquet(tmp_path / "nodes.parquet")
    nodes.to_parquet(tmp_path / "nodes.parquet")
    assert len(read_parquet(tmp_path / "nodes.parquet")) == 3
    nodes.assign(id=["a", "b", "c"])[1:].to_parquet(tmp_path / "nodes.parquet")
    assert read_parquet(tmp_path / "nodes.parquet").columns["id"] == ["b", "c"]
