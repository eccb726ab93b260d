"""BREC: the statistic, models that can and cannot distinguish a pair, and resuming between pairs."""

import math
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import PackedDataset
from gt_bench.data.packed_writer import pack
from gt_bench.papers.pair_counts import PUBLISHED
from gt_bench.runtime.environment import Clock
from gt_bench.tasks import brec
from gt_bench.tasks.brec import hotelling, judge, scores
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.failures import WrongOutput
from gt_bench.training.interfaces import SplitData
from gt_bench.training.loader import Loader, seed_of
from tests.gt_bench import runs
from tests.gt_bench.conftest import header_of
from tests.refusals import refused

# number -> (first graph, second graph); colour refinement cannot distinguish the last two pairs
PAIRS = {
    0: (nx.star_graph(3), nx.path_graph(4)),
    60: (nx.cycle_graph(6), nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3))),
    265: (nx.Graph([(i, (i + 1) % 10) for i in range(10)] + [(0, 5)]), nx.Graph([(i,
     (i + 1) % 5) for i in range(5)] + [(5 + i, 5 + (i + 1) % 5) for i in range(5)] + [(0, 5)])),
}  # fmt: skip
RECIPE = {
    "model": {"name": "gcn", "hidden_dim": 16, "num_layers": 2},
    "batch": {"graphs": 16},
    "optimizer": {"name": "adam", "lr": 1e-3, "weight_decay": 1e-4},
    "schedule": {"name": "plateau", "factor": 0.1, "patience": 10},
    "epochs": 3,
    "select": "last",
    "brec": {},
    "seeds": [0],
}


def pack_brec(data: Path, pairs=PAIRS, relabellings: int = 32, name: str = "brec") -> PackedDataset:
    """Packs a few pairs in the layout of BREC: pairs, then controls, alternating sides, original numbers of pairs."""
    rng = np.random.default_rng(0)
    graphs, pair, side, control = [], [], [], []
    for which in (0, 1):
        for number, both in pairs.items():
            for i in range(2 * relabellings):
                new = dict(enumerate(rng.permutation(len(both[0]))))
                graphs.append(nx.relabel_nodes(both[0 if which else i % 2], new))
                pair.append(number), side.append(i % 2), control.append(which)
    edges = [np.array(list(g.to_directed().edges), np.int64).T for g in graphs]
    sizes = [len(g) for g in graphs]
    given = {"num_splits": 0, "extras": dict.fromkeys(("pair", "side", "control"), "graph")}
    header = header_of(name, "brec", metric="pairs-distinguished", level="graph", in_dim=[1], out_dim=4, **given)
    arrays = {"num_nodes": sizes, "num_edges": [e.shape[1] for e in edges], "edge_index": np.concatenate(edges, 1)}
    arrays |= {"x": np.zeros((sum(sizes), 1), np.uint8), "y": pair, "pair": pair, "side": side, "control": control}
    pack(data / "packed" / name, header, {k: np.asarray(v) for k, v in arrays.items()})
    return PackedDataset.open(data / "packed" / name)


@pytest.fixture
def experiment(tmp_path):
    pack_brec(tmp_path)
    return lambda store="store", **changes: runs.experiment(tmp_path, "brec", store, **RECIPE | changes)


def literal_t_squared(first: np.ndarray, second: np.ndarray) -> float:
    """Returns D_mean^T pinv(cov(D)) D_mean of the n differences, computed entry by entry."""
    n, d = first.shape
    mean = [sum(first[i, a] - second[i, a] for i in range(n)) / n for a in range(d)]
    covariance = np.zeros((d, d))
    for a, b in product(range(d), repeat=2):
        pairs = ((first[i, a] - second[i, a] - mean[a]) * (first[i, b] - second[i, b] - mean[b]) for i in range(n))
        covariance[a, b] = sum(pairs) / (n - 1)
    inverse = np.linalg.pinv(covariance)
    return sum(mean[a] * inverse[a, b] * mean[b] for a in range(d) for b in range(d))


def test_the_statistic_is_the_written_one():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(32, 16)), rng.normal(size=(32, 16)) + 0.3
    expected = pytest.approx(literal_t_squared(first, second), rel=1e-10)
    assert hotelling(torch.from_numpy(first), torch.from_numpy(second)) == expected
    # the rank is less than the number of columns: the pseudo-inverse is needed
    low = rng.normal(size=(32, 3)) @ rng.normal(size=(3, 16))
    expected = pytest.approx(literal_t_squared(low, 0 * low), rel=1e-6)
    assert hotelling(torch.from_numpy(low), torch.from_numpy(0 * low)) == expected
    # outputs that do not vary have no covariance
    assert hotelling(torch.ones(32, 16), torch.zeros(32, 16)) == 0
    assert math.isnan(hotelling(torch.full((32, 16), torch.nan), torch.zeros(32, 16)))


def test_float32_outputs_have_the_rank_that_float32_sees():
    rng = np.random.default_rng(2)
    difference = torch.from_numpy(rng.normal(size=(32, 4)) * [1, 1, 1, 1e-5] + [0, 0, 0, 1]).float()
    mean, covariance = difference.mean(0)[:, None], torch.cov(difference.T)
    reference = float(mean.T @ torch.linalg.pinv(covariance) @ mean)  # in float32, as in the reference
    assert reference < 10
    assert hotelling(difference, torch.zeros(32, 4)) == pytest.approx(reference, rel=1e-3)


@pytest.mark.parametrize(
    ("t_squared", "control", "verdict"),
    [
        (73.0, 1.0, (True, True, True)),
        (72.0, 1.0, (False, False, True)),
        (80.0, 80.0, (False, False, False)),
        (80.0, 80.0 * (1 + 1e-4), (False, True, False)),
        (math.nan, 1.0, (False, False, True)),
        (80.0, math.nan, (False, True, False)),
    ],
)
def test_an_unreliable_or_unmoved_pair_is_not_distinguished(t_squared, control, verdict):
    assert judge(t_squared, control, 72.34) == verdict


def test_counts_by_category():
    pairs = [0, 59, 60, 109, 110, 160, 259, 260, 359, 360, 380, 399]
    found = [1, 0, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1]
    ok = [1] * 11 + [0]
    result = scores({"pair": pairs, "distinguished": found, "unchecked": found, "reliable": ok})
    assert result["pairs-distinguished"] == 7
    assert result["accuracy"] == pytest.approx(7 / 12)
    counts = {"basic": 1, "regular": 4, "extension": 2, "cfi": 0}
    counts |= {"simple-regular": 2, "strongly-regular": 0, "4-vertex-condition": 1, "distance-regular": 1}
    assert counts.items() <= result.items()
    assert result["unreliable-pairs"] == 1
    assert set(PUBLISHED) <= set(result)
    # a category without a trained pair is left out
    assert "cfi" not in scores({"pair": [0], "distinguished": [1], "unchecked": [1], "reliable": [1]})
    # number of pairs in each category in the papers
    flags = dict.fromkeys(("distinguished", "unchecked", "reliable"), [1] * 400)
    everything = scores({"pair": list(range(400)), **flags})
    assert [everything[k] for k in PUBLISHED] == [60, 140, 100, 100, 400, 1]


@pytest.mark.slow
def test_a_message_passing_network_separates_what_colours_separate_and_no_more(experiment):
    record, _ = experiment().run(0)
    run = record.run
    assert (run.status, run.test, run.val, run.best_epoch) == ("ok", 1, None, None)
    assert run.epochs["pair"] == [0, 60, 265]
    assert run.epochs["distinguished"] == [1, 0, 0]
    assert run.epochs["reliable"] == [1, 1, 1]
    assert run.test_metrics["basic"] == 1
    assert run.test_metrics["cfi"] == 0
    assert run.parameters > 100


@pytest.mark.slow
def test_training_is_the_reference_loop(experiment):
    """Training of one pair with torch's loss, optimiser and scheduler."""
    plateau = {"name": "plateau", "factor": 0.5, "patience": 2}
    one = experiment(epochs=25, brec={"stop_below": 0.0, "pairs": [[60, 61]]}, schedule=plateau)
    curves = one.run(3)[0].run.epochs
    torch.manual_seed(seed_of("pair", 3, 60))
    model = one.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=2)
    loss_function = torch.nn.CosineEmbeddingLoss(margin=0.0)
    batches = [one.packed.batch(torch.arange(64 + i, 64 + i + 16)) for i in range(0, 64, 16)]
    for _ in range(25):
        total = 0.0
        for batch in batches:
            output = model(batch)
            loss = loss_function(output[0::2], output[1::2], torch.tensor([-1] * 8))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += 8 * loss.item()
        lr = optimizer.param_groups[0]["lr"]
        scheduler.step(total / 32)
    assert lr < 1e-3, "the plateau was never reached"
    assert (curves["lr"], curves["trained_epochs"]) == ([lr], [25])
    assert curves["train_loss"][0] == pytest.approx(total / 32, rel=1e-6)
    model.eval()
    with torch.no_grad():
        output = torch.cat([model(batch) for batch in batches]).double().numpy()
    d = output[0::2] - output[1::2]
    inverse = np.linalg.pinv(np.cov(d.T), rcond=4 * np.finfo(np.float32).eps)
    assert curves["t_squared"][0] == pytest.approx(d.mean(0) @ inverse @ d.mean(0), rel=1e-6)


@pytest.mark.slow
def test_stopping_and_the_weights_that_are_tested(experiment, monkeypatch):
    pairs_of_nodes = {"model": {"name": "edge-transformer-brec-released", "hidden_dim": 16, "num_layers": 2}}
    for below, epochs in ((0.2, 1), (0.0, 3)):
        section = {"pairs": [[0, 1]], "stop_below": below}
        curves = experiment(**pairs_of_nodes, brec=section).run(0)[0].run.epochs
        assert curves["trained_epochs"] == [epochs]
        assert curves["train_loss"][0] < 0.2
    # the loss oscillates at this learning rate: the best weights are not the last ones
    wild = {"brec": {"pairs": [[0, 1]], "stop_below": 0.0}, "epochs": 6, "schedule": {}}
    wild |= {"optimizer": {"name": "adam", "lr": 0.3}}
    kept = []
    monkeypatch.setattr(brec, "hotelling", lambda first, second: kept.append(first.clone()) or 0.0)
    for select in ("last", "best"):
        experiment(**wild, select=select).run(0)
    assert not torch.equal(kept[0], kept[2])


@pytest.mark.slow
def test_a_run_that_was_stopped_between_pairs_ends_as_if_it_had_not_been(experiment):
    whole = experiment("whole").run(1)[0]
    assert {"pair", "t_squared", "distinguished"} <= set(whole.run.epochs)
    with pytest.raises(runs.Killed):
        experiment().run(1, on_epoch=runs.kill_at(2))
    seen = []
    record, computed = experiment().run(1, on_epoch=lambda epoch, values: seen.append(epoch))
    # the checkpoint of the second pair had not been written
    assert (computed, seen) == (True, [2, 3])
    assert record.run == whole.run
    # a pair alone has the same result as among others
    alone = experiment(brec={"pairs": [[265, 266]]}).run(1)[0].run.epochs
    assert {k: v[0] for k, v in alone.items()} | {"epoch": 3} == {k: v[2] for k, v in whole.run.epochs.items()}
    assert experiment().run(2)[0].run.epochs["t_squared"] != whole.run.epochs["t_squared"]


@pytest.mark.slow
@pytest.mark.parametrize(("stop_below", "pairs"), [(0.0, 0), (10.0, 1)], ids=["within a pair", "between pairs"])
def test_the_time_limit_holds_and_a_longer_one_continues(experiment, stop_below, pairs):
    changes = {"brec": {"stop_below": stop_below}}
    record, _ = experiment(settings={"time_limit_hours": 1e-9}, **changes).run(0)
    assert record.run.status == "timed-out"
    assert f"{pairs} of 3 pairs" in record.run.error
    seen = []
    record, computed = experiment(**changes).run(0, on_epoch=lambda epoch, values: seen.append(epoch))
    assert (computed, seen) == (True, list(range(pairs + 1, 4)))
    assert record.run == experiment("other", **changes).run(0)[0].run


def test_a_pair_whose_loss_is_no_number_is_one_pair_lost(experiment):
    run = experiment(optimizer={"name": "sgd", "lr": 1e30}, epochs=4, brec={"stop_below": 0.0}).run(0)[0].run
    assert run.status == "ok"
    assert run.epochs["t_squared"].count(None) > 0
    assert run.test == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"brec": None}, "brec"),
        ({"batch": {"graphs": 3}}, "batch.graphs"),
        ({"batch": {}}, "batch.graphs"),
        ({"brec": {"pairs": [[7, 9]]}}, "brec.pairs"),
    ],
)
def test_bad_recipes(experiment, changes, place):
    with refused(RecipeError, file="recipe.yaml", place=place):
        experiment(**changes).run(0)


def test_bad_ranges_of_pairs():
    for pairs in ([[5, 5]], [[0, 401]], [[0, 3], [2, 4]]):
        with pytest.raises(ValueError, match="ranges"):
            Recipe(**{**RECIPE, "brec": {"pairs": pairs}})


def test_sides_that_do_not_alternate():
    control, side = torch.arange(8) // 4, torch.tensor([0, 0, 1, 1, 0, 1, 0, 1])
    arrays = {"pair": torch.zeros(8), "control": control, "side": side}
    packed = SimpleNamespace(array=arrays.__getitem__, header=SimpleNamespace(num_splits=0, split_kind="graph"))
    loader = Loader(SplitData(packed, None, 0, Recipe(**RECIPE).batch, 0, torch.device("cpu"), torch.float32))
    task, rest = brec.Brec("pairs-distinguished"), {"meter": Clock(), "checkpoint": Checkpoint(None)}
    with pytest.raises(ValueError, match="do not alternate"):
        brec.BrecRun(Recipe(**RECIPE), task, loader, None, seed=0, **rest)


@pytest.mark.parametrize("output", [torch.ones(3, 4), torch.ones(2), torch.ones(2, 1, 1)])
def test_an_embedding_of_a_wrong_shape_is_an_error(output):
    run = SimpleNamespace(device=torch.device("cpu"), recipe=SimpleNamespace(precision="float32"))
    with pytest.raises(WrongOutput, match=r"requires one embedding per graph: \[2, any\]"):
        brec.BrecRun._embed(run, lambda batch: output, SimpleNamespace(num_graphs=2))
