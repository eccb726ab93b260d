"""Data objects of torch_geometric and npz files: what they carry is used, or refused with the remedy."""

import functools

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.datasets import FakeDataset
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import RandomLinkSplit

from gt_bench.config.schema import RecipeError
from gt_bench.config.tasks import METRICS
from gt_bench.data.custom.arrays import with_reverse_edges
from gt_bench.data.custom.dataset import custom_dataset
from gt_bench.data.custom.description import Description
from gt_bench.data.custom.source import TASKS, Given, Reader
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.custom_data import packed
from tests.gt_bench.data.checks import assert_sound
from tests.gt_bench.data.custom.inputs import options_in, packed_of, read
from tests.refusals import refused

PARTS = torch.arange(30) % 3


def data(**change) -> Data:
    """30 nodes in a ring, both directions."""
    ring = torch.stack([torch.arange(30), (torch.arange(30) + 1) % 30])
    usual = {"x": torch.randn(30, 3), "edge_index": torch.cat([ring, ring.flip(0)], 1), "y": torch.arange(30) % 2}
    return Data(**{key: value for key, value in (usual | change).items() if value is not None})


def many(count: int = 30, **change) -> list[Data]:
    return [data(y=torch.tensor([i % 2]), **change) for i in range(count)]


def given(found: object) -> Given:
    return Given(lambda: found, "", "here")


def masks(number: int | None = None) -> dict[str, torch.Tensor]:
    parts = PARTS if number is None else torch.stack([PARTS.roll(i) for i in range(number)], 1)
    return {f"{part}_mask": parts == code for code, part in enumerate(("train", "val", "test"))}


def indices(suffix: str, val: str = "val") -> dict[str, torch.Tensor]:
    return {f"{part}_{suffix}": torch.arange(code, 30, 3) for code, part in enumerate(("train", val, "test"))}


class Official(list):
    def get_idx_split(self):
        ids = torch.arange(len(self) if len(self) > 1 else 30)
        return {"train": ids[::3], "valid": ids[1::3], "test": ids[2::3]}


@pytest.mark.parametrize(
    ("found", "splits"),
    [
        (data(**masks()), 1),
        (data(**masks(4)), 4),
        (data(**indices("idx")), 1),
        (data(**indices("idx", "valid")), 1),
        (data(**indices("index")), 1),
        (Official([data()]), 1),
        (Official(many()), 1),
    ],
)
def test_a_split_that_data_carry_is_used(found, splits, tmp_path):
    dataset = packed_of(given(found), tmp_path)
    assert dataset.header.num_splits == splits
    assert [dataset.split(part).tolist() for part in ("train", "val", "test")] == [
        list(range(code, 30, 3)) for code in range(3)
    ]


def test_edge_weights_are_features_of_edges(tmp_path):
    weight = torch.rand(60)
    dataset = packed_of(given(data(edge_weight=weight, edge_attr=torch.rand(60, 2))), tmp_path)
    assert dataset.header.edge_dim == 3
    torch.testing.assert_close(dataset.batch(torch.tensor([0])).edge_attr[:, 2], weight)


USED_WITH = {
    "masks that overlap": (data(**masks() | {"val_mask": PARTS <= 1}), {"drop"}, {"drop": ",".join(masks())}),
    "a mask is missing": (data(train_mask=PARTS == 0), {"drop"}, {"drop": "train_mask"}),
    "an attribute that no model reads": (data(pos=torch.rand(30, 2)), {"drop"}, {"drop": "pos"}),
    "masks of graphs": (many(train_mask=torch.tensor([True])), {"drop"}, {"drop": "train_mask"}),
    "a split of edges": (data(train_pos_edge_index=torch.zeros(2, 3, dtype=torch.long)), {"task"},
     {"drop": "train_pos_edge_index"}),
    "one-hot classes of graphs": ([data(y=torch.eye(3)[i % 3][None]) for i in range(30)], {"task"},
     {"task": "graph-multilabel"}),
    "classes as floats": (data(y=torch.arange(30) % 2.0), {"task"}, {"task": "node-classification"}),
    "whole numbers with many values": (data(x=torch.arange(30)[:, None]), {"numbers", "categories"}, {"numbers": "x"}),
    "whole numbers that are categories": (data(x=torch.arange(30)[:, None]), {"numbers", "categories"},
     {"categories": "x"}),
    "ids that are multiples of 1000": (data(x=None, edge_index=data().edge_index * 1000), {"isolated"},
     {"isolated": True, "task": "link-prediction"}),
    "edges that count from 1": (data(edge_index=data().edge_index + 1, num_nodes=30), {"first-id"}, {"first_id": 1}),
    "no edge names node 0": (data(edge_index=1 + data().edge_index % 28), {"first-id"}, {"first_id": 0}),
    "one reverse is missing": (data(edge_index=data().edge_index[:, 1:]), {"undirected", "directed"},
     {"undirected": True}),
    "categories and weights of edges": (data(edge_attr=torch.arange(60) % 3, edge_weight=torch.rand(60)), {"drop",
     "numbers"}, {"drop": "edge_weight"}),
}  # fmt: skip


@pytest.mark.parametrize("rule", USED_WITH)
def test_ambiguous_arrays_are_refused_with_the_option_that_decides(rule, tmp_path):
    found, options, decision = USED_WITH[rule]
    with pytest.raises(DatasetError) as error:
        read(given(found), **{"task": "link-prediction"} if rule.startswith("ids") else {})
    assert options <= options_in(error.value)
    assert_sound(packed_of(given(found), tmp_path, **decision))


EDGES = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
REFUSED = {
    "the output of RandomLinkSplit": (RandomLinkSplit(is_undirected=True)(data())[0], "graph 0: edge_label_index, y"),
    "HeteroData": (HeteroData({"user": {"x": torch.rand(3, 2)}, "item": {"x": torch.rand(3, 2)}}), "graph 0"),
    "a batch": ([Batch.from_data_list(many())], "graph 0"),
    "a DataLoader": (DataLoader(many(), batch_size=4), "graph 0"),
    "no targets": (data(y=None), "graph 0"),
    "no edges": (data(edge_index=None, adj_t=torch.eye(30)), "graph 0"),
    "fewer targets than nodes": (Data(edge_index=EDGES, y=torch.tensor([0, 1, 0]), num_nodes=4), "graph 0"),
    "more targets than nodes that edges name": (Data(edge_index=EDGES, y=torch.tensor([0, 1, 0, 1, 0])), "graph 0"),
    "labels of 0 and 1 of nodes": (data(y=torch.eye(30)), ""),
    "sparse features": (data(x=__import__("scipy.sparse").sparse.csr_matrix(np.eye(30))), "graph 0: x"),
    "features that NumPy does not have": (data(x=torch.ones(30, 2).bfloat16()), "graph 0: x"),
    "words": (data(y=["a"] * 30), "graph 0: y"),
    "infinite features": (data(x=torch.full((30, 1), torch.inf)), "graph 0: x"),
    "missing features of edges": (data(edge_attr=torch.full((60,), torch.nan)), "graph 0: edge_attr"),
    "features of fewer edges": (data(edge_attr=torch.rand(3)), "graph 0: edge_attr"),
    "edges of another shape": (data(edge_index=data().edge_index.T), "graph 0: edge_index"),
    "an unknown node": (data(edge_index=torch.tensor([[0], [30]])), "graph 0: edge 0"),
    "negative ids": (data(edge_index=torch.tensor([[0], [-1]])), "graph 0: edge_index: row 1, column 0"),
    "graphs with other features": ([*many(20), *many(10, x=torch.ones(30, 2))], "graph 20: x"),
    "graphs without features": ([*many(20), *many(10, x=None, num_nodes=30)], "graph 20: x"),
    "graphs with categories": ([*many(1200), *many(1, x=torch.ones(30, 3, dtype=torch.long))], "graph 1200: x"),
    "no graphs": ([], ""),
    "no Data": (3, ""),
    "one class": (data(y=torch.tensor([1] * 29 + [-1])), ""),
    "ids of a split out of range": (data(**indices("idx") | {"test_idx": torch.tensor([30])}), "graph 0: test_idx"),
    "masks of another length": (data(**masks() | {"test_mask": torch.tensor([True])}),
     "graph 0: train_mask, val_mask, test_mask"),
}  # fmt: skip


@pytest.mark.parametrize("rule", REFUSED)
def test_data_that_cannot_be_used_are_refused(rule):
    found, place = REFUSED[rule]
    with refused(DatasetError, place=place) as error:
        read(given(found))
    assert error.value.file in ("here", "dataset 'mine'")


def test_a_task_by_another_name_is_refused_before_the_data_are_read():
    assert set(METRICS) == set(TASKS)
    with refused(DatasetError, value="node classification"):
        Reader(given(data()), Description(), "node classification").level  # noqa: B018


@pytest.mark.parametrize(
    "declared",
    [
        {"target": "price"}, {"id": "name"}, {"graph": "g"}, {"ends": ["a", "b"]}, {"weight": "w"}, {"sep": ";"},
        {"missing": ["-"]}, {"categories": ["kind"]}, {"numbers": ["price"]},
    ],
)  # fmt: skip
def test_a_declaration_of_columns_is_refused_where_there_are_none(declared, tmp_path):
    np.savez(tmp_path / "a.npz", **LOOP)
    (key,) = declared
    for source in (given(data()), tmp_path / "a.npz"):
        with refused(DatasetError, place=key):
            read(source, **declared)
    assert read(given(data()), target="y").task == "node-classification"


def test_what_is_dropped_exists(tmp_path):
    assert read(given(data(extra=torch.ones(30))), drop="extra").task == "node-classification"
    np.savez(tmp_path / "a.npz", **LOOP)
    for source in (given(data()), tmp_path / "a.npz"):
        with refused(DatasetError, place="drop", value="extro"):
            read(source, drop="extro")


@pytest.mark.parametrize(
    ("found", "task"),
    [
        ([data(y=torch.arange(30) % 2), data(y=torch.arange(30) % 2)], "node-classification"),
        ([Data(x=torch.ones(n, 1), edge_index=EDGES % n, y=torch.randn(2)) for n in (2, 4)] * 9, "graph-regression"),
        ([Data(x=torch.ones(1, 1), edge_index=EDGES % 1, y=torch.randn(1))] * 20, "graph-regression"),
        ([data(y=0.5 * i) for i in range(20)], "graph-regression"),
        ([data(y=i % 2) for i in range(20)], "graph-classification"),
        ([data(y=torch.tensor([[i % 2, 1, i % 3]])) for i in range(20)], "graph-regression"),
        ([data(y=torch.tensor([[i % 2, 1, i % 4 > 1]])) for i in range(20)], "graph-multilabel"),
        (data(edge_label=torch.arange(60) // 2 % 3), "edge-classification"),
    ],
)  # fmt: skip
def test_the_task_follows_from_the_targets(found, task):
    assert read(given(found), **{"drop": "y"} if task == "edge-classification" else {}).task == task


def test_any_torch_geometric_dataset(tmp_path):
    graphs = FakeDataset(num_graphs=12, avg_num_nodes=9, num_channels=5, edge_dim=2, num_classes=4, task="graph")
    dataset = packed(lambda: graphs, tmp_path / "out", "graph-classification", split=(0.5, 0.25, 0.25))
    assert_sound(dataset)
    for index in (0, 5, 11):
        batch, one = dataset.batch(torch.tensor([index])), graphs[index]
        torch.testing.assert_close(batch.x, one.x)
        assert torch.equal(batch.edge_index, one.edge_index)
        torch.testing.assert_close(batch.edge_attr, one.edge_attr.reshape(len(one.edge_attr), -1))
        assert batch.y.item() == one.y.item()


def test_an_npz_file(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 4)), rng.integers(0, 2, (10, 3)).astype(np.float32)
    edges = np.tile([[0, 1], [1, 0]], 10)
    np.savez(tmp_path / "a.npz", x=x, y=y, num_nodes=[3] * 10, num_edges=[2] * 10, edge_index=edges)
    dataset = packed(tmp_path / "a.npz", tmp_path / "out", "graph-multilabel")
    assert_sound(dataset)
    assert (dataset.header.out_dim, dataset.header.statistics["train"]) == (3, 8)
    np.testing.assert_allclose(dataset.batch(torch.arange(10)).x, x, atol=1e-6)


LOOP = {"x": np.eye(3), "edge_index": np.array([[0, 1], [1, 0]]), "y": np.arange(3)}


@pytest.mark.parametrize(
    ("change", "place", "value"),
    [
        ({"edge_index": np.array([[0, 1], [1, 0], [1, 2]])}, "edge_index", None),
        ({"edge_index": np.array([0, 1])}, "edge_index", None),
        ({"edge_index": np.array([[0.5, 1], [1, 0]])}, "edge_index", None),
        ({"edge_index": np.array([[2**32, 1], [1, 0]])}, "edge_index: row 0, column 0", 4294967296),
        ({"edge_index": None}, "", "edge_index"),
        ({"y": np.array(1)}, "y", None),
        ({"y": np.array(["a", "b", "c"])}, "y", None),
        ({"y": np.array(["a", "b", "c"], object)}, "array 'y'", None),
        ({"y": np.arange(2)}, "y", 2),
        ({"edge_atr": np.arange(3)}, "", "edge_atr"),
        ({"train_mask": np.arange(3)}, "", "train_mask"),
        ({"x": np.array(1.0)}, "x", None),
        ({"x": np.full((3, 1), 2**33)}, "x: row 0, column 0", 8589934592),
        ({"num_nodes": np.array([3, 0]), "num_edges": np.array([2, 0])}, "graph 1 (counted from 0)", None),
        ({"num_nodes": np.array([3.5]), "num_edges": np.array([2])}, "num_nodes", None),
        ({"num_nodes": np.array([[3]]), "num_edges": np.array([2])}, "num_nodes", None),
        ({"split": np.array([1, 2, 259])}, "split: row 2", 259),
        ({"split": np.array([1, 2])}, "split", 2),
    ],
)
def test_wrong_arrays_are_refused(change, place, value, tmp_path):
    np.savez(tmp_path / "a.npz", **{key: array for key, array in (LOOP | change).items() if array is not None})
    with refused(DatasetError, place=place, value=value):
        packed(tmp_path / "a.npz", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("task", "y", "unlabelled"),
    [
        ("node-classification", [0, 1, 2, -1, 0, 1, 2, 0, 1, 2], [3]),
        ("graph-classification", [0, 1, -1, 0, 1, 1, -1, 0, 1, 0], [2, 6]),
        ("graph-regression", [[0.5, np.nan]] * 4 + [[np.nan, np.nan]] + [[1.0, 2.0]] * 5, [4]),
        ("graph-multilabel", [[0.0, np.nan]] * 4 + [[np.nan, np.nan]] + [[1.0, 1.0]] * 5, [4]),
    ],
)
def test_rows_without_a_target_are_in_no_part(task, y, unlabelled, tmp_path):
    arrays = {"x": np.ones((10, 2), np.float32), "edge_index": np.zeros((2, 0), np.int64), "y": np.array(y)}
    if task.startswith("graph-"):
        arrays |= {"num_nodes": np.ones(10, np.int64), "num_edges": np.zeros(10, np.int64)}
    np.savez(tmp_path / "drawn.npz", **arrays)
    dataset = packed(tmp_path / "drawn.npz", tmp_path / "out", task, split=(0.5, 0.25, 0.25), num_splits=3)
    for split in range(3):
        parts = [dataset.split(part, split).tolist() for part in ("train", "val", "test")]
        assert sorted(row for part in parts for row in part) == sorted({*range(10)} - {*unlabelled})
        assert all(parts)
    np.savez(tmp_path / "given.npz", **arrays, split=np.array([[1, 2, 3, 1, 2, 3, 1, 2, 3, 1]]))
    with refused(DatasetError, place=f"{task.split('-')[0]} {unlabelled[0]}") as error:
        packed(tmp_path / "given.npz", tmp_path / "given", task)
    part = ("train", "val", "test")[unlabelled[0] % 3]
    assert error.value.problem == f"has no target, but is in the {part} part of split 0"


@pytest.mark.parametrize(
    "change",
    [
        {"task": "graph-regresion"},
        {"task": "edge-ranking"},
        {"task": None},
        {"metric": "mea"},
        {"metric": "mae"},
        {"num_splits": 0},
        {"split": (0.8, 0.2)},
        {"split": (0.8, 0.1, 0.2)},
        {"split": "temporary:x"},
        {"source": functools.partial(list, ())},
        {"negatives": 5},
        {"bipartite": True},
        {"task": "graph-classification", "inductive": True},
        {"undirected": "yes"},
        {"first_id": 2},
        {"decimal": "ab"},
        {"tasks": "node-classification"},
    ],
)
def test_wrong_declarations_are_refused(change):
    usual = {"source": data, "task": "node-classification", "metric": "accuracy"} | change
    with pytest.raises((DatasetError, RecipeError)) as error:
        custom_dataset("mine", **usual)
    assert "'mine'" in str(error.value)


def test_every_task_has_a_usual_metric():
    from gt_bench.tasks.registry import create_task

    for task, metrics in METRICS.items():
        for metric in metrics:
            create_task(task, metric)


def test_reverse_edges_are_added_where_they_are_missing():
    block = {
        "num_nodes": np.array([3, 2]),
        "num_edges": np.array([3, 1]),
        "edge_index": np.array([[0, 1, 2, 1], [1, 0, 2, 0]]),
        "edge_attr": np.array([[1.0], [2.0], [3.0], [4.0]]),
    }
    found = with_reverse_edges(block)
    assert found["edge_index"].tolist() == [[0, 1, 2, 1, 0], [1, 0, 2, 0, 1]]
    assert found["edge_attr"][:, 0].tolist() == [1, 2, 3, 4, 4]
    assert found["num_edges"].tolist() == [3, 2]
