"""Hyperedge prediction: negatives, co-occurrence and node encoder against simple code, and training runs."""

import copy
import math
from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from gt_bench.config.schema import RecipeError
from gt_bench.data.packed_writer import pack
from gt_bench.tasks.hyperedge_prediction import HyperedgeNegatives, HyperedgeTargets, cooccurrence
from gt_bench.tasks.registry import create_task
from gt_bench.training.interfaces import SplitData
from gt_models import create_model
from gt_models.batch import GraphBatch
from gt_models.hot.encoders import CooccurrenceEncoder
from tests.gt_bench.conftest import header_of
from tests.gt_bench.runs import assert_resumes, experiment
from tests.refusals import refused

SIZES = [9, 6, 3]
KIND = np.repeat(np.arange(3), SIZES)


def columns() -> np.ndarray:
    x = np.zeros((sum(SIZES), 3), np.int64)
    x[np.arange(len(KIND)), KIND] = np.concatenate([np.arange(1, n + 1) for n in SIZES])
    return x


def members(count: int = 60, seed: int = 0) -> np.ndarray:
    """Hyperedges of nodes whose ids agree modulo 3, with duplicates."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, count)
    first, second = group + 3 * rng.integers(0, 3, count), 9 + group + 3 * rng.integers(0, 2, count)
    return np.stack([first, second, 15 + group], axis=1)


def test_negatives_are_unknown_and_exchange_one_node_in_nine_of_ten():
    known = members()
    negatives = HyperedgeNegatives(known, [np.flatnonzero(k == KIND) for k in range(3)])
    assert negatives.is_known(known).all()
    rng = np.random.default_rng(0)
    drawn = negatives.draw(np.tile(known, (40, 1)), rng)
    assert len(drawn) == 5 * 40 * len(known)
    assert not {tuple(t) for t in drawn.tolist()} & {tuple(t) for t in known.tolist()}
    assert (KIND[drawn] == np.arange(3)).all()
    wanted = np.repeat(np.tile(known, (40, 1)), 5, axis=0)
    changed = (drawn != wanted).sum(1)
    assert changed.min() == 1
    # all three replaced, possibly by the same node: 0.1 x P(at least two differ)
    alike = sum(np.prod([p if s else 1 - p for p, s in zip((1 / 9, 1 / 6, 1 / 3), same, strict=True)])
                for same in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)))  # fmt: skip
    assert (changed > 1).mean() == pytest.approx(0.1 * alike, abs=0.012)
    one = changed == 1
    places = Counter((drawn != wanted)[one].argmax(1).tolist())
    assert all(count / one.sum() == pytest.approx(1 / 3, abs=0.05) for count in places.values())


def test_rare_negatives_are_found_and_impossible_ones_left_out():
    nodes = [np.array([0]), np.array([1]), np.array([2, 3, 4])]
    rng = np.random.default_rng(0)
    few = HyperedgeNegatives(np.array([[0, 1, 2], [0, 1, 3]]), nodes)
    drawn = few.draw(np.repeat([[0, 1, 2]], 30, axis=0), rng)
    assert set(map(tuple, drawn.tolist())) == {(0, 1, 4)}
    # positions 0 and 1 have one node each: replacing only these finds no negative
    assert 30 * 5 * 0.25 < len(drawn) < 30 * 5 * 0.55
    known = np.array([[0, 1, 2], [0, 1, 3], [0, 1, 4]])
    assert not len(HyperedgeNegatives(known, nodes).draw(known[:1], rng))


def test_cooccurrence_by_counting():
    known = members(25)
    edges, shares = cooccurrence(known, KIND)
    times = Counter((v, u) for triple in known.tolist() for v in triple for u in triple if u != v)
    expected = {}
    for (v, u), n in times.items():
        expected[v, u] = n / max(m for (w, t), m in times.items() if t == u and KIND[w] == KIND[v])
    found = {(v, u): s for u, v, s in zip(*edges.tolist(), shares.tolist(), strict=True)}
    assert found == pytest.approx(expected)
    assert sorted(found) == list(found)  # sorted by target, then source


def test_the_node_encoder_is_a_tied_autoencoder_per_type():
    torch.manual_seed(1)
    edges, shares = cooccurrence(members(12), KIND)
    x, index, attr = torch.from_numpy(columns()), torch.from_numpy(edges), torch.from_numpy(shares).double()
    batch = GraphBatch(x, index, torch.tensor([0, len(KIND)]), attr[:, None])
    encoder = CooccurrenceEncoder([n + 1 for n in SIZES], 4, dropout=0.0).double()
    with torch.no_grad():
        encoder.norm_weight.normal_()
        encoder.norm_bias.normal_()
    out = encoder(batch, None, torch.float64)
    dense = torch.zeros(len(KIND), len(KIND), dtype=torch.float64)
    for u, v, s in zip(*edges.tolist(), batch.edge_attr[:, 0].tolist(), strict=True):
        dense[v, u] = s
    start, error = 0, 0.0
    for kind, size in enumerate(SIZES):
        others = [u for u in range(len(KIND)) if KIND[u] != kind]
        weight, shift = encoder.weight[start : start + len(others)], encoder.decoder_bias[start : start + len(others)]
        start += len(others)
        errors = []
        for v in np.flatnonzero(kind == KIND):
            hidden = torch.tanh(dense[v, others] @ weight + encoder.bias[kind])
            normed = (hidden - hidden.mean()) / (hidden.var(unbiased=False) + 1e-5).sqrt()
            normed = normed * encoder.norm_weight[kind] + encoder.norm_bias[kind]
            torch.testing.assert_close(out[v], normed, rtol=0, atol=1e-12)
            entries = [i for i, u in enumerate(others) if dense[v, u] != 0]
            if entries:
                decoded = weight @ hidden + shift
                errors.append(sum((dense[v, others[i]] - decoded[i]).item() ** 2 for i in entries) / len(entries))
        assert len(errors) <= size
        error += sum(errors) / len(errors)
    assert not batch.extras
    copy.deepcopy((encoder, batch))  # which a tensor of a graph does not allow
    assert encoder.reconstruction_error.item() == pytest.approx(error, abs=1e-12)
    (out.square().sum() + encoder.reconstruction_error).backward()
    seen = encoder.weight.grad.abs().sum(1) > 0
    used = {(KIND[v], u) for u, v in zip(*edges.tolist(), strict=True)}
    assert int(seen.sum()) == len(used)  # the other rows are nodes without training hyperedges
    encoder.eval()
    encoder(batch, None, torch.float64)
    assert encoder.reconstruction_error is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x": torch.zeros(18, 3, dtype=torch.long)}, "one type each"),
        ({"edge_index": torch.tensor([[9, 0], [9, 1]])}, "one type each, edges between types"),
        ({"edge_index": torch.tensor([[9, 9], [1, 0]])}, "in order of their target"),
        ({"edge_attr": None}, "one number per edge"),
        ({"x": torch.zeros(18, 3)}, "columns of categories"),
    ],
)
def test_input_that_does_not_fit_is_named(change, words):
    fields = {"x": torch.from_numpy(columns()), "edge_index": torch.tensor([[9, 9], [0, 1]])}
    fields |= {"ptr": torch.tensor([0, 18]), "edge_attr": torch.ones(2, 1)}
    with pytest.raises(ValueError, match=words):
        CooccurrenceEncoder([10, 7, 4], 4)(GraphBatch(**(fields | change)), None, torch.float32)


def test_the_loss_weighs_known_hyperedges_five_times():
    output, labels = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    p = 1 / (1 + np.exp(-output.numpy()))
    expected = (-5 * math.log(p[0]) - math.log(1 - p[1]) - math.log(1 - p[2])) / 3
    loss = create_task("hyperedge-prediction", "auc").loss
    assert loss(output, HyperedgeTargets(labels)).item() == pytest.approx(expected)
    assert loss(output, HyperedgeTargets(labels, torch.tensor(2.0))).item() == pytest.approx(expected + 0.02)


def pack_hypergraph(root):
    found = members(150)
    distinct, which = np.unique(found, axis=0, return_inverse=True)
    part = np.random.default_rng(1).choice([1, 1, 1, 2, 3], len(distinct))[which.ravel()]
    given = {"metric": "auc", "also": ["aupr"], "extras": {"hyperedges": "table", "type_sizes": "table"}}
    header = header_of("hyper", "hyperedge-prediction", in_dim=[n + 1 for n in SIZES], num_splits=2, **given)
    arrays = {
        "num_nodes": [len(KIND)], "num_edges": [0], "x": columns(), "edge_index": np.zeros((2, 0), np.int64),
        "hyperedges": found, "type_sizes": np.array(SIZES), "split": np.stack([part, np.where(part == 2, 1, part)]),
    }  # fmt: skip
    pack(root / "packed" / "hyper", header, arrays)


ENCODER = {"node_encoder": "cooccurrence", "hidden_dim": 8}
HOT = {
    "name": "hot-released", "num_layers": 1, "num_heads": 2, "attention": "kernel", "kernel": "generalized",
    "head_dims": [8], "head_dropout": 0.1,
}  # fmt: skip
S2G = {
    "name": "s2g", "plus": True, "set_dims": [], "pair_dims": [8], "node_encoder": "cooccurrence", "node_dim": 8,
    "dropout": 0.1,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("model", [HOT | ENCODER, S2G | {"broadcast_activation": True}])
def test_a_run_learns_resumes_and_tests_what_it_states(model, tmp_path):
    pack_hypergraph(tmp_path)
    changes = {"batch": {"hyperedges": 16}, "epochs": 8, "optimizer": {"name": "adam", "lr": 0.02}}
    record, run = assert_resumes(tmp_path, "hyper", model=model, split=0, **changes)
    assert record.epochs["train_loss"][-1] < record.epochs["train_loss"][0]
    # computed by hand: all hyperedges of the part, then their negatives
    (batch, _), = list(run.loader.evaluation("test"))  # fmt: skip
    test = run.loader.members[run.loader.ids["test"].numpy()]
    index = batch.extras["hyperedge_index"].numpy()
    assert np.array_equal(index[: len(test)], test)
    known = {tuple(t) for t in run.loader.members.tolist()}
    assert not known & {tuple(t) for t in index[len(test) :].tolist()}
    assert len(index) - len(test) == pytest.approx(5 * len(test), abs=len(test))
    run.model.eval()
    with torch.no_grad():
        output = run.model(batch).squeeze(1).numpy()
    labels = np.arange(len(index)) < len(test)
    assert record.test_metrics["auc"] == pytest.approx(roc_auc_score(labels, output))
    assert record.test_metrics["aupr"] == pytest.approx(average_precision_score(labels, output))


def test_no_negative_of_a_part_is_a_hyperedge_that_the_part_knows(tmp_path):
    pack_hypergraph(tmp_path)
    done = experiment(tmp_path, "hyper", model=HOT | ENCODER, batch={"hyperedges": 16}, split=0)
    data = SplitData(done.packed, done.encoded, 0, done.recipe.batch, 0, torch.device("cpu"), torch.float32)
    loader = done.task.loader(data)
    parts = {part: {tuple(t) for t in loader.members[ids.numpy()].tolist()} for part, ids in loader.ids.items()}

    def epoch(number):
        return [batch.extras["hyperedge_index"].tolist() for batch, _ in loader.training(number)]

    assert len(epoch(0)) == loader.steps_per_epoch == len(loader.ids["train"]) // 16
    assert epoch(0) == epoch(0) != epoch(1)
    made = {tuple(t) for number in range(20) for batch in epoch(number) for t in batch[16:]}
    assert not made & parts["train"]
    assert made & parts["test"]  # a test hyperedge can be a negative in training
    # the input graph contains training hyperedges only
    pairs = {(a, b) for triple in parts["train"] for a in triple for b in triple if a != b}
    assert {tuple(e) for e in loader.whole.edge_index.T.tolist()} == pairs
    # negatives of validation and test are fixed
    assert all(
        torch.equal(a.extras["hyperedge_index"], b.extras["hyperedge_index"])
        for part in ("val", "test")
        for (a, _), (b, _) in zip(loader.evaluation(part), loader.evaluation(part), strict=True)
    )


@pytest.mark.parametrize(
    ("changes", "place"),
    [({"split": 1}, ""), ({"batch": {}}, "batch.hyperedges"), ({"batch": {"graphs": 4}}, "batch.hyperedges")],
)
def test_the_released_protocol_and_wrong_batches_are_refused(changes, place, tmp_path):
    pack_hypergraph(tmp_path)
    usual = {"model": HOT | ENCODER, "batch": {"hyperedges": 16}, "split": 0}
    done = experiment(tmp_path, "hyper", **usual | changes)
    with refused(RecipeError, file="recipe.yaml", place=place):
        done.run(0)


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        ("hot", {"in_dim": 3, "level": "hyperedge", "node_encoder": "walks"}, "unknown node_encoder"),
        ("hot", {"in_dim": [4, 5, 6], "level": "node", "node_encoder": "cooccurrence"}, "input_order=1"),
        ("s2g", {"in_dim": 3, "level": "hyperedge", "node_encoder": "cooccurrence", "node_dim": 4}, "one categorical"),
        ("s2g", {"in_dim": 3, "level": "hyperedge", "set_dims": []}, "or node_dim"),
    ],
)
def test_models_refuse_what_cannot_be(model, given, words):
    with pytest.raises(ValueError, match=words):
        create_model(model, out_dim=1, **given)
