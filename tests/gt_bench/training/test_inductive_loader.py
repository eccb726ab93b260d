"""Inductive training: no node of validation or test reaches a training step, and no node of test a validation."""

import numpy as np
import pytest
import torch

from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import PackedDataset
from gt_bench.data.standin import miniature
from gt_bench.encodings.compute import encode
from gt_bench.experiment.run import Experiment
from gt_bench.training.inductive_loader import visible
from gt_models.batch import GraphBatch
from gt_models.encodings import compute
from tests.gt_bench import runs
from tests.gt_bench.custom_data import mine
from tests.gt_bench.custom_data import packed as pack_source
from tests.refusals import refused

GCN = {"model": {"name": "gcn", "hidden_dim": 8}}


def write(tmp_path, name="own", change=None, **arguments) -> PackedDataset:
    """40 nodes whose first feature is their number; node 39 has no target."""
    rng = np.random.default_rng(0)
    x = np.stack([np.arange(40.0), rng.normal(size=40)], 1)
    edges, day, y = rng.integers(0, 40, (2, 150)), rng.permutation(40), rng.integers(0, 2, 40)
    y[39] = -1
    if change:
        change(x, edges, day)
    (tmp_path / "raw").mkdir(exist_ok=True)
    np.savez(tmp_path / f"raw/{name}.npz", x=x, edge_index=edges, y=y, day=day)
    options = {"split": "temporal:day:20,30", "inductive": True, **arguments}
    return pack_source(tmp_path / f"raw/{name}.npz", tmp_path / "packed" / name, name=name, **options)


def experiment(tmp_path, name="own", **changes) -> Experiment:
    return runs.experiment(tmp_path, name, **GCN | changes)


def test_each_part_sees_its_nodes_and_their_edges(tmp_path):
    packed = write(tmp_path)
    seen, whole = packed.array("seen")[0], packed.batch(torch.tensor([0]))
    loader = experiment(tmp_path).loader(0)
    for part, code in (("train", 1), ("val", 2), ("test", 3)):
        ((batch, rows),) = loader.training(0) if part == "train" else loader.evaluation(part)
        nodes = batch.x[:, 0].long()
        assert nodes.tolist() == [n for n in range(40) if seen[n] <= code]
        assert nodes[rows].tolist() == packed.split(part).tolist(), "rows are the nodes of the part"
        assert torch.equal(batch.y, whole.y[nodes])
        assert torch.equal(batch.x, whole.x[nodes])
        expected = [tuple(edge) for edge in whole.edge_index.t().tolist() if max(seen[edge]) <= code]
        assert [tuple(edge) for edge in nodes[batch.edge_index].t().tolist()] == expected


def test_test_nodes_change_neither_training_nor_validation(tmp_path):
    write(tmp_path, "one")

    def other(x, edges, day):
        late = day >= 30
        x[late] = 1000.0
        edges[:, late[edges].any(0)] = edges[::-1, late[edges].any(0)]

    write(tmp_path, "two", other)
    changes = {"features": {"scale": "standard"}, "encodings": {}}
    one, two = (experiment(tmp_path, name, **changes).run(0)[0].run for name in ("one", "two"))
    assert one.epochs == two.epochs
    assert one.val == two.val


def test_an_unlabelled_node_is_seen_from_its_time_on(tmp_path):
    for day_of_39, code in ((5, 1), (25, 2), (39, 3)):

        def change(x, edges, day, to=day_of_39):
            other = int(np.flatnonzero(day == to)[0])
            day[other], day[39] = day[39], to

        packed = write(tmp_path, f"d{day_of_39}", change)
        assert int(packed.array("seen")[0, 39]) == code
        assert int(packed.array("split")[0, 39]) == 0


def test_encodings_are_those_of_the_graph_that_is_seen(tmp_path):
    packed = write(tmp_path)
    encode(packed, tmp_path / "encodings/own", "rwse", {"steps": 4})
    model = {"name": "gps", "hidden_dim": 8, "num_layers": 1}
    found = experiment(tmp_path, model=model, encodings={"rwse": {"steps": 4}})
    loader = found.loader(0)
    for code, part in enumerate(("train", "val", "test"), 1):
        batch = loader.graph(part)
        bare = visible(packed.batch(torch.tensor([0])), packed.array("seen")[0] <= code)
        for name, value in compute("rwse", bare, graphs=torch.tensor([0]), steps=4).items():
            torch.testing.assert_close(batch.encodings[name], value)
    assert found.versions["encoding rwse"] == 1
    assert found.versions["inductive"] == 1
    assert found.run(0)[0].run.status == "ok"


@pytest.mark.parametrize("batch", [{"parts": 3}, {"targets": 6, "neighbors": [3, 3]}])
def test_parts_and_samples_are_of_the_graph_that_training_sees(tmp_path, batch):
    packed = write(tmp_path)
    visible_nodes = set((packed.array("seen")[0] <= 1).nonzero().flatten().tolist())
    loader = experiment(tmp_path, batch=batch).loader(0)
    targets = []
    for part, rows in loader.training(0):
        assert set(part.x[:, 0].int().tolist()) <= visible_nodes
        targets += part.x[rows, 0].int().tolist()
    assert sorted(targets) == packed.split("train").tolist()


def test_predictions_are_in_the_order_of_the_dataset(tmp_path):
    packed = write(tmp_path)
    loader = experiment(tmp_path).loader(0)
    assert torch.equal(loader.order("test"), packed.split("test"))
    other = loader.on(torch.device("cpu"))
    assert other.graph("val").num_nodes == loader.graph("val").num_nodes


def test_graphs_without_visible_nodes_are_left_out():
    edges, ptr = torch.tensor([[0, 2, 4, 5], [1, 3, 5, 4]]), torch.tensor([0, 2, 4, 6])
    batch = GraphBatch(torch.arange(6.0)[:, None], edges, ptr, torch.arange(4)[:, None])
    found = visible(batch, torch.tensor([True, True, False, False, False, True]))
    assert (found.ptr.tolist(), found.edge_index.tolist(), found.edge_attr.tolist()) == ([0, 2, 3], [[0], [1]], [[0]])


LINKX = {"model": {"name": "linkx", "num_nodes": 40}, "encodings": {"number": {}}}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"subgraphs": {"hops": 1, "max_nodes": 5}, "batch": {"graphs": 4}}, "subgraphs"),
        (LINKX, "encodings.number"),  # weights of single nodes need one graph
    ],
)
def test_what_cannot_be_inductive_is_refused(tmp_path, changes, place):
    write(tmp_path)
    with refused(RecipeError, place=place) as error:
        experiment(tmp_path, **changes)
    assert "is inductive" in error.value.problem


def test_a_miniature_of_inductive_data_is_inductive(tmp_path):
    write(tmp_path)
    options = {"split": "temporal:day:20,30", "inductive": True}
    miniature(mine(tmp_path / "raw/own.npz", name="own", **options), tmp_path / "small/packed/own", tmp_path)
    packed = PackedDataset.open(tmp_path / "small/packed/own")
    assert torch.equal(packed.array("seen"), packed.array("split"))
    assert experiment(tmp_path / "small").run(0)[0].run.status == "ok"
