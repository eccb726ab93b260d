"""Experiments on trained models: attention equals that of the layer, and known attention is measured correctly."""

import json

import networkx as nx
import numpy as np
import pytest
import torch

from gt_bench.api import trained
from gt_bench.claims.checks import findings
from gt_bench.claims.checks.registry import find_check
from gt_bench.claims.experiments.registry import module_of
from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import get_spec
from gt_bench.data.standin import miniature
from gt_bench.encodings.compute import encode
from gt_bench.store.weights import load_trained
from gt_models import create_model, kernels
from gt_models.batch import GraphBatch
from tests.refusals import refused

attention_distance = module_of("attention_distance")
attention_maps = module_of("attention_maps")
same_label = module_of("same_label")

SMALL = {"model.hidden_dim": 8, "model.num_heads": 2}


@pytest.fixture(autouse=True)
def _definitions():
    """Without compilation, which would take longer than these small computations."""
    with kernels.use("reference"):
        yield


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Creates the miniature of a cell's dataset in `tmp_path`. Returns an Experiment with a small run."""

    def make(cell, values, encodings=None):
        name = cell.split("/")[1]
        miniature(get_spec(name), tmp_path / "packed" / name)
        for encoding, arguments in (encodings or {}).items():
            encode(PackedDataset.open(tmp_path / "packed" / name), tmp_path / "encodings" / name, encoding, arguments)
        load = trained.load_recipe
        monkeypatch.setattr(
            trained, "load_recipe", lambda path: load(path).with_values(values).model_copy(update={"seeds": [0, 1]})
        )
        monkeypatch.setattr(trained, "STORE", tmp_path / "store")
        return trained.experiment(cell, tmp_path)

    return make


# Polynormer


@pytest.mark.parametrize("name", ["polynormer", "polynormer-released"])
def test_the_attention_is_that_of_the_last_layer(name):
    torch.manual_seed(0)
    sizes = {"hidden_dim": 12, "num_heads": 3, "num_local_layers": 1, "num_global_layers": 2}
    model = create_model(name, in_dim=3, out_dim=2, **sizes).double().eval()
    edges = torch.tensor([[0, 1, 2, 5], [1, 2, 3, 6]])
    batch = GraphBatch(torch.randn(7, 3, dtype=torch.float64), edges, torch.tensor([0, 7]))
    taken = []
    layer = model.global_layers[-1]
    layer.register_forward_pre_hook(lambda module, given: taken.append(given[0]))
    weights = same_label.attention(*same_label.features(model, batch), torch.arange(7))
    torch.testing.assert_close(weights.sum(2), torch.ones(3, 7, dtype=torch.float64))
    # H + b times the norm of WV, as the layer itself gives it
    with torch.no_grad():
        value = layer.attention.value(taken[0]).unflatten(1, (-1, 3))  # [N, C, H]
        gate = layer.gate(taken[0]) + layer.beta(None)
        mixed = layer.norm(torch.einsum("hij,jch->ich", weights, value).flatten(1)) * gate
        torch.testing.assert_close(mixed, layer.attend(taken[0], batch, None))
    some = torch.tensor([4, 1])
    among = same_label.attention(*same_label.features(model, batch), some)
    torch.testing.assert_close(among, weights[:, some][:, :, some])
    assert len(layer._forward_pre_hooks) == 1  # its hook was removed


def by_keys(sharpness: float) -> tuple[torch.nn.Module, GraphBatch, np.ndarray]:
    """A Polynormer whose keys are (almost) one-hot vectors of the label, or all alike where `sharpness` is 0."""
    labels = np.array([0, 0, 1, 0, 1, 0, 0, 1])
    x = torch.eye(2, dtype=torch.float64)[labels]
    sizes = {"hidden_dim": 4, "num_heads": 2, "num_global_layers": 1, "attention": "global"}
    model = create_model("polynormer", in_dim=2, out_dim=2, **sizes).double()
    of = model.global_layers[0].attention
    with torch.no_grad():
        # channel c * H + h: both heads have both labels
        model.input.linear.weight.copy_(torch.eye(2).repeat_interleave(2, 0))
        model.input.linear.bias.zero_()
        for m in (of.key, of.query):
            m.weight.copy_(2 * sharpness * torch.eye(4))
            m.bias.fill_(-sharpness)
    return model.eval(), GraphBatch(x, torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 8])), labels


def test_attention_by_label_has_an_area_of_one_and_even_attention_of_a_half():
    apart = ~np.eye(8, dtype=bool)
    near = np.zeros((8, 8), bool)
    near[0, 1] = near[1, 0] = near[2, 3] = True
    scores = {}
    for sharpness in (30.0, 0.0):
        model, batch, labels = by_keys(sharpness)
        weights = same_label.attention(*same_label.features(model, batch), torch.arange(8)).mean(0).numpy()
        scores[sharpness] = same_label.summary(weights, (labels[:, None] == labels) & apart, near, labels)
    assert (scores[30.0]["same label"], scores[30.0]["of the worse label"]) == (1, 1)
    assert scores[30.0]["ratio"] > 1e6
    assert scores[0.0] == {"same label": 0.5, "of the worse label": 0.5, "same label within 5 hops": 0.5, "ratio": 1}


def test_nodes_labels_and_hops(tmp_path, monkeypatch):
    monkeypatch.setattr(same_label, "NODES", 20)
    miniature(get_spec("minesweeper"), tmp_path / "packed" / "minesweeper")
    packed = PackedDataset.open(tmp_path / "packed" / "minesweeper")
    nodes, same, near = same_label.drawn(packed, 3)
    again, _, _ = same_label.drawn(packed, 4)
    assert len(set(nodes)) == 20
    assert set(nodes) != set(again)
    graph = nx.Graph(zip(packed.array("source").tolist(), packed.array("target").tolist(), strict=True))
    graph.add_nodes_from(range(packed.num_nodes))
    hops, labels = dict(nx.all_pairs_shortest_path_length(graph, 5)), packed.array("y").view(-1).tolist()
    for i, a in enumerate(nodes):
        for j, b in enumerate(nodes):
            assert near[i, j] == (a != b and b in hops[a])
            assert same[i, j] == (a != b and labels[a] == labels[b])


@pytest.mark.slow
def test_the_stored_weights_of_a_run_are_looked_into(small, tmp_path, monkeypatch):
    monkeypatch.setattr(same_label, "NODES", 20)
    layers = {"model.num_local_layers": 1, "model.num_global_layers": 1, "model.in_dropout": 0.0}
    phases = {"phases": [{"name": "local", "epochs": 1}, {"name": "global", "epochs": 2, "reload_best": True}]}
    run = small(same_label.CELL, SMALL | layers | phases)
    with refused(trained.RunNotFound, value=same_label.CELL):
        same_label.compute("attention", tmp_path)
    records = [run.run(seed)[0] for seed in (0, 1)]
    found = same_label.compute("attention", tmp_path)
    best = max(records, key=lambda record: record.run.val)
    assert found["run"] == best.digest
    assert found["trained"] != found["untrained"]
    assert json.loads(json.dumps(found)) == found
    assert all(len(value) == same_label.DRAWS for name in ("trained", "untrained") for value in found[name].values())
    # the weights are the saved ones of the run
    batch = run.loader(best.run.seed).whole.to("cpu", torch.float64)
    nodes, same, near = same_label.drawn(run.packed, 0)
    taken = same_label.features(load_trained(run.store.folder(best.digest)).double(), batch)
    weights = same_label.attention(*taken, torch.from_numpy(nodes)).mean(0).numpy()
    expected = same_label.summary(weights, same, near, run.packed.array("y").view(-1).numpy()[nodes])
    assert found["trained"]["same label"][0] == expected["same label"]


@pytest.mark.parametrize(
    ("module", "case"),
    [(same_label, "labels and hops"), (same_label, "attention"), (attention_maps, "sparse, ORF"),
     (attention_distance, "stand-in")],
)  # fmt: skip
def test_without_the_data_one_line_states_how_to_have_them(tmp_path, module, case):
    with pytest.raises(trained.RunNotFound) as error:
        module.compute(case, tmp_path)
    assert f"{tmp_path}/packed/" in str(error.value)


def verdict_of(monkeypatch, check, content, **arguments):
    """The verdict of a check on stored numbers of its experiment."""
    monkeypatch.setattr(findings.registry, "partial", lambda name: content)
    return find_check(check)(**arguments)


def test_the_verdict_on_attention_and_labels(monkeypatch):
    def verdict(content):
        return verdict_of(monkeypatch, "attention_differentiates_labels", content, paper="polynormer")

    def scores(*worse):
        shown = {"same label": [0.9], "of the worse label": list(worse)}
        return shown | {"same label within 5 hops": [0.6], "ratio": [1.5]}

    missing = verdict({"labels and hops": {}})
    assert (missing.computed, missing.holds) == (False, None)
    assert missing.reason == (
        "needs a trained run with its weights: `gt-bench train polynormer/minesweeper/polynormer`, then "
        "`gt-bench claims --recompute same_label --case 'attention'`"
    )
    for worse, true in (([0.8, 0.95], True), ([0.79, 0.95], None), ([0.5, 0.59], False), ([0.5, 0.6], None)):
        found = verdict({"attention": {"trained": scores(*worse), "untrained": scores(0.5), "run": "d"}})
        assert (found.holds, found.computed, found.confirmed) == (true, True, True)
    assert "untrained: AUC 0.90 to 0.90, of targets of the worse label 0.50 to 0.50" in found.reason


# TokenGT


def test_maps_that_are_the_tensors_and_maps_of_another_order():
    torch.manual_seed(0)
    path = torch.tensor([[0, 1, 1, 2, 2, 3, 4, 5, 5, 6], [1, 0, 2, 1, 3, 2, 5, 4, 6, 5]])
    batch = GraphBatch(torch.zeros(7, 1), path, torch.tensor([0, 4, 7]))
    targets = create_model("tokengt-attention", hidden_dim=8, head_dim=4).targets(batch).double()

    def summary(attention):
        sums = attention_maps.Sums()
        for part in (slice(0, 1), slice(1, 2)):
            sums.add(attention[part], targets[part])
        return sums.summary()

    found, other = summary(targets), summary(targets.roll(1, 1))
    assert found["nearest"] == list(range(15))
    assert found["share"] == found["cosine"] == [1.0] * 15
    assert other["nearest"] == [14, *range(14)]
    assert max(other["share"] + other["cosine"]) == 0


def test_the_verdict_on_maps(monkeypatch):
    right = {"nearest": list(range(15)), "share": [0.95] * 15, "uniform": [0.1] * 15}

    def verdict(cases=("dense, ORF", "dense, Lap"), **content):
        numbers = {name if name == "stand-in" else f"dense, {name}": value for name, value in content.items()}
        return verdict_of(monkeypatch, "maps_are_bases", numbers, paper="tokengt", cases=list(cases))

    none = verdict()
    assert (none.computed, none.holds) == (False, None)
    cell = "tokengt/ba-equivariant-basis-dense/tokengt-attention-orf-type"
    assert f"2 trained runs with their weights: `gt-bench train {cell}`, `gt-bench" in none.reason
    assert "--recompute attention_maps --case 'dense, ORF' --case 'dense, Lap'`" in none.reason
    wrong_first = right | {"nearest": [1, *range(1, 15)]}
    stand_in = verdict(["dense, ORF"], **{"stand-in": wrong_first})  # shown, but decides nothing
    assert (stand_in.computed, stand_in.holds) == (False, None)
    assert "; stand-in: 14 of 15 heads nearest to their own tensor" in stand_in.reason
    one = verdict(ORF=right)
    assert (one.computed, one.holds) == (False, None)
    assert "tokengt-attention-orf-type" not in one.reason
    assert verdict(ORF=right, Lap=right).holds is True
    assert verdict(ORF=right, Lap=right | {"share": [0.95] * 14 + [0.5]}).holds is None
    wrong = verdict(ORF=wrong_first)  # one counterexample is enough
    assert (wrong.holds, wrong.computed) == (False, True)
    assert "14 of 15 heads nearest to their own tensor" in wrong.reason


@pytest.mark.parametrize(("name", "specials"), [("tokengt", 1), ("tokengt-released", 2)])
def test_the_attention_of_a_token_is_that_of_its_layer(name, specials):
    torch.manual_seed(0)
    sizes = {"hidden_dim": 8, "num_heads": 2, "num_layers": 2, "node_identifiers": "orf", "node_id_dim": 5}
    model = create_model(name, in_dim=3, out_dim=2, level="node", **sizes).double().eval()
    path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    batch = GraphBatch(torch.randn(5, 3, dtype=torch.float64), path, torch.tensor([0, 5]))
    passed = []
    for layer in model.layers:
        layer.attn.register_forward_hook(lambda module, given, out: passed.append((module, given[0], out)))
    weights = attention_distance.attention(model, batch)
    assert [w.shape for w in weights] == [(2, specials + 11, specials + 11)] * 2
    for w, (of, x, out) in zip(weights, passed, strict=True):
        value = torch.nn.functional.linear(x, of.qkv.weight, of.qkv.bias).chunk(3, 1)[2].unflatten(1, (2, -1))
        mixed = torch.einsum("hij,jhc->ihc", w, value)  # value: [T, H, C]
        torch.testing.assert_close(of.out(mixed.flatten(1)), out)
    assert all(not layer.attn._forward_pre_hooks for layer in model.layers)


def test_distances_of_attention_set_by_hand():
    # the path 0 - 1 - 2 - 3 and a node by itself; tokens are its five nodes, then the edges
    path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    hops = attention_distance.token_distances(GraphBatch(torch.zeros(5, 1), path, torch.tensor([0, 5])))
    infinite = float("inf")
    assert hops[0].tolist() == [0, 1, 2, 3, infinite, 0, 0, 1, 1, 2, 2]
    assert hops[5, 9:].tolist() == [1, 1]  # from edge (0, 1) to (2, 3)
    assert torch.equal(hops, hops.T)
    own, far = torch.eye(11), torch.zeros(11, 11)
    far[torch.arange(11), hops.where(hops.isfinite(), -1.0).argmax(1)] = 1
    special = torch.rand(2, 12, 12).double()  # to the special token, and from it, nothing counts
    special[:, 1:, 1:] = torch.stack([own, far])
    found = attention_distance.weighted(special, hops)
    furthest = hops.where(hops.isfinite(), -1.0).amax(1)
    assert found.tolist() == pytest.approx([0, furthest.mean().item()])
    even = attention_distance.weighted(torch.ones(1, 11, 11).double(), hops)[0]
    assert even == pytest.approx(np.mean([row[row.isfinite()].mean().item() for row in hops]))


def test_the_distances_of_a_stored_run(small, tmp_path, monkeypatch):
    monkeypatch.setattr(attention_distance, "GRAPHS", 3)
    packed = small("embedded/chains/tokengt", SMALL | {"epochs": 1}, encodings={"laplacian": {"k": 8}})
    record, _ = packed.run(0)
    found = attention_distance.compute("stand-in", tmp_path)
    assert (found["run"], found["graphs"], np.shape(found["distance"])) == (record.digest, 3, (2, 2))
    assert found["uniform"] > 0


def test_the_verdict_on_distances(monkeypatch):
    local, everywhere = [0.2, 1.0], [1.9, 1.8]

    def verdict(said, **content):
        names = {name: "stand-in" if name == "chains" else f"PCQM4Mv2, {name}" for name in content}
        numbers = {names[name]: {"distance": layers, "uniform": 2.0} for name, layers in content.items()}
        return verdict_of(monkeypatch, "attention_distances", numbers, paper="tokengt", said=said)

    alone = verdict("deeper", chains=[local, everywhere])
    assert (alone.computed, alone.holds) == (False, None)
    needs = "2 trained runs with their weights: `gt-bench train tokengt/pcqm4mv2/tokengt-orf`, `gt-bench train"
    assert needs in alone.reason
    assert alone.reason.endswith(
        "stand-in, 2 layers: distances divided by that of uniform attention (2.00 hops) 0.10 to 0.50, 0.90 to 0.95"
    )
    rising, falling = [local, local, everywhere, everywhere], [everywhere, everywhere, local, local]
    slightly = [local, local, [0.4, 1.1], [0.4, 1.1]]
    for orf, lap, true in ((rising, rising, True), (rising, falling, False), (rising, slightly, None)):
        assert verdict("deeper", ORF=orf, Lap=lap).holds is true
    mixed = [[0.9, 1.7], local, local, local]
    assert [verdict("lowest", ORF=mixed, Lap=lap).holds for lap in (mixed, rising)] == [True, False]
    even = [[1.0, 1.1]] * 4
    assert [verdict("spread", ORF=even, Lap=mixed).holds, verdict("spread", ORF=mixed, Lap=even).holds] == [True, False]
