"""Link prediction: ranks against a literal calculation, negatives that are no edges, no leak into training, runs."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from gt_bench.config.schema import RecipeError
from gt_bench.config.tasks import METRICS
from gt_bench.store.predictions import load
from gt_bench.tasks.link_prediction import Negatives, hits, mean_reciprocal_rank, ranks
from gt_bench.tasks.registry import create_task
from gt_models.encodings import compute
from tests.gt_bench.custom_data import packed as pack_source
from tests.gt_bench.runs import assert_resumes, experiment
from tests.refusals import refused

BATCH = {"edges": 20, "negatives": 2}
LINKS = {
    "batch": BATCH,
    "head": {"name": "product", "dim": 6},
    "model": {"name": "gcn", "hidden_dim": 6, "num_layers": 2},
    "epochs": 4,
    "split": 0,
}


def ring_of_cliques(directed: bool = False) -> list[tuple[int, int]]:
    """Six cliques of five nodes in a ring."""
    edges = [(5 * c + i, 5 * c + j) for c in range(6) for i in range(5) for j in range(i)]
    edges += [(5 * c, 5 * ((c + 1) % 6)) for c in range(6)]
    return edges if directed else [*edges, *[(b, a) for a, b in edges]]


def codes(edges, held: dict[tuple[int, int], int]) -> list[int]:
    """Returns the part of each edge: that of `held` in either direction, otherwise train."""
    return [held.get((a, b), held.get((b, a), 1)) for a, b in edges]


HELD = {(1, 0): 2, (7, 5): 2, (12, 10): 2, (3, 1): 3, (17, 16): 3, (0, 5): 3, (28, 26): 3}


def prepare(root, edges=None, split=None, name="cliques", nodes=30, sizes=None, **more):
    """Packs a dataset of links in root/packed and returns it."""
    edges = ring_of_cliques() if edges is None else edges
    arrays = {"x": np.random.default_rng(0).normal(size=(nodes, 3)), "edge_index": np.array(edges).T}
    if sizes is not None:
        arrays |= {"num_nodes": np.array(sizes[0]), "num_edges": np.array(sizes[1])}
    if split is not None:
        arrays["split"] = np.array(split)
    root.mkdir(exist_ok=True)
    np.savez(root / f"{name}.npz", **arrays)
    given = {"negatives": 9, "num_splits": 2} | more
    return pack_source(root / f"{name}.npz", root / "packed" / name, "link-prediction", name=name, **given)


def literal_rank(scores: list[float]) -> float:
    """Mean of the best and the worst position of the first score in the descending order."""
    others = scores[1:]
    best = 1 + len([s for s in others if s > scores[0]])
    worst = 1 + len([s for s in others if s >= scores[0]])
    return (best + worst) / 2


def test_ranks_with_ties_against_a_literal_calculation():
    scores = torch.tensor([[0.5, 0.1, 0.9, 0.5], [1.0, 1.0, 1.0, 1.0], [2.0, 1.0, 0.0, -1.0], [0.0, 0.1, 0.2, 0.3]])
    expected = [2.5, 2.5, 1.0, 4.0]
    assert ranks(scores).tolist() == expected == [literal_rank(row) for row in scores.tolist()]
    assert mean_reciprocal_rank(scores) == pytest.approx((1 / 2.5 + 1 / 2.5 + 1 + 1 / 4) / 4)
    assert [hits(scores, k) for k in (1, 2, 3)] == [0.25, 0.25, 0.75]
    drawn = torch.randint(5, (50, 8)).float()  # many ties
    assert ranks(drawn).tolist() == [literal_rank(row) for row in drawn.tolist()]
    with pytest.raises(ValueError, match="hits@4 is always 1 with 3 negatives per edge"):
        hits(scores, 4)


def test_metrics_of_a_part():
    task = create_task("link-prediction", "mrr", also=["hits@3", "roc-auc", "ap"])
    scores = torch.randn(6, 5)
    labels = torch.zeros(6, 5)
    labels[:, 0] = 1
    found = task.evaluate([scores], [labels])
    flat, truth = scores.flatten().numpy(), labels.flatten().numpy()
    assert found["roc-auc"] == pytest.approx(roc_auc_score(truth, flat))
    assert found["ap"] == pytest.approx(average_precision_score(truth, flat))
    assert found["mrr"] == pytest.approx(np.mean([1 / literal_rank(row) for row in scores.tolist()]))
    assert found["hits@3"] == np.mean([literal_rank(row) <= 3 for row in scores.tolist()])
    p = scores.sigmoid()
    assert found["loss"] == pytest.approx(-float((labels * p.log() + (1 - labels) * (1 - p).log()).mean()), abs=1e-6)
    assert task.direction == "max"


@pytest.mark.parametrize("symmetric", [True, False])
def test_negatives_are_never_edges_and_replace_one_node_uniformly(symmetric):
    links = np.array(ring_of_cliques(directed=True))
    negatives = Negatives(links, np.array([0, 30]), symmetric)
    drawn, exists = negatives.draw(links, 200, np.random.default_rng(0))
    assert exists.all()
    edges = set(map(tuple, links.tolist()))
    edges |= {(b, a) for a, b in edges} if symmetric else set()
    for (u, v), found in zip(links.tolist(), drawn.tolist(), strict=True):
        for a, b in found:
            assert (a, b) not in edges
            assert a != b
            assert (a == u) != (b == v)
    # each node that is possible is drawn equally often
    targets = Counter(b for a, b in drawn[0].tolist() if a == links[0, 0])
    possible = [w for w in range(30) if w != links[0, 0] and (links[0, 0], w) not in edges]
    assert set(targets) <= set(possible)
    assert sum(targets.values()) / 200 == pytest.approx(0.5, abs=0.12)
    many, _ = negatives.draw(links[:1], 20_000, np.random.default_rng(1))
    share = Counter(b for a, b in many[0].tolist() if a == links[0, 0])
    total = sum(share.values())
    assert all(share[w] / total == pytest.approx(1 / len(possible), rel=0.35) for w in possible)


def test_negatives_of_a_hub_replace_the_hub_and_stay_in_their_graph():
    star = np.array([[0, i] for i in range(1, 6)] + [[6, 7], [8, 9]])  # node 0 is connected to all of its graph
    negatives = Negatives(star, np.array([0, 6, 12]), symmetric=True)
    drawn, exists = negatives.draw(star[:5], 40, np.random.default_rng(0))
    assert exists.all()
    assert (drawn.max() < 6, (drawn[..., 1] == star[:5, None, 1]).all()) == (True, True)
    assert not negatives.is_known(drawn.reshape(-1, 2)).any()
    others, _ = negatives.draw(star[5:], 40, np.random.default_rng(0))
    assert others.min() >= 6


def test_an_edge_of_a_complete_graph_has_no_negative():
    links = np.array([[0, 1], [0, 2], [1, 2], [3, 4]])
    drawn, exists = Negatives(links, np.array([0, 3, 6]), symmetric=True).draw(links, 3, np.random.default_rng(0))
    assert exists.tolist() == [[False] * 3] * 3 + [[True] * 3]
    assert not Negatives(links, np.array([0, 3, 6]), symmetric=True).is_known(drawn[3]).any()


def directions(edge_index) -> set[tuple[int, int]]:
    return set(map(tuple, edge_index.T.tolist()))


@pytest.mark.parametrize("kind", ["undirected", "directed", "multigraph with self-loops"])
def test_the_model_never_sees_an_edge_of_validation_or_test(tmp_path, kind):
    edges = ring_of_cliques(directed=kind == "directed")
    if kind.startswith("multi"):
        edges = [*edges, *edges[:10], (0, 1), (4, 4), (9, 9), (9, 9)]
    prepare(tmp_path, edges, codes(edges, HELD))
    loader = experiment(tmp_path, "cliques", **LINKS).loader(0)
    held = set(HELD) if kind == "directed" else {*HELD, *((b, a) for a, b in HELD)}
    for batch, _ in [*loader.training(0), *loader.evaluation("val"), *loader.evaluation("test")]:
        seen = [tuple(edge) for edge in batch.edge_index.T.tolist()]
        assert Counter(seen) == Counter(edge for edge in edges if edge not in held)
        assert "link" not in batch.extras
    for code, part in ((2, "val"), (3, "test")):
        batch, rows = next(loader.evaluation(part))
        pairs = batch.extras["edge_label_index"].T.reshape(*batch.y.shape, 2)
        assert rows is None
        assert batch.y.tolist() == [[1.0] + [0.0] * 9] * len(pairs)
        positives = {tuple(sorted(p)) for p in pairs[:, 0].tolist()}
        assert positives == {tuple(sorted(e)) for e, c in HELD.items() if c == code}
        all_edges = directions(torch.tensor(edges).T)
        negatives = {tuple(p) for p in pairs[:, 1:].reshape(-1, 2).tolist()}
        assert not negatives & all_edges
        assert all(a != b for a, b in negatives)
        assert len(pairs) == len(loader.order(part))


def same_batches(first, second) -> bool:
    return all(
        torch.equal(a.edge_index, b.edge_index)
        and torch.equal(a.y, b.y)
        and torch.equal(a.extras["edge_label_index"], b.extras["edge_label_index"])
        and all(torch.equal(a.encodings[name], b.encodings[name]) for name in a.encodings)
        for (a, _), (b, _) in zip(first, second, strict=True)
    )


def test_edges_of_validation_and_test_do_not_change_training_batches(tmp_path):
    """Other edges in their place: the same graph, encodings, edges and negatives in training."""
    kept = [edge for edge, code in zip(ring_of_cliques(), codes(ring_of_cliques(), HELD), strict=True) if code == 1]
    batches = []
    for name, others in (("some", [(1, 0), (3, 1)]), ("others", [(2, 29), (14, 22), (6, 18), (3, 24)])):
        both = [*others, *((b, a) for a, b in others)]
        part = {edge: 2 + i % 2 for i, edge in enumerate(others)}
        prepare(tmp_path, [*kept, *both], codes([*kept, *both], part), name)
        run = experiment(tmp_path, name, **LINKS)
        run.recipe = run.recipe.model_copy(update={"encodings": {"rwse": {"steps": 4}}})
        loader = run.loader(3)
        batches.append([list(loader.training(epoch)) for epoch in (0, 1)])
    for epoch in (0, 1):
        assert len(batches[0][epoch]) == math.ceil(len(kept) / 2 / 20)
        assert same_batches(batches[0][epoch], batches[1][epoch])
    assert not same_batches(batches[0][0], batches[0][1])


def test_encodings_are_those_of_the_training_graph(tmp_path):
    packed = prepare(tmp_path, split=codes(ring_of_cliques(), HELD))
    run = experiment(tmp_path, "cliques", **LINKS)
    run.recipe = run.recipe.model_copy(update={"encodings": {"rwse": {"steps": 4}}})
    batch = next(run.loader(0).evaluation("test"))[0]
    whole = packed.batch(torch.tensor([0]))
    name = next(iter(batch.encodings))
    assert not torch.allclose(batch.encodings[name], compute("rwse", whole, steps=4)[name])
    held = {*HELD, *((b, a) for a, b in HELD)}
    seen = torch.tensor([edge not in held for edge in ring_of_cliques()])
    whole.edge_index = whole.edge_index[:, seen]
    torch.testing.assert_close(batch.encodings[name], compute("rwse", whole, steps=4)[name])


def test_training_negatives_are_no_training_edges_and_new_in_every_epoch(tmp_path):
    edges = ring_of_cliques()
    prepare(tmp_path, edges, codes(edges, HELD))
    loader = experiment(tmp_path, "cliques", **LINKS).loader(0)
    train = {edge for edge, code in zip(edges, codes(edges, HELD), strict=True) if code == 1}
    drawn = []
    for epoch in range(30):
        batches = [batch for batch, _ in loader.training(epoch)]
        assert [int(batch.y.sum()) for batch in batches] == [20, 20, 19]
        pairs = torch.cat([batch.extras["edge_label_index"][:, batch.y == 1] for batch in batches], 1)
        assert sorted(tuple(sorted(p)) for p in pairs.T.tolist()) == sorted({tuple(sorted(e)) for e in train})
        negatives = torch.cat([batch.extras["edge_label_index"][:, batch.y == 0] for batch in batches], 1)
        assert negatives.size(1) == 2 * pairs.size(1)
        drawn.append(directions(negatives))
        assert not drawn[-1] & train
    assert drawn[0] != drawn[1]
    # an edge of another part is not excluded, which would reveal it
    assert set.union(*drawn) & {*HELD, *((b, a) for a, b in HELD)}


def test_negatives_of_validation_and_test_depend_on_data_and_split_alone(tmp_path):
    prepare(tmp_path)
    first = experiment(tmp_path, "cliques", **LINKS)
    second = experiment(tmp_path, "cliques", **LINKS | {"model": {"name": "gat", "hidden_dim": 8, "num_layers": 1}})

    def pairs(run, seed, part="test"):
        return next(run.loader(seed).evaluation(part))[0].extras["edge_label_index"]

    assert torch.equal(pairs(first, 0), pairs(second, 5))
    other_split = experiment(tmp_path, "cliques", **LINKS | {"split": 1})
    assert not torch.equal(pairs(first, 0), pairs(other_split, 0))
    prepare(tmp_path, seed=1)
    assert not torch.equal(pairs(first, 0), pairs(experiment(tmp_path, "cliques", **LINKS), 0))


def test_several_graphs_have_negatives_within_a_graph(tmp_path):
    edges = [(i, j) for i in range(4) for j in range(i)] + [(i, (i + 1) % 6) for i in range(6)]
    both = [pair for a, b in edges for pair in ((a, b), (b, a))]
    split = [1] * len(both)
    for i in (0, 1, 12, 13):
        split[i] = 2
    for i in (2, 3, 14, 15):
        split[i] = 3
    prepare(tmp_path, both, split, nodes=13, sizes=([7, 6], [12, 12]))
    loader = experiment(tmp_path, "cliques", **LINKS).loader(0)
    for batch, _ in [*loader.training(0), *loader.evaluation("val"), *loader.evaluation("test")]:
        source, target = batch.extras["edge_label_index"]
        assert torch.equal(source >= 7, target >= 7)


def test_a_run_that_is_killed_resumes_to_the_same_record_and_keeps_its_predictions(tmp_path):
    prepare(tmp_path, split=codes(ring_of_cliques(), HELD))
    record, run = assert_resumes(tmp_path, "cliques", **LINKS)
    assert record.metric == "mrr"
    assert record.recipe["head"] == {"name": "product", "dim": 6, "layers": 2, "dropout": 0.0}
    assert record.recipe["batch"].items() >= BATCH.items()
    whole = experiment(tmp_path, "cliques", "whole", **LINKS)
    stored = whole.store.get(whole.digest(0))
    found = load("tried/cliques/gcn", stored, whole.store)
    assert found.level == "edge"
    part = found.parts["test"]
    assert part.output.shape == (4, 10)
    assert part.example_ids.tolist() == whole.packed.split("test").tolist()
    assert found.score("mrr") == pytest.approx(record.test)
    assert found.score("mrr", "val") == pytest.approx(record.val)
    assert 0 <= found.score("hits@5") <= 1
    batch = next(run.loader.evaluation("test"))[0]
    with torch.no_grad():
        torch.testing.assert_close(run.model.eval()(batch).view(4, 10), torch.from_numpy(part.output))


def test_the_identity_of_a_run_has_all_that_its_numbers_depend_on(tmp_path):
    split = codes(ring_of_cliques(), HELD)
    prepare(tmp_path, split=split)
    base = experiment(tmp_path, "cliques", **LINKS)
    digests = {base.digest(0)}
    for changes in (
        {"head": {"name": "dot", "dim": 6}},
        {"head": {"name": "product", "dim": 7}},
        {"batch": BATCH | {"negatives": 3}},
        {"batch": BATCH | {"edges": 10}},
    ):
        digests.add(experiment(tmp_path, "cliques", **LINKS | changes).digest(0))
    for more in ({"negatives": 8}, {"seed": 1}):
        prepare(tmp_path, split=split, **more)
        digests.add(experiment(tmp_path, "cliques", **LINKS).digest(0))
    assert len(digests) == 7
    assert {"head", "task"} <= base.versions.keys()


def test_saved_weights_are_loaded_with_their_head(tmp_path):
    from gt_bench.store.weights import load_trained

    prepare(tmp_path)
    run = experiment(tmp_path, "cliques", **LINKS | {"keep_weights": True, "head": {"name": "concat", "dim": 6}})
    record, _ = run.run(0)
    model = load_trained(run.store.folder(record.digest))
    batch = next(run.loader(0).evaluation("test"))[0]
    with torch.no_grad():
        scores = model(batch).view(batch.y.shape)
    assert mean_reciprocal_rank(scores) == pytest.approx(record.run.test)
    assert model.head.symmetric


@pytest.mark.parametrize(
    ("changes", "place", "problem"),
    [
        ({"head": None}, "head", "missing"),
        ({"batch": {"edges": 20}}, "batch.negatives", "requires the number of negatives"),
        ({"batch": BATCH | {"edges": None, "parts": 2}}, "batch.parts", "uses all graphs"),
        ({"loss": "cross-entropy"}, "dataset 'cliques'", "loss 'cross-entropy'"),
        ({"model": {"name": "ppgn", "hidden_dim": 4}}, "model.name", "'ppgn' predicts at level graph"),
    ],
)
def test_recipes_that_do_not_fit(tmp_path, changes, place, problem):
    prepare(tmp_path)
    with refused(RecipeError, place=place) as error:
        experiment(tmp_path, "cliques", **LINKS | changes).run(0)
    assert problem in error.value.problem


def test_processes_do_not_share_the_edges_of_a_step(tmp_path):
    prepare(tmp_path)
    with pytest.raises(ValueError, match="2 processes share .* batch.edges does not support"):
        experiment(tmp_path, "cliques", **LINKS | {"processes": 2})


def test_every_metric_of_the_data_is_one_of_the_task():
    task = create_task("link-prediction", "mrr")
    assert tuple(task.directions) == METRICS["link-prediction"]
    assert set(task.directions.values()) == {"max"}
