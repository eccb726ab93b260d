"""Batches of a few fixed sizes, and compiled models: the numbers of unpadded batches, and few compilations."""

import inspect

import pytest
import torch
from torch import nn

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.validate import check_static
from gt_bench.training import static_batches as static
from gt_bench.training.static_batches import Sizes, StaticError, StaticForward, choose_sizes, pad
from gt_models import create_model, list_models, model_info
from gt_models.batch import GraphBatch
from tests.gt_bench.conftest import RECIPE
from tests.gt_bench.training.small_run import REGRESSION, make
from tests.gt_models.checks import collate, random_graphs
from tests.gt_models.every_model import NEVER_PADDED
from tests.refusals import refused

# small, and nothing is drawn
SMALL = {
    "in_dim": 4, "out_dim": 2, "edge_dim": 3, "hidden_dim": 8, "num_layers": 1, "num_local_layers": 1,
    "num_global_layers": 1, "gin_layers": 1, "num_stem_ffn": 1, "num_heads": 2, "head_dim": 4, "stem_dim": 8,
    "rrwp_hidden_dim": 4, "set_dims": (8, 8), "pair_dims": (8,), "rrwp_dim": 3, "rwse_dim": 3, "laplacian_dim": 0,
    "node_id_dim": 3, "pe_dim": 2, "path_length": 2, "num_nodes": 40, "samples": 0, "sign_flip": False, "dropout": 0.0,
    "redraw_interval": None,
}  # fmt: skip
# with these values, the numbers of rows of padded graphs, nodes, edges and pairs are distinct
SIZES = (5, 3, 4, 7, 2)


@pytest.fixture(autouse=True)
def _not_to_machine_code(monkeypatch):
    monkeypatch.setattr(static, "BACKEND", "eager")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def graphs(sizes=SIZES, seed=0) -> GraphBatch:
    """A batch with every encoding."""
    encodings = {
        "pair_encodings": (("rrwp", 3),),
        "node_encodings": (("laplacian_eigenvectors", 3), ("second_eigenvector", 1), ("rwse", 3)),
    }
    found, rng = collate(random_graphs(sizes, dtype=torch.float64, **encodings)), torch.Generator().manual_seed(seed)
    paths = torch.randint(-1, found.num_edges, (found.num_pairs, 2), generator=rng)
    owner = found.batch[found.pair_nodes[0]][:, None]  # the graph of a pair
    graph = torch.cat([found.batch[found.edge_index[0]], torch.tensor([-1])])  # of an edge; -1 has none
    found.encodings |= {
        "laplacian_eigenvalues": torch.rand(len(sizes), 3, generator=rng, dtype=torch.float64),
        "hops": torch.randn(found.num_nodes, 16, generator=rng, dtype=torch.float64),
        "number": found.local[:, None],
        "expander": torch.randint(-1, min(sizes), (found.num_nodes, 3), generator=rng),
        "shortest_path_distance": torch.randint(-1, 5, (found.num_pairs, 1), generator=rng),
        "shortest_path_edges": torch.where(graph[paths] == owner, paths, -1),
    }
    return found


def build(name: str, level: str, **others) -> nn.Module:
    known = inspect.signature(model_info(name).cls).parameters
    arguments = {key: 0.0 for key in known if key.endswith(("dropout", "drop_path"))}
    arguments |= {key: value for key, value in SMALL.items() if key in known} | others
    torch.manual_seed(0)
    return create_model(name, level=level, **arguments).double()


def levels(name: str) -> list[str]:
    return [level for level in model_info(name).levels if level in ("graph", "node", "pair")]


def step(model: nn.Module, batch: GraphBatch) -> dict[str, torch.Tensor]:
    """Output, gradients and buffers after a step."""
    torch.manual_seed(1)
    model.zero_grad()
    out = model(batch)
    (out * torch.arange(out.numel(), dtype=out.dtype).view_as(out).cos()).sum().backward()
    gradients = {f"grad {name}": p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    buffers = {f"buffer {name}": buffer.clone() for name, buffer in model.named_buffers()}
    return {"output": out.detach()} | gradients | buffers


def assert_same_numbers(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    """Compares to rounding. The scale of a gradient is that of the largest: some are zero up to rounding."""
    assert mine.keys() == theirs.keys()
    scale = max(float(value.abs().max()) for name, value in theirs.items() if name.startswith("grad") and value.numel())
    for name, value in theirs.items():
        atol = 1e-9 * scale if name.startswith("grad") else 1e-10
        torch.testing.assert_close(mine[name], value, rtol=1e-8, atol=atol, msg=lambda m, name=name: f"{name}: {m}")


def compare(name: str, level: str, mode: str | None, **others) -> None:
    one, other, batch = build(name, level, **others), build(name, level, **others), graphs()
    sizes = choose_sizes([Sizes.of(batch), Sizes.of(graphs((9, 4, 5, 6, 2, 3)))], 1)
    assert len(set(sizes[0].rows())) == 4
    forward = StaticForward(other, sizes, mode)
    for training in (True, True, False):  # the second step uses statistics of the first one
        one.train(training)
        other.train(training)
        assert_same_numbers(step(other, graphs()), step(one, batch))
    assert forward.batches == {"padded": 3}
    # without dropout and BatchNorm, training and evaluation are the same code
    assert forward.compilations in ((1, 2) if mode else (0,))
    assert one.state_dict().keys() == other.state_dict().keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(static.MODELS))
def test_a_compiled_model_on_padded_batches(name):
    """One graph of operations; outputs, gradients and statistics are those without padding and compiler."""
    compare(name, levels(name)[0], "default")


def test_every_registered_model_is_compiled():
    """Here or in tests/gt_models/test_compile.py."""
    assert set(list_models()) == static.MODELS | NEVER_PADDED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "level", "others"),
    [
        *((name, level, {}) for name in sorted(static.MODELS) for level in levels(name)[1:]),
        *((name, "graph", {"attention": "performer"}) for name in ("gps", "tokengt")),
        # statistics of batch normalisation over nodes, pairs, edges and graphs
        ("ppgt", "graph", {"norm": "batch"}),
        ("ppgt-released", "graph", {"pool_norm": True, "out_norm": True}),
        ("grit", "graph", {"norm": "batch"}),
        ("gin", "graph", {"mlp_norm": True}),
        ("gatedgcn", "graph", {"batch_norm": True}),
    ],
)
def test_padded_batches_change_no_number(name, level, others):
    compare(name, level, None, **others)


def test_only_parameters_and_buffers_have_a_fixed_place_in_a_cuda_graph(monkeypatch):
    """Else each step records its graph again: 167 ms a step of GPS on an H100, of which the GPU computed for 3."""
    fixed: list[str] = []

    def backend(module, inputs):
        for node, value in zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True):
            fixed.extend([node.name] if getattr(value, "_dynamo_static_input_type", None) else [])
        return module.forward

    monkeypatch.setattr(static, "BACKEND", backend)
    model = build("gin", "graph")  # with batch normalisation
    StaticForward(model, choose_sizes([Sizes.of(graphs())], 1), "default")
    step(model, graphs())
    assert len(fixed) == len([*model.parameters(), *model.buffers()])
    assert all("_parameters_" in name or "_buffers_" in name for name in fixed)


def test_padding_is_a_suffix_and_the_sizes_are_those_asked_for():
    rng = torch.Generator().manual_seed(0)
    batches = [
        graphs(tuple(torch.randint(1, 9, (int(count),), generator=rng).tolist()))
        for count in torch.randint(1, 7, (12,), generator=rng)
    ]
    for count in (1, 2, 3):
        chosen = choose_sizes([Sizes.of(batch) for batch in batches], count)
        assert 1 <= len(chosen) <= count
        assert [sizes.nodes for sizes in chosen] == sorted(sizes.nodes for sizes in chosen)
        for batch in batches:
            sizes = next(sizes for sizes in chosen if sizes.fits(Sizes.of(batch)))
            padded = pad(batch, sizes)
            assert Sizes.of(padded) == sizes
            assert int(padded.ptr[-1]) == padded.num_nodes
            assert bool((padded.sizes > 0).all())
            assert torch.equal(padded.x[: batch.num_nodes], batch.x)
            assert not padded.x[batch.num_nodes :].any()
            assert torch.equal(padded.edge_index[:, : batch.num_edges], batch.edge_index)
            for mine, theirs in zip(padded.pair_nodes, batch.pair_nodes, strict=True):
                assert torch.equal(mine[: batch.num_pairs], theirs)
                assert int(mine[batch.num_pairs :].min()) >= batch.num_nodes
            assert torch.equal(padded.batch[padded.pair_nodes[0]], padded.batch[padded.pair_nodes[1]])
            assert bool((padded.encodings["shortest_path_edges"][batch.num_pairs :] == -1).all())


def test_a_small_group_of_sizes_needs_less_padding():
    small, large = [Sizes(4, n, n, n * n, 9, 9) for n in range(20, 30)], [Sizes(4, 200, 200, 10000, 60, 60)]
    one, two = choose_sizes(small * 5 + large, 1), choose_sizes(small * 5 + large, 2)
    assert len(one) == 1
    assert len(two) == 2
    assert two[0].nodes < 40 < two[1].nodes == one[0].nodes


def test_a_batch_that_fits_no_size_is_computed_without_padding():
    model, other = build("ppgt", "graph", norm="batch"), build("ppgt", "graph", norm="batch")
    forward = StaticForward(other, choose_sizes([Sizes.of(graphs((2, 3)))], 1), "default")
    assert_same_numbers(step(other, graphs()), step(model, graphs()))
    assert forward.batches == {"unpadded": 1}
    assert forward.compilations == 0


def test_rows_that_are_neither_graphs_nodes_edges_nor_pairs():
    norm, plain = nn.BatchNorm1d(3), nn.Linear(4, 2).double()
    model = nn.Sequential(norm)
    model.forward, plain.forward = lambda batch: norm(batch.x[:-1, :3]), lambda batch: batch.x[:-1]
    for one in (model, plain):
        StaticForward(one, choose_sizes([Sizes.of(graphs())], 1), None)
        with refused(StaticError, place="batch.static"):
            one(graphs())


def test_batch_normalisation_needs_two_graphs():
    model = build("gin", "graph", mlp_norm=True)
    StaticForward(model, choose_sizes([Sizes.of(graphs((4,)))], 1), None)
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        model(graphs((4,)))
    model.eval()(graphs((4,)))


def run(tmp_path, seed=0, **changes):
    """A finished run of a small GIN with BatchNorm, in float64.

    With SGD: Adam turns gradients that are zero up to rounding into whole steps.
    """
    build = lambda: create_model("gin", in_dim=4, out_dim=1, level="graph", hidden_dim=8, num_layers=1)  # noqa: E731
    changes = REGRESSION | {"precision": "float64", "epochs": 4, "optimizer": {"name": "sgd", "lr": 0.01}} | changes
    found = make(tmp_path, seed=seed, build=build, **changes)
    outcome = found.train()
    assert outcome.status == "ok", outcome.error
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "seeds"), [({"graphs": 4}, (0, 1)), ({"nodes": 25, "bucket": True}, (0,)), ({}, (0,))]
)
def test_a_run_has_the_curves_of_unpadded_batches_and_few_compilations(tmp_path, batch, seeds):
    """Some batches of later epochs may be larger than all sizes. The second run of a process compiles as few times."""
    plain = run(tmp_path, batch=batch)
    counters = torch._dynamo.utils.counters["stats"]
    for seed in seeds:
        before = counters["unique_graphs"]
        found = run(tmp_path, seed=seed, batch=batch | {"static": True}, compile="reduce-overhead")
        assert 0 < counters["unique_graphs"] - before == found.static.compilations <= static.COMPILATIONS
        report = found.static.report()
        assert report.compile_seconds > 0
        assert report.mode == "reduce-overhead"
        assert report.batches["padded"] > 10 * report.batches.get("unpadded", 0)
        if seed == 0:
            for curve in ("train_loss", "val_loss", "val"):
                assert found.outcome.curves[curve] == pytest.approx(plain.outcome.curves[curve], rel=1e-9)
            assert found.outcome.test_metrics == pytest.approx(plain.outcome.test_metrics, rel=1e-9)


class Counting(nn.Module):
    """Its code depends on more than sizes."""

    def __init__(self):
        super().__init__()
        self.out, self.calls = nn.Linear(4, 1), 0

    def forward(self, batch):
        self.calls += 1
        return batch.x.new_zeros(batch.num_graphs, 1).index_add(0, batch.batch, self.out(batch.x) * self.calls)


class Reading(Counting):
    def forward(self, batch):
        return self.out(batch.x[: batch.num_graphs]) * (2 if float(batch.x.sum()) > 0 else 1)


@pytest.mark.slow
@pytest.mark.parametrize("net", [Counting, Reading])
def test_a_model_that_cannot_be_compiled(tmp_path, net):
    changes = REGRESSION | {"batch": {"graphs": 2, "static": True}}
    with refused(StaticError, place="compile"):
        make(tmp_path, build=net, **changes, compile="default").train()


def recipe(**changes) -> Recipe:
    return Recipe(**{**RECIPE, "batch": {"graphs": 4, "static": True}, **changes})


NODES, COMPILED = {"split_kind": "node"}, {"compile": "default"}
FOUR = [{"name": f"{number}", "epochs": 1} for number in range(4)]


@pytest.mark.parametrize(
    ("changes", "data", "place", "value", "problem"),
    [
        ({"model": {"name": "i2gnn-ppgt"}}, {}, "batch.static", "i2gnn-ppgt", "does not support it"),
        ({"model": {"name": "my/net.py:Net"}}, {}, "batch.static", "my/net.py:Net", "does not support it"),
        ({}, {"task": "brec"}, "batch.static", "brec", "does not support it"),
        ({}, NODES, "batch.static", None, "is one graph"),
        ({"processes": 2}, {}, "batch.static", "processes", "cannot be combined"),
        ({"subgraphs": {"hops": 1, "max_nodes": 9}}, {}, "batch.static", "subgraphs", "cannot be combined"),
        ({"batch": {"graphs": 4}, **COMPILED}, {}, "compile", None, "have different sizes"),
        ({"batch": {"parts": 4}, **COMPILED}, NODES, "compile", "batch.parts", "cannot be combined"),
        ({"batch": {}, **COMPILED, "eval_device": "cpu"}, NODES, "compile", "eval_device", "cannot be combined"),
        ({**COMPILED, "epochs": None, "phases": FOUR}, {}, "compile", 4, "compiled at most 6 times"),
    ],
)
def test_models_without_static_batches_are_refused(changes, data, place, value, problem):
    given = {"task": "graph-regression", "split_kind": "graph"} | data
    with refused(RecipeError, file="toy.yaml", place=place, value=value) as error:
        check_static(recipe(**changes), **given, dataset="toy", path="toy.yaml")
    assert problem in error.value.problem


def test_graphs_that_are_not_replayed_are_reported():
    """torch only logs them."""
    model, batch = build("gin", "graph"), graphs()
    forward = StaticForward(model, None, "reduce-overhead")
    model(batch)
    assert "not_replayed" not in forward.report().to_disk()  # a CPU replays nothing

    forward.replays = True
    assert forward.report().to_disk()["not_replayed"] == 0
    torch._dynamo.utils.counters["inductor"]["cudagraph_skips"] += 2
    assert forward.report().not_replayed == 2


def test_both_settings_are_part_of_a_run_and_their_absence_is_not():
    plain, without = recipe(batch={"graphs": 4}).decisive(), recipe(batch={"graphs": 4, "static": False}).decisive()
    assert plain == without
    assert "static" not in plain["batch"]
    assert "compile" not in plain
    assert recipe().decisive()["batch"]["static"] is True
    assert recipe(compile="reduce-overhead").decisive()["compile"] == "reduce-overhead"
