"""Configuration ranking on miniatures in TpuGraphs' format: losses, metrics, segments, and training runs."""

import itertools
import math

import numpy as np
import pytest
import torch

from gt_bench.config.schema import RecipeError
from gt_bench.data.families import tpugraphs
from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import get_spec
from gt_bench.tasks.configuration_ranking import (
    CONFIGURED,
    Runtimes,
    best_of_top,
    compress,
    list_mle,
    pairwise_hinge,
    part_of,
    undirected,
)
from gt_bench.tasks.registry import create_task
from gt_bench.training.interfaces import SplitData
from gt_models import GraphBatch
from tests.gt_bench import runs
from tests.gt_bench.data.raw_files import tpu_tar
from tests.refusals import refused

NAMES = {"layout": "tpugraphs-layout-xla-random", "tile": "tpugraphs-layout-tile"}
RECIPE = {
    "model": {"name": "polynormer", "hidden_dim": 8, "num_heads": 2, "num_local_layers": 1, "num_global_layers": 1},
    "batch": {"graphs": 2, "configurations": 3},
    "optimizer": {"name": "adam", "lr": 0.01},
    "epochs": 3,
    "seeds": [0],
}


def learnable(data):
    """Returns runtimes that are a function of the configuration."""
    features = data.get("node_config_feat", data.get("config_feat"))
    sums = features.reshape(len(features), -1)[:, :18].sum(1)
    return data | {"config_runtime": (1000 + 500 * np.tanh(sums / 4)).astype(np.int64)}


def prepare(folder, kind, sizes=(9, 14, 6, 8, 12), edit=learnable):
    tpu_tar(folder / "train.tar", kind, list(sizes), edit=edit)
    tpu_tar(folder / "valid.tar", kind, [11, 7], 1, edit=edit)
    spec = get_spec(NAMES[kind])
    paths = dict(zip([file.path for file in spec.files], (folder / "train.tar", folder / "valid.tar"), strict=True))
    spec.prepare(spec, paths, folder / "packed" / NAMES[kind])
    return PackedDataset.open(folder / "packed" / NAMES[kind])


@pytest.fixture(params=["layout", "tile"])
def packed(request, tmp_path):
    return prepare(tmp_path, request.param)


@pytest.fixture
def experiment(packed, tmp_path):
    return lambda store="store", **changes: runs.experiment(tmp_path, packed.header.name, store, **RECIPE | changes)


def loader_of(experiment, seed=0):
    arrays, batch = (experiment.packed, experiment.encoded, 0), experiment.recipe.batch
    return experiment.task.loader(SplitData(*arrays, batch, seed, torch.device("cpu"), torch.float32))


def test_losses_are_the_written_ones():
    rng = np.random.default_rng(0)
    scores, runtimes = torch.from_numpy(rng.normal(size=7)), torch.tensor([3.0, 1.0, 2.0, 2.5, 5.0, 9.0, 7.0])
    target = Runtimes(runtimes, torch.tensor([4, 4, 4, 4, 1, 1, 1]))
    assert len(target) == 2
    expected = []
    for rows in (range(4), range(4, 7)):
        order = sorted(rows, key=lambda i: -runtimes[i])
        shares = (math.exp(scores[i]) / sum(math.exp(scores[j]) for j in order[k:]) for k, i in enumerate(order))
        expected.append(-sum(map(math.log, shares)))
    assert list_mle(scores, target).item() == pytest.approx(sum(expected) / 2, rel=1e-12)
    expected = []
    for rows in (range(4), range(4, 7)):
        pairs = [(i, j) for i in rows for j in rows if runtimes[i] > runtimes[j]]
        expected.append(sum(max(0.0, 1 - float(scores[i] - scores[j])) for i, j in pairs) / len(pairs))
    assert pairwise_hinge(scores, target).item() == pytest.approx(sum(expected) / 2, rel=1e-12)
    # the true order is the most probable one
    four = Runtimes(runtimes[:4], torch.zeros(4))
    best = min(itertools.permutations(range(4)), key=lambda p: list_mle(torch.tensor(p).double(), four))
    assert best == (3, 0, 1, 2)


def test_measures():
    runtimes, scores = np.array([4.0, 2.0, 8.0, 1.0, 6.0, 5.0, 7.0]), np.array([1.0, 6.0, 2.0, 7.0, 3.0, 4.0, 5.0])
    # the five lowest scores are those of configurations 4, 8, 6, 5, 7
    assert best_of_top(scores, runtimes) == pytest.approx(1 - (4 - 1) / 1)
    assert best_of_top(runtimes, runtimes) == 1
    assert best_of_top(scores, runtimes, top=1) == best_of_top(scores, runtimes)
    task = create_task("configuration-ranking", "ordered-pair-accuracy", None, ["accuracy"])
    # one graph in two batches, and one whose runtimes are all equal
    halves = [Runtimes(torch.tensor(runtimes[a:b]), torch.full((b - a,), 3)) for a, b in ((0, 4), (4, 7))]
    flat = Runtimes(torch.tensor([2.0, 2.0]), torch.tensor([5, 5]))
    outputs = [torch.tensor(scores[:4]), torch.tensor(scores[4:]), torch.tensor([0.0, 1.0]).double()]
    result = task.evaluate(outputs, [*halves, flat])
    assert result["ordered-pair-accuracy"] == tpugraphs.ordered_pair_accuracy(scores, runtimes)
    assert result["accuracy"] == pytest.approx((best_of_top(scores, runtimes) + 1) / 2)
    with pytest.raises(ValueError, match="ordered-pair-accuracy is undefined"):
        task.evaluate([torch.zeros(2)], [flat])


def test_batches_hold_what_the_files_hold(experiment, packed):
    one = experiment()
    kind = "layout" if "config_node" in packed.header.extras else "tile"
    assert one.task.in_dim(packed.header) == 140 + 120 + CONFIGURED[kind]
    (first, rows), *_ = loader_of(one).evaluation("test")
    graph = int(packed.split("test")[0])
    runtimes, features, nodes = tpugraphs.configurations(packed, graph)
    plain = packed.batch(torch.tensor([graph]))
    assert rows is None
    assert first.num_graphs == len(runtimes)
    assert first.y.tolist() == runtimes.tolist()
    assert first.extras["graph"].tolist() == [graph] * len(runtimes)
    edges = undirected(plain.edge_index, plain.num_nodes)
    for copy in range(first.num_graphs):
        x = first.x[first.ptr[copy] : first.ptr[copy + 1]]
        torch.testing.assert_close(x[:, :140], compress(plain.x))
        assert x[:, 140:260].argmax(1).tolist() == plain.extras["opcode"].tolist()
        expected = np.zeros((plain.num_nodes, CONFIGURED[kind]), np.float32)
        expected[slice(None) if nodes is None else nodes] = features[copy]
        np.testing.assert_array_equal(x[:, 260:], expected)
        mine = first.batch[first.edge_index[0]] == copy
        assert torch.equal(first.edge_index[:, mine] - first.ptr[copy], edges)
    both = {(int(a), int(b)) for a, b in plain.edge_index.T if a != b}
    assert {tuple(e) for e in edges.T.tolist()} == both | {(b, a) for a, b in both}


def test_every_epoch_draws_other_configurations_and_every_run_the_same(experiment):
    drawn = [[b.y.tolist() for b, _ in loader_of(experiment()).training(epoch)] for epoch in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert loader_of(experiment()).steps_per_epoch == len(drawn[0]) == 2
    assert all(
        batch.extras["graph"].unique_consecutive(return_counts=True)[1].max() <= 3
        for batch, _ in loader_of(experiment()).training(0)
    )
    few = list(loader_of(experiment(batch={"graphs": 2, "configurations": 3, "evaluated": 2})).evaluation("test"))
    assert [b.num_graphs for b, _ in few] == [2, 2]


@pytest.mark.slow
def test_gradients_flow_through_the_segment_alone(experiment):
    one = experiment(batch={"graphs": 2, "configurations": 2, "segment": 4})
    torch.manual_seed(0)
    model = one.build()
    batch = next(b for b, _ in loader_of(one).training(0) if "segment" in b.extras)
    nodes = batch.extras["segment"]
    per_copy = torch.bincount(batch.batch[nodes], minlength=batch.num_graphs)
    assert per_copy.max() <= 4 or (batch.sizes[per_copy > 4] <= 4).all()
    assert (nodes.diff() > 0).all()
    batch.x.requires_grad_()
    output, target = one.task.predict(model, batch, None)
    one.task.loss(output, target).backward()
    touched = batch.x.grad.abs().sum(1).nonzero().squeeze(1)
    assert set(touched.tolist()) <= set(nodes.tolist())
    assert len(touched) > 0
    # a segment of the whole graph gives the output of the model
    extras = batch.extras | {"segment": torch.arange(batch.num_nodes)}
    everything = GraphBatch(batch.x.detach(), batch.edge_index, batch.ptr, y=batch.y, extras=extras)
    torch.testing.assert_close(one.task.predict(model, everything, None)[0], model(everything).squeeze(1))
    part = part_of(batch, nodes)
    assert torch.equal(part.sizes, per_copy)


@pytest.mark.slow
def test_a_run_learns_and_resumes_bit_for_bit(experiment):
    changes = {"epochs": 25, "batch": {"graphs": 2, "configurations": 4, "segment": 8}}
    whole = experiment("whole", **changes).run(0)[0].run
    assert whole.status == "ok"
    assert whole.epochs["train_loss"][-1] < whole.epochs["train_loss"][0]

    one = experiment(**changes)
    with pytest.raises(runs.Killed):
        one.run(0, on_epoch=runs.kill_at(10))
    seen = []
    record, _ = one.run(0, on_epoch=lambda epoch, values: seen.append(epoch))
    assert 1 < seen[0] <= 10
    assert record.run == whole
    assert set(whole.test_metrics) == {"loss", "ordered-pair-accuracy", *one.header.also}


@pytest.mark.slow
def test_other_losses_and_the_local_model(experiment):
    model = {"name": "polynormer", "hidden_dim": 8, "num_heads": 2, "num_local_layers": 1, "attention": "local"}
    assert experiment(loss="pairwise-hinge", model=model).run(0)[0].run.status == "ok"


def test_bad_recipes(experiment):
    for batch in ({"graphs": 2}, {}):
        with refused(RecipeError, file="recipe.yaml", place="batch"):
            experiment(batch=batch).run(0)
    with pytest.raises(RecipeError, match="loss 'l1' is not one of this task's"):
        experiment(loss="l1")


@pytest.mark.slow
def test_a_model_of_pairs_has_no_segments(experiment):
    one = experiment(
        batch={"graphs": 2, "configurations": 2, "segment": 4},
        model={"name": "edge-transformer", "hidden_dim": 8, "num_heads": 2},
    )
    with refused(RecipeError, place="batch.segment"):
        one.run(0)
