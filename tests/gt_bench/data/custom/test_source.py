"""Each rule of users' data through CSV files, and each other kind of input once: what is read and what is refused."""

from decimal import Decimal

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch

from gt_bench.data.custom.description import Description
from gt_bench.data.custom.source import Given
from gt_bench.data.declared import spec_from
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.custom.inputs import RING, TABLES, frames, options_in, packed_of, read, source_of
from tests.refusals import refused

ALL = (*TABLES, "networkx", "data", "npz")
MANY = np.arange(30)
SEVEN = [f"{'ABCDEFG'[i % 7]}" for i in range(30)]


@pytest.mark.parametrize("kind", ALL)
def test_a_graph_is_the_same_in_every_kind_of_input(kind, tmp_path):
    expected = packed_of(source_of("csv", frames(), tmp_path), tmp_path / "expected")
    dataset = packed_of(source_of(kind, frames(), tmp_path), tmp_path)
    assert dataset.header.task == "node-classification"
    assert (dataset.header.in_dim, dataset.header.out_dim) == (1, 2)
    batch, other = dataset.batch(torch.tensor([0])), expected.batch(torch.tensor([0]))
    if kind == "networkx":  # nodes in the order of edges
        order = batch.x[:, 0].argsort()
        assert torch.equal(batch.x[order], other.x)
        assert torch.equal(batch.y[order], other.y)
    else:
        for key in ("x", "y", "edge_index"):
            assert torch.equal(getattr(batch, key), getattr(other, key))


# columns that change, the task that is inferred, width of x, width of edge_attr, classes or targets
READ = {
    "a whole number is a quantity": ({"age": MANY // 4}, "node-classification", 2, None, 2),
    "a boolean is a quantity": ({"active": MANY % 3 == 0}, "node-classification", 2, None, 2),
    "words are categories": ({"ward": SEVEN}, "node-classification", 1 + 7, None, 2),
    "a missing category is one more": ({"ward": [*SEVEN[:29], None]}, "node-classification", 1 + 8, None, 2),
    "categories only are not one-hot": ({"ward": SEVEN, "size": None}, "node-classification", [7], None, 2),
    "a missing quantity is missing": ({"age": [np.nan, *range(29)], "size": None}, "node-classification", 1, None, 2),
    "no feature is one category": ({"size": None}, "node-classification", [1], None, 2),
    "labels are words": ({"label": SEVEN}, "node-classification", 1, None, 7),
    "classes need no gaps": ({"label": 3 + MANY % 2 * 4}, "node-classification", 1, None, 2),
    "label may be y": ({"label": None, "y": MANY % 3}, "node-classification", 1, None, 3),
    "names have any case": ({"label": None, "Label": MANY % 3}, "node-classification", 1, None, 3),
    "other numbers are targets": ({"label": np.linspace(0, 1, 30)}, "node-regression", 1, None, 1),
    "several targets": ({"label": None, "y_1": np.linspace(0, 1, 30), "y_2": np.linspace(2, 1, 30)}, "node-regression",
     1, None, 2),
    "a weight is a feature": ({"edges_weight": np.linspace(0, 1, 60)}, "node-classification", 1, 1, 2),
    "kinds of edges": ({"edges_bond": ["a", "b", "c"] * 20}, "node-classification", 1, [3], 2),
    "targets of edges": ({"label": None, "edges_label": MANY.repeat(2) % 3}, "edge-classification", 1, None, 3),
    "time and group are no features": ({"time": MANY, "group": SEVEN}, "node-classification", 1, None, 2),
}  # fmt: skip


@pytest.mark.parametrize("rule", READ)
def test_types_decide(rule, tmp_path):
    changed, task, in_dim, edge_dim, out_dim = READ[rule]
    header = packed_of(source_of("csv", frames(**changed), tmp_path), tmp_path).header
    assert (header.task, header.in_dim, header.edge_dim, header.out_dim) == (task, in_dim, edge_dim, out_dim)
    assert len(header.provenance["columns"]) == 5 + sum(
        (column is not None) - (name in ("id", "size", "label")) for name, column in changed.items()
    )


ACCOUNT = 10_000 + 7 * MANY
# place of the error, columns that change, what is declared, the options that the error offers, and what decides with
# the width of x
REFUSED = {
    "unique whole numbers": ("column account", {"account": ACCOUNT}, {}, {"id", "drop", "categories", "numbers"},
     [({"drop": "account"}, 1), ({"numbers": "account"}, 2), ({"categories": "account"}, 1 + 30)]),
    "unique words": ("column street", {"street": [f"s{i}" for i in MANY]}, {}, {"id", "drop", "categories"},
     [({"drop": ["nodes.street"]}, 1)]),
    "the name of an identifier": ("column dept_id", {"dept_id": MANY % 4}, {}, {"drop", "categories"},
     [({"categories": "dept_id"}, 1 + 4), ({"numbers": "dept_id"}, 2)]),
    "a comma in a number": ("line 2: column f", {"f": ["0,5", "1,5"] * 15}, {}, {"decimal", "thousands", "drop"},
     [({"drop": "f"}, 1)]),
    "a percentage": ("line 2: column f", {"f": ["5%", "7%"] * 15}, {}, {"categories"}, [({"categories": "f"}, 1 + 2)]),
    "a list in a cell": ("line 2: column f", {"f": ["[0, 1]", "[1, 0]"] * 15}, {}, {"drop"}, [({"drop": "f"}, 1)]),
    "a date": ("line 2: column day", {"day": ["2021-05-31", "2021-06-01"] * 15}, {}, {"drop"}, [({"drop": "day"}, 1)]),
    "words among numbers": ("line 3: column f", {"f": ["unknown", "1"] * 15}, {}, {"missing"}, [({"drop": "f"}, 1)]),
    "a word among numbers": ("line 12: column f", {"f": [0.5] * 10 + ["big"] + [1.5] * 19}, {}, {"missing"},
     [({"missing": "big"}, 2)]),
    "y and label": ("", {"y": np.linspace(0, 1, 30)}, {}, {"target"}, [({"target": "label"}, 2), ({"target": "y"}, 2)]),
    "no target": ("", {"label": None, "kind": SEVEN}, {}, {"target", "task"}, [({"target": "kind"}, 1)]),
    "whole numbers as floats": ("column label", {"label": MANY % 2 * 1.0}, {}, {"task"},
     [({"task": "node-classification"}, 1)]),
    "many whole numbers": ("column label", {"label": MANY}, {}, {"task"}, [({"task": "node-regression"}, 1)]),
    "a label of edges and of nodes": ("", {"edges_label": MANY.repeat(2) % 2}, {}, {"task"},
     [({"task": "edge-classification"}, 1)]),
    "a class named NA": ("", {"label": ["NA", "EU"] * 15}, {}, {"missing"}, [({"missing": "?"}, 1)]),
    "a negative class": ("line 2: column label", {"label": MANY % 3 - 1}, {}, set(), []),
    "edges count from 1": ("", {"id": None, "edges_source": 1 + MANY.repeat(2) % 28,
     "edges_target": 2 + MANY.repeat(2) % 28}, {}, {"first-id"}, [({"first_id": 0}, 1), ({"first_id": 1}, 1)]),
    "edges name the node after the last one": (
        "line 60: column source",
        {"id": None, "edges_source": 1 + MANY.repeat(2), "edges_target": 1 + MANY.repeat(2)[::-1]}, {}, {"first-id"},
        [({"first_id": 1}, 1)],
    ),
    "one reverse is missing": ("", {"edges_source": [*range(30), *range(1, 30), 5], "edges_target": [*range(1, 30), 0,
     *range(29), 20]}, {}, {"undirected", "directed"}, [({"undirected": True}, 1), ({"undirected": False}, 1)]),
    "two columns identify": ("", {"ID": MANY[::-1]}, {}, {"id", "drop"}, [({"drop": "ID"}, 1)]),
    "a missing identifier": ("line 31: column id", {"id": [*range(29), None]}, {}, {"missing"}, []),
    "a duplicate identifier": ("line 31: column id", {"id": [*range(29), 28]}, {}, set(), []),
    "an unknown identifier": ("line 2: column source", {"edges_source": 1000 + MANY.repeat(2)}, {}, {"drop"}, []),
    "a missing feature of edges": ("line 2: column w", {"edges_w": [np.nan, *range(59)]}, {}, set(),
     [({"drop": "edges.w"}, 1)]),
    "a target that has a type of its own": ("column label", {"label": SEVEN}, {"task": "node-regression"}, set(), []),
    "a column that does not exist": ("drop", {}, {"drop": "sise"}, set(), []),
    "a split by a column that does not exist": ("time", {}, {"split": "temporal"}, set(), []),
    "a metric of two classes": ("", {"label": SEVEN}, {"metric": "roc-auc"}, set(), []),
    "inductive training on graphs": ("inductive", {}, {"task": "graph-regression", "inductive": True}, set(), []),
    "a column in another role": ("categories", {}, {"categories": "label"}, set(), []),
    "an unknown part of a split": ("line 3: column split", {"split": ["train", "dev", "test"] * 10}, {}, set(), []),
    "splits with a gap": ("", {"split_0": ["train", "val", "test"] * 10, "split_2": "train"}, {}, set(), []),
    "a table of graphs is needed": ("", {}, {"task": "graph-regression"}, set(), []),
    "an infinite feature": ("line 2: column f", {"f": [np.inf, *range(29)]}, {}, set(), [({"drop": "f"}, 1)]),
    "times that float32 cannot distinguish": ("x: column 1", {"f": 1.6e9 + MANY / 10}, {}, set(), [({"drop": "f"}, 1)]),
    "one class": ("", {"label": 1}, {}, set(), []),
}  # fmt: skip


@pytest.mark.parametrize("rule", REFUSED)
def test_ambiguous_tables_are_refused_with_the_option_that_decides(rule, tmp_path):
    place, changed, declared, options, decisions = REFUSED[rule]
    source = source_of("csv", frames(**changed), tmp_path)
    with refused(DatasetError, place=place) as error:
        read(source, **declared)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    assert options <= options_in(error.value)
    for number, (decision, in_dim) in enumerate(decisions):
        assert packed_of(source, tmp_path / str(number), **declared | decision).header.in_dim == in_dim


def test_an_empty_part_of_a_split_is_not_packed(tmp_path):
    source = source_of("csv", frames(split=["train", "test"] * 15), tmp_path)
    spec = spec_from("mine", source, Description())
    with refused(DatasetError, place="split 0") as error:
        spec.prepare(spec, {}, tmp_path / "out")
    assert error.value.problem == "the val part is empty"


def test_look_alike_identifiers_are_equal(tmp_path):
    composed, decomposed = (lambda i: f"Caf\u00e9 {i}"), (lambda i: f"Cafe\u0301\u00a0{i}\u200b")
    tables = frames(id=[composed(i) for i in MANY])
    for end in ("source", "target"):
        tables["edges"][end] = [decomposed(i) for i in tables["edges"][end]]
    batch = packed_of(source_of("csv", tables, tmp_path), tmp_path).batch(torch.tensor([0]))
    assert batch.edge_index.T.tolist() == [list(pair) for pair in [*RING, *((b, a) for a, b in RING)]]


def test_edges_are_joined_by_declared_columns(tmp_path):
    tables = frames(id=None, gene=[f"g{29 - i}" for i in MANY])
    edges = tables["edges"]
    tables["edges"] = pd.DataFrame({"a": [f"g{i}" for i in edges["source"]], "b": [f"g{i}" for i in edges["target"]]})
    source = source_of("csv", tables, tmp_path)
    batch = packed_of(source, tmp_path, id="gene", ends="a,b").batch(torch.tensor([0]))
    assert batch.edge_index[:, 0].tolist() == [29, 28]
    assert batch.x.shape == (30, 1)


@pytest.mark.parametrize("keys", ["numbers", "names", "order"])
def test_graphs_are_joined_by_name_or_number(keys, tmp_path):
    number = {"numbers": lambda g: 7 * g, "names": lambda g: f"m{9 - g}", "order": lambda g: g}[keys]
    tables = {
        "nodes": pd.DataFrame({"graph": [number(i // 3) for i in MANY], "mass": MANY / 7}),
        "edges": pd.DataFrame({
            "graph": [number(g) for g in range(10)] * 2, "source": [0] * 10 + [1] * 10, "target": [2] * 10 + [0] * 10,
        }),
        "graphs": pd.DataFrame({"id": [number(g) for g in range(9, -1, -1)], "label": np.linspace(0.1, 1, 10)}),
    }  # fmt: skip
    if keys == "order":
        tables["graphs"] = tables["graphs"].drop(columns="id")
    dataset = packed_of(source_of("csv", tables, tmp_path), tmp_path)
    assert dataset.header.task == "graph-regression"
    first = dataset.batch(torch.tensor([0]))
    graph = 0 if keys == "order" else 9
    np.testing.assert_allclose(first.x[:, 0], (3 * graph + np.arange(3)) / 7, rtol=1e-6)
    assert first.edge_index.tolist() == [[0, 1], [2, 0]]


@pytest.mark.parametrize(
    ("name", "changed", "file", "place", "problem"),
    [
        ("nodes", lambda t: t.drop(columns="graph"), "nodes", "", "needs a column graph: several tables name graphs"),
        ("edges", lambda t: t.drop(columns="graph"), "edges", "", "needs a column graph, as nodes has one"),
        ("edges", lambda t: t.assign(graph=5), "edges", "line 2: column graph", "graph 5 is not in nodes"),
        ("graphs", lambda t: t.iloc[:1], "nodes", "column graph", "must number the 1 rows of graphs"),
        ("graphs", lambda t: pd.concat([t, t]), "nodes", "column graph", "must number the 4 rows of graphs"),
        ("nodes", lambda t: t.assign(graph=[0, 1, 0, 1, 1, 1]), "nodes", "line 4", "must be adjacent"),
        ("graphs", lambda t: t.assign(volume=[1.0, 2.0]), "graphs", "column volume", "is a feature of a graph"),
        ("nodes", lambda t: t.assign(label=1.0), "nodes", "column label", "targets and splits are those of graphs"),
    ],
)
def test_graphs_that_do_not_fit_are_refused(name, changed, file, place, problem, tmp_path):
    tables = {
        "nodes": pd.DataFrame({"graph": [0, 0, 0, 1, 1, 1], "mass": [0.5, 1, 2, 3, 4, 5]}),
        "edges": pd.DataFrame({"graph": [0, 1], "source": [0, 1], "target": [1, 2]}),
        "graphs": pd.DataFrame({"label": [0.5, 1.5]}),
    }
    source = source_of("csv", tables | {name: changed(tables[name])}, tmp_path)
    with refused(DatasetError, file=str(tmp_path / f"csv/{file}.csv"), place=place) as error:
        read(source, split="k-fold:2")
    assert problem in error.value.problem


CSV = {
    "semicolons": (("sep", ";"), {}, {"sep"}, {"sep": ";"}),
    "tabs": (("sep", "\t"), {}, {"sep"}, {"sep": "tab"}),
    "an encoding": (("encoding", "utf-16"), {}, {"encoding"}, {"encoding": "utf-16"}),
    "decimal commas": (("decimal", ","), {}, {"decimal"}, {"decimal": ","}),
    "a word for missing": (("na_rep", "?"), {"age": [None, *range(29)]}, {"missing"}, {"missing": "?"}),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_target_that_is_no_column_is_named(kind, tmp_path):
    source = source_of(kind, frames(label=None, field=np.arange(30) % 2), tmp_path)
    with refused(DatasetError, value="feild"):
        read(source, target="feild")


@pytest.mark.parametrize("rule", CSV)
def test_options_of_csv_files(rule, tmp_path):
    (key, value), changed, options, declared = CSV[rule]
    for name, table in frames(ward=SEVEN, **changed).items():
        table.to_csv(tmp_path / f"{name}.csv", index=False, **{key: value})
    with pytest.raises(DatasetError) as error:
        read(tmp_path)
    assert options <= options_in(error.value)
    header = packed_of(tmp_path, tmp_path / "a", **declared).header
    assert header.in_dim == 1 + 7 + len(changed)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("# a comment\nid,f,label\n", "line 1"),
        (",f,label\n0,0.5,1\n", "column 1"),
        ("id,f,f\n0,0.5,1\n", ""),
        ("0,0.5,1\n1,0.5,2\n", "line 1"),
        ("id,f,label\n0,0.5\n", "line 2"),
        ("id,f,label\n0,0.5,1,2\n", "line 2"),
        ('id,f,label\n0,"0.5,1\n', ""),
        ("id,f,label\n0,a,1\n\n2,[1 2],0\n", "line 4: column f"),
        ("label\n0\n\n1\n", "line 3"),
        ("", ""),
        ("id,f,label\n", ""),
        ("id,f,label\n0,0.5,\0\n", ""),
    ],
)
def test_files_that_are_no_table(text, place, tmp_path):
    (tmp_path / "nodes.csv").write_text(text)
    (tmp_path / "edges.csv").write_text("source,target\n0,0\n")
    with refused(DatasetError, file=str(tmp_path / "nodes.csv"), place=place):
        read(tmp_path)


def test_a_folder_needs_its_tables_once(tmp_path):
    with refused(DatasetError, file=str(tmp_path / "nodes.csv"), problem="no such file"):
        read(tmp_path)
    for kind in ("csv", "parquet"):
        source_of(kind, frames(), tmp_path)
    (tmp_path / "csv/nodes.parquet").write_bytes((tmp_path / "parquet/nodes.parquet").read_bytes())
    with refused(DatasetError, file=str(tmp_path / "csv"), problem="has nodes.csv and nodes.parquet"):
        read(tmp_path / "csv")
    (tmp_path / "parquet/nodes.parquet").write_bytes(b"PAR1")
    with refused(DatasetError, file=str(tmp_path / "parquet/nodes.parquet")) as error:
        read(tmp_path / "parquet")
    assert "not a readable Parquet file" in error.value.problem


@pytest.mark.parametrize("kind", ["frames", "parquet"])
@pytest.mark.parametrize("other", [{}, {"dept_id": MANY % 4}, {"name": SEVEN}])
def test_an_index_that_edges_may_name_is_refused(kind, other, tmp_path):
    """Also if another column has the name of an identifier, which is none."""
    tables = frames(id=None, **other)
    tables["nodes"] = tables["nodes"][::-1]
    if kind == "parquet":
        for name, table in tables.items():
            table.to_parquet(tmp_path / f"{name}.parquet")
    source = tmp_path if kind == "parquet" else source_of(kind, tables, tmp_path)
    with pytest.raises(DatasetError) as error:
        read(source, **{"categories": list(other)} if other else {})
    assert "reset_index" in str(error.value) or "index=False" in str(error.value)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (frames()["nodes"], "one DataFrame is not a graph, which has nodes and edges"),
        ({"nodes": frames()["nodes"]}, "a mapping of 'nodes': DataFrame"),
        ({"nodes": frames()["nodes"], "edges": 3}, "a mapping of 'nodes': DataFrame, 'edges': int"),
        (nx.Graph(), "has no nodes"),
        (3, "found a int"),
        (None, "found a NoneType"),
        ([], "found no graphs"),
    ],
)
def test_data_that_are_no_tables_are_refused(data, problem):
    with refused(DatasetError, file="here", place="", problem=problem):
        read(Given(lambda: data, "", "here"))


@pytest.mark.parametrize(
    ("nodes", "place", "problem"),
    [
        (frames()["nodes"].set_index("id"), "", "the index (id) is not read"),
        (frames()["nodes"].set_axis([("a", "b"), ("a", "c"), ("d", "e")], axis=1), "", "no column label"),
        (frames(f=[[0, 1]] * 30)["nodes"], "row 0: column f", "is a list ([0, 1])"),
        (frames(f=[1, "a"] * 15)["nodes"], "row 0: column f", "in a column of mixed-integer"),
        (frames(f=pd.date_range("2021-01-01", periods=30))["nodes"], "column f", "has dates"),
    ],
)
def test_frames_that_are_no_tables_are_refused(nodes, place, problem):
    with refused(DatasetError, file="here/nodes", place=place) as error:
        read(Given(lambda: frames() | {"nodes": nodes}, "", "here"))
    assert problem in error.value.problem


def test_types_of_frames_are_kept(tmp_path):
    tables = frames(
        price=[Decimal("1.5")] * 30, ward=pd.Categorical([5, 6, 7] * 10), age=pd.array([None, *range(29)], "Int64")
    )
    assert packed_of(source_of("frames", tables, tmp_path), tmp_path).header.in_dim == 1 + 1 + 3 + 1


def test_networkx_graphs(tmp_path):
    graph = nx.karate_club_graph()
    for node in graph:
        graph.nodes[node].update(label=graph.nodes[node].pop("club"), x=[0.5, float(graph.degree(node))])
    dataset = packed_of(Given(lambda: graph, "", "here"), tmp_path)
    assert (dataset.header.in_dim, dataset.header.edge_dim) == (2, 1)
    assert dataset.header.provenance["arguments"]["labels"] == ["Mr. Hi", "Officer"]
    assert dataset.num_edges == 2 * graph.number_of_edges()
    rings = [nx.cycle_graph(3 + i % 4, create_using=nx.Graph) for i in range(12)]
    for number, ring in enumerate(rings):
        ring.graph["y"] = number / 10
    assert packed_of(Given(lambda: rings, "", "here"), tmp_path / "b").header.task == "graph-regression"
    graph.nodes[0]["id"] = 3
    with refused(DatasetError, file="here", place="node 0", value="id"):
        read(Given(lambda: graph, "", "here"))


def test_columns_are_described(tmp_path):
    tables = frames(ward=[*SEVEN[:29], None], time=MANY, edges_weight=np.linspace(0, 1, 60), edges_note="x")
    columns = packed_of(source_of("csv", tables, tmp_path), tmp_path, drop="note").header.provenance["columns"]
    found = {f"{c['table']}.{c['name']}": (c["role"], c["kind"], c["missing"]) for c in columns}
    assert found == {
        "nodes.id": ("id", "whole number", 0),
        "nodes.size": ("feature", "number", 0),
        "nodes.label": ("label", "class", 0),
        "nodes.ward": ("feature", "category", 1),
        "nodes.time": ("time", "whole number", 0),
        "edges.source": ("source node", "whole number", 0),
        "edges.target": ("target node", "whole number", 0),
        "edges.weight": ("weight", "number", 0),
        "edges.note": ("not used", "", 0),
    }
