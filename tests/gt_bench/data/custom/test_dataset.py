"""User-supplied data (CSV files, an npz file, a torch_geometric dataset), and error messages for mistakes in them."""

import functools
import re
import sys
import textwrap

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.datasets import FakeDataset

import gt_bench.data.families
from gt_bench.data.custom.dataset import METRICS, custom_dataset, prepare
from gt_bench.data.custom.readers import Given
from gt_bench.data.packed import PackedDataset
from gt_bench.tasks import metrics
from gt_bench.tasks.registry import create_task, task_module
from gt_bench.utils.errors import DatasetError
from tests.conftest import ROOT
from tests.gt_bench.custom_data import packed
from tests.gt_bench.data.checks import assert_sound

NODES = "graph,charge,mass\n0,0.5,12.0\n0,-0.5,16\n1,0,12\n1,0,12\n1,1,14\n"
EDGES = "graph,source,target,kind\n0,0,1,2\n0,1,0,2\n1,0,2,0\n1,2,0,0\n"
GRAPHS = "y,split\n1.5,train\n-2.5,test\n"


def write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def test_a_folder_of_csv_files(tmp_path):
    folder = write(tmp_path / "mine", nodes=NODES, edges=EDGES, graphs=GRAPHS)
    dataset = packed(folder, tmp_path / "out", "graph-regression")
    header = dataset.header
    assert (header.in_dim, header.edge_dim, header.out_dim, header.level) == (2, [3], 1, "graph")
    batch = dataset.batch(torch.tensor([1]))
    assert batch.x.tolist() == [[0, 12], [0, 12], [1, 14]]
    assert batch.edge_index.tolist() == [[0, 2], [2, 0]]
    assert batch.edge_attr.tolist() == [[0], [0]]
    assert batch.y.tolist() == [-2.5]
    assert dataset.split("train", 0).tolist() == [0]
    assert dataset.split("test", 0).tolist() == [1]


def test_one_graph_with_classes_and_random_splits(tmp_path):
    nodes = "y,colour\n" + "".join(f"{i % 3},{i % 5}\n" for i in range(50))
    folder = write(tmp_path / "mine", nodes=nodes, edges="source,target\n0,1\n1,0\n")
    options = {"split": (0.6, 0.2, 0.2), "num_splits": 3}
    dataset = packed(folder, tmp_path / "out", **options)
    assert_sound(dataset)
    assert (dataset.header.in_dim, dataset.header.out_dim, dataset.header.split_kind) == ([5], 3, "node")
    assert [dataset.split(part, 2).numel() for part in ("train", "val", "test")] == [30, 10, 10]
    assert not torch.equal(dataset.split("test", 0), dataset.split("test", 1))
    write(folder, edges="source,target\n0,2\n2,0\n")
    assert packed(folder, tmp_path / "out", **options).header.provenance["spec"] != dataset.header.provenance["spec"]


def test_an_npz_file(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)), rng.integers(0, 2, (10, 3)).astype(np.float32)
    np.savez(
        tmp_path / "a.npz", x=x, y=y, num_nodes=[3] * 10, num_edges=[2] * 10, edge_index=np.tile([[0, 1], [1, 0]], 10)
    )
    dataset = packed(tmp_path / "a.npz", tmp_path / "out", "graph-multilabel")
    assert_sound(dataset)
    assert (dataset.header.out_dim, dataset.header.statistics["train"]) == (3, 8)
    np.testing.assert_allclose(dataset.batch(torch.arange(10)).x, x, atol=1e-6)


def test_any_torch_geometric_dataset(tmp_path):
    graphs = FakeDataset(num_graphs=12, avg_num_nodes=9, num_channels=5, edge_dim=2, num_classes=4, task="graph")
    dataset = packed(lambda: graphs, tmp_path / "out", "graph-classification", split=(0.5, 0.25, 0.25))
    assert_sound(dataset)
    for index in (0, 5, 11):
        batch, data = dataset.batch(torch.tensor([index])), graphs[index]
        torch.testing.assert_close(batch.x, data.x)
        assert torch.equal(batch.edge_index, data.edge_index)
        torch.testing.assert_close(batch.edge_attr, data.edge_attr.reshape(len(data.edge_attr), -1))
        assert batch.y.item() == data.y.item()


def test_masks_are_splits(tmp_path):
    parts = torch.randint(0, 3, (20, 4))
    data = Data(x=torch.randn(20, 3), edge_index=torch.randint(0, 20, (2, 30)), y=torch.arange(20) % 2)
    data.train_mask, data.val_mask, data.test_mask = parts == 0, parts == 1, parts == 2
    dataset = packed(lambda: [data], tmp_path / "out")
    assert dataset.header.num_splits == 4
    assert dataset.split("val", 3).tolist() == (parts[:, 3] == 1).nonzero().squeeze(1).tolist()
    data.val_mask = parts <= 1
    with pytest.raises(DatasetError, match="two parts"):
        packed(lambda: [data], tmp_path / "out2")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"graphs": GRAPHS.replace("-2.5", "")},
            r"graphs.csv: line 3: column y is empty; write -1 for an unknown label",
        ),
        ({"edges": EDGES.replace("1,2,0,0", "2,2,0,0")}, "must number the 2 graphs from 0"),
        ({"nodes": NODES.replace("1,1,14", "0,1,14")}, "must be adjacent"),
        ({"graphs": "name\n1\n2\n"}, "no column y"),
        ({"graphs": None}, "graphs.csv: no such file"),
        ({"edges": "source,target\n0,1\n1,0\n"}, r"edges.csv: needs a column graph, as nodes.csv has one"),
        ({"nodes": "mass\n12\n16\n12\n12\n14\n"}, r"nodes.csv: needs a column graph, as edges.csv has one"),
        (
            {"edges": EDGES.replace("0,0,1,2", "0,0.5,1,2")},
            r"edges.csv: line 2: column source is 0.5; edge ids must be whole numbers",
        ),
        (
            {"edges": EDGES.replace("0,0,1,2", f"0,{2**32},1,2")},
            r"edges.csv: line 2: column source is 4294967296; edge ids must be whole numbers",
        ),
        ({"graphs": GRAPHS + "1.5,train\n"}, r"graphs.csv: has 3 rows; nodes.csv has 2 graphs"),
        ({"graphs": "y\n1.5\n"}, r"graphs.csv: has 1 rows; nodes.csv has 2 graphs"),
        ({"graphs": "weight,y\n1,1.5\n0,2\n"}, r"graphs.csv: column weight is neither y"),
        ({"nodes": NODES.replace("\n1,", "\n2,")}, r"nodes.csv: graph 1 has no nodes"),
        ({"nodes": "graph,mass\n"}, r"nodes.csv: has no rows"),
        ({"nodes": NODES.replace("charge", "mass")}, "duplicate column 'mass'"),
    ],
)
def test_mistakes_are_named(change, message, tmp_path):
    files = {"nodes": NODES, "edges": EDGES, "graphs": GRAPHS} | change
    folder = write(tmp_path / "mine", **{name: text for name, text in files.items() if text is not None})
    with pytest.raises(DatasetError, match=message):
        packed(folder, tmp_path / "out", "graph-regression")
    assert not (tmp_path / "out").exists()


def test_wrong_tasks_shares_and_places(tmp_path):
    folder = write(tmp_path / "mine", nodes=NODES, edges=EDGES, graphs="y\n1.5\n2\n")
    with pytest.raises(DatasetError, match="needs whole numbers"):
        packed(folder, tmp_path / "out", "graph-classification")
    with pytest.raises(DatasetError, match="must add up to 1"):
        packed(folder, tmp_path / "out", "graph-regression", split=(0.8, 0.1, 0.2))
    with pytest.raises(DatasetError, match="neither a folder"):
        packed(tmp_path / "nowhere", tmp_path / "out", "graph-regression")


LOOP = {"x": np.eye(3), "edge_index": np.array([[0, 1], [1, 0]]), "y": np.arange(3)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"edge_index": np.array([[0, 1], [1, 0], [1, 2]])},
            r"edge_index has shape \[3, 2\]; expected \[2, E\]; transpose it",
        ),
        ({"edge_index": np.array([0, 1])}, r"edge_index has shape \[2\]; expected \[2, E\]"),
        ({"edge_index": np.array([[0.5, 1], [1, 0]])}, "edge ids must be whole numbers"),
        ({"edge_index": np.array([[2**32, 1], [1, 0]])}, "edge ids must be whole numbers"),
        ({"y": np.array(1)}, "y is .*expected rows of numbers"),
        ({"y": np.array(["a", "b", "c"])}, "y is .*expected rows of numbers"),
        ({"y": np.array(["a", "b", "c"], object)}, None),
        ({"foo": np.arange(3)}, "unknown array 'foo'; optional arrays are num_nodes, num_edges, edge_attr, split, and"),
        ({"edge_atr": np.arange(3)}, "unknown array 'edge_atr' .did you mean 'edge_attr'"),
        ({"train_mask": np.arange(3)}, "unknown array 'train_mask'.*; write masks as split: 1 train, 2 val, 3 test"),
        ({"x": np.array(1.0)}, "x is .*expected rows of numbers"),
        ({"x": np.full((3, 1), 2**33)}, "categories in x .*must be whole numbers"),
        (
            {"num_nodes": np.array([3, 0]), "num_edges": np.array([2, 0])},
            "graph 1 .counted from 0. has no nodes; remove it",
        ),
        ({"num_nodes": np.array([3.5]), "num_edges": np.array([2])}, "num_nodes must be whole numbers"),
        ({"num_nodes": np.array([[3]]), "num_edges": np.array([2])}, "num_nodes has shape .* one number per graph"),
        ({"split": np.array([1, 2, 259])}, "split codes must be whole numbers from 0 to 3"),
    ],
)
def test_wrong_arrays_are_refused(change, message, tmp_path):
    np.savez(tmp_path / "a.npz", **(LOOP | change))
    message = f": {message}" if message else ", array 'y': contains pickled objects, which are not read; save numbers"
    with pytest.raises(DatasetError, match=rf"a\.npz{message}"):
        packed(tmp_path / "a.npz", tmp_path / "out")


def test_a_missing_array_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", x=LOOP["x"], edges=LOOP["edge_index"], y=LOOP["y"])
    with pytest.raises(
        DatasetError, match=r"a\.npz: no array 'edge_index'.*; it has edges, x, y, and needs x, edge_index"
    ):
        packed(tmp_path / "a.npz", tmp_path / "out")


def graph(**change) -> Data:
    return Data(
        **({"x": torch.ones(2, 3), "edge_index": torch.tensor([[0, 1], [1, 0]]), "y": torch.tensor(1.5)} | change)
    )


class Official(list):
    """Graphs with the split of ogb's datasets."""

    def get_idx_split(self):
        raise AssertionError("not read")


def test_a_split_that_is_not_read_is_named(tmp_path):
    """The splits would be drawn without a word, and the result compared with that on the split of the data."""
    graphs = Official(graph(y=torch.tensor(i / 10)) for i in range(30))
    ask = "here: get_idx_split() of the dataset is not read, so that splits are drawn; to use that split, give each "
    assert any(note.startswith(ask) for note in notes_of(graphs, "graph", tmp_path / "a"))
    for number, one in enumerate(graphs):
        one.part = torch.tensor(number // 10)
    assert not any(note.startswith(ask) for note in notes_of(graphs, "graph", tmp_path / "b", "temporal:part:1,2"))
    for one in graphs:
        one.train_mask = torch.tensor([True])
    ask = "here: masks are not read, so that splits are drawn; to use that split, give each Data part"
    assert any(note.startswith(ask) for note in notes_of(list(graphs), "graph", tmp_path / "c"))


def notes_of(data: list, level: str, folder, split=None) -> list[str]:
    source = Given(lambda: data, "", "here")
    spec = custom_dataset("mine", source, task=f"{level}-regression", metric="mae", split=split or (0.6, 0.2, 0.2))
    prepare(spec, {}, folder / "mine")
    return PackedDataset.open(folder / "mine").header.notes


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([graph(x=None, num_nodes=2), graph()], "x of graph 1 is continuous, 3 wide and of graph 0 missing"),
        ([graph(), graph(x=None, num_nodes=2)], "x of graph 1 is missing and of graph 0 continuous, 3 wide"),
        (
            [*[graph(x=None, num_nodes=2)] * 1000, graph(x=torch.ones(2, 1).int())],
            "x of graph 1000 is categorical, 1 wide",
        ),
        (
            [graph(), graph(edge_attr=torch.ones(2))],
            "edge_attr of graph 1 is continuous, 1 wide and of graph 0 missing",
        ),
        ([graph(), graph(y=torch.ones(2))], "y of graph 1 is 2 wide and of graph 0 1 wide"),
        (
            [graph(edge_index=torch.tensor([[0, 1], [1, 0], [1, 1]]))],
            r"graph 0: edge_index has shape \[3, 2\].*transpose it",
        ),
        ([graph(edge_index=torch.tensor([0, 1]))], "graph 0: edge_index has shape"),
        ([graph(edge_attr=torch.ones(3)), graph(edge_attr=torch.ones(1))], "graph 0: edge_attr has 3 rows, expected 2"),
        ([graph(x=torch.ones(0, 3), edge_index=torch.zeros(2, 0))], "graph 0: has no nodes"),
        ([graph(y=None)], "graph 0: a Data without y; a graph needs edge_index and y"),
        (
            [graph(y=None, edge_label=torch.ones(2))],
            "it has edge_label, but user-supplied data need targets per node, per graph or per column of edge_index",
        ),
        (
            [graph(edge_index=None, adj_t=torch.eye(2))],
            r"without edge_index; .*; it has adj_t: remove the transform that makes it",
        ),
        ([graph(x=torch.ones(2, 3).bfloat16())], "x cannot be read .*; use a dense tensor of float32 or int64"),
        (
            [graph(y="mutagenic")],
            r"y is <U9 of shape \[1\]; expected rows of numbers; number classes and categories 0, 1, ...",
        ),
        ([graph(), graph(x=torch.full((2, 3), torch.inf))], "graph 1: x contains an infinite number; replace it"),
        ([], "found no graphs; expected a Data of torch_geometric"),
        (None, "found a NoneType; expected a Data of torch_geometric, a list of them"),
    ],
)
def test_wrong_graphs_are_refused(graphs, message, tmp_path):
    def load():
        return graphs

    with pytest.raises(DatasetError, match=rf"test_dataset\..*load\(\): .*{message}"):
        packed(load, tmp_path / "out", "graph-regression")
    assert not (tmp_path / "out").exists()


def test_masks_and_targets_of_another_length_are_refused(tmp_path):
    data = graph(y=torch.tensor([0, 1]), train_mask=torch.tensor([True, False]))
    data.val_mask, data.test_mask = data.train_mask, torch.tensor([True])
    with pytest.raises(DatasetError, match="with a row for each of the 2 nodes"):
        packed(lambda: [data], tmp_path / "out")
    data.y = torch.tensor(1)
    with pytest.raises(DatasetError, match="y is .*expected rows of numbers"):
        packed(lambda: [data], tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "graph-regresion"}, r"'mine': no task 'graph-regresion' \(did you mean 'graph-regression'"),
        ({"task": "edge-ranking"}, "no task 'edge-ranking'"),
        (
            {"metric": "mea"},
            r"'mine': graph-regression has no metric 'mea' \(did you mean 'm.e'.*expected one of mae, mse",
        ),
        ({"metric": "accuracy"}, "graph-regression has no metric 'accuracy'; expected one of mae, mse"),
        ({"task": "graph-classification"}, "graph-classification has no metric 'mae'; expected one of accuracy"),
        (
            {"task": "graph-multilabel", "metric": "accuracy"},
            "graph-multilabel has no metric 'accuracy'; expected one of ap, roc-auc",
        ),
        ({"num_splits": 0}, "num_splits is 0; expected 1 or more"),
        ({"split": (0.8, 0.2)}, "split is \(0.8, 0.2\); expected the shares of train, val and test"),
        ({"source": functools.partial(list, ())}, "the source is a partial; expected a function written with def"),
    ],
)
def test_invalid_arguments(change, message):
    arguments = {"source": "nowhere", "task": "graph-regression", "metric": "mae"} | change
    with pytest.raises(DatasetError, match=message):
        custom_dataset("mine", **arguments)


def test_tasks_and_metrics_are_those_that_exist(tmp_path):
    for task in METRICS:
        task_module(task)
    of_links = set(METRICS["link-prediction"])
    named = {name for task, names in METRICS.items() if task != "link-prediction" for name in names}
    assert named == set(metrics.METRICS)
    assert of_links == set(create_task("link-prediction", "mrr").directions)
    np.savez(tmp_path / "a.npz", **LOOP)
    with pytest.raises(DatasetError, match="roc-auc needs two classes; the targets have 3"):
        packed(tmp_path / "a.npz", tmp_path / "out", metric="roc-auc")


def test_the_example_of_the_documentation_works(tmp_path, monkeypatch):
    """The catalog finds and prepares the dataset of the first Python block of docs/add_a_dataset.md."""
    from gt_bench.data import registry
    from gt_bench.data.prepare import prepare

    block = re.search(r"```python\n(.*?)```", (ROOT / "docs/add_a_dataset.md").read_text(), re.DOTALL)[1]
    assert len(block.splitlines()) <= 30
    name = re.search(r'custom_dataset\(\s*"([a-z0-9-]+)"', block)[1]
    module = tmp_path / "family/mine_for_a_test.py"  # in a second folder of families
    module.parent.mkdir()
    monkeypatch.setattr(gt_bench.data.families, "__path__", [*gt_bench.data.families.__path__, str(module.parent)])
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "my_molecules", nodes=NODES, edges=EDGES, graphs=GRAPHS)
    try:
        module.write_text(textwrap.dedent(block))
        registry.catalog.cache_clear()
        result = prepare(name, tmp_path / "data")
        assert result.state == "packed"
        assert prepare(name, tmp_path / "data").state == "up to date"
    finally:
        sys.modules.pop("gt_bench.data.mine_for_a_test", None)
        registry.catalog.cache_clear()


@settings(max_examples=80)
@given(data=st.data())
def test_mutated_csv_and_npz_give_data_or_a_clean_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    write(folder / "mine", nodes=NODES, edges=EDGES, graphs=GRAPHS)
    np.savez(folder / "a.npz", x=np.eye(4), y=np.arange(4), edge_index=np.array([[0, 1], [1, 0]]))
    path = data.draw(st.sampled_from([folder / "a.npz", *sorted((folder / "mine").iterdir())]))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        where = data.draw(st.integers(0, len(content)))
        if data.draw(st.booleans()):
            content[where : where + 1] = data.draw(st.binary(max_size=3))
        else:
            del content[where : where + data.draw(st.integers(1, 30))]
    path.write_bytes(content)
    source, task = (path, "node-classification") if path.suffix == ".npz" else (path.parent, "graph-regression")
    try:
        packed(source, folder / "out", task).verify()
    except DatasetError:
        assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("task", "y", "message"),
    [
        (
            "node-classification",
            [0, 1, 10**9, 0],
            "a label is 1000000000; classes are numbered 0, 1, ..., less than 100,000",
        ),
        ("node-classification", [0, 1, -2, 0], "a label is -2; classes are numbered from 0, and -1 is no class"),
        ("node-classification", [1, 1, 1, -1], "all labels are 1; node-classification needs two classes or more"),
        ("node-classification", [-1, -1, -1, -1], "there is no label"),
        ("graph-multilabel", [[7.0, 0.0]] * 4, "a target is 7; labels of graph-multilabel are 0 and 1"),
        ("graph-multilabel", [[0.5, np.nan]] * 4, "a target is 0.5"),
        ("graph-multilabel", [[np.nan, np.nan]] * 4, "every target is empty or NaN"),
        ("graph-regression", [[np.nan]] * 4, "every target is empty or NaN"),
    ],
)
def test_invalid_targets_are_refused(task, y, message, tmp_path):
    arrays = {"x": np.ones((4, 2), np.float32), "edge_index": np.zeros((2, 0), np.int64), "y": np.array(y)}
    if task.startswith("graph-"):
        arrays |= {"num_nodes": np.ones(4, np.int64), "num_edges": np.zeros(4, np.int64)}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DatasetError, match=message):
        packed(tmp_path / "a.npz", tmp_path / "out", task)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("task", "y", "labelled"),
    [
        ("node-classification", [0, 1, -1, 0, 1, 1, -1, 0, 1, 0], [1, 1, 0, 1, 1, 1, 0, 1, 1, 1]),
        ("graph-classification", [0, 1, -1, 0, 1, 1, -1, 0, 1, 0], [1, 1, 0, 1, 1, 1, 0, 1, 1, 1]),
        ("graph-regression", [[0.5, np.nan]] * 4 + [[np.nan, np.nan]] + [[1.0, 2.0]] * 5, [1] * 4 + [0] + [1] * 5),
        ("graph-multilabel", [[0.0, np.nan]] * 4 + [[np.nan, np.nan]] + [[1.0, 1.0]] * 5, [1] * 4 + [0] + [1] * 5),
    ],
)
def test_rows_without_a_target_are_in_no_part(task, y, labelled, tmp_path):
    arrays = {"x": np.ones((10, 2), np.float32), "edge_index": np.zeros((2, 0), np.int64), "y": np.array(y)}
    if task.startswith("graph-"):
        arrays |= {"num_nodes": np.ones(10, np.int64), "num_edges": np.zeros(10, np.int64)}
    np.savez(tmp_path / "drawn.npz", **arrays)
    dataset = packed(tmp_path / "drawn.npz", tmp_path / "out", task, split=(0.5, 0.25, 0.25), num_splits=3)
    for split in range(3):
        parts = [dataset.split(part, split).tolist() for part in ("train", "val", "test")]
        assert sorted(row for part in parts for row in part) == np.flatnonzero(labelled).tolist()
        assert all(parts)
    np.savez(tmp_path / "given.npz", **arrays, split=np.array([[1, 2, 3, 1, 2, 3, 1, 2, 3, 1]]))
    first = labelled.index(0)
    part = ("train", "val", "test")[first % 3]
    message = f"{task.partition('-')[0]} {first} has no target, but is in the {part} part of split 0"
    with pytest.raises(DatasetError, match=message):
        packed(tmp_path / "given.npz", tmp_path / "given", task)


def test_messages_are_short(tmp_path):
    for files in ({"nodes": "y,a\n0," + "x" * 100_000 + "\n"}, {"nodes": "y,a,split\n0,1," + "x" * 100_000 + "\n"}):
        folder = write(tmp_path / "mine", edges="source,target\n0,0\n", **files)
        with pytest.raises(DatasetError) as caught:
            packed(folder, tmp_path / "out")
        assert len(str(caught.value)) < 600
