"""PPGT's fast paths equal its equations in values and gradients, and are used as documented."""

import pytest
import torch

from gt_models import create_model, kernels
from gt_models.batch import GraphBatch
from gt_models.kernels import all_operations
from gt_models.kernels.attached import ppgt as module
from gt_models.ppgt.stem import PairStem
from tests.gt_models import checks
from tests.gt_models.ppgt.cases import SMALL, ZINC, graphs, small

MODELS = {
    "paper": {"attn_dropout": 0.3, "drop_path": 0.2},
    "dot products": {"attention": "sdp", "urpe": False, "norm": "rms", "attn_dropout": 0.3},
    "released": {"name": "ppgt-released", "attn_dropout": 0.3, "layer_scale": 0.5, "stem_norm": True},
    "released without gate": {"name": "ppgt-released", "urpe": False, "stem_ffn_init": "kaiming"},
}


def steps(model, batch: GraphBatch) -> tuple[list[list[torch.Tensor]], dict]:
    """Output and gradients by the equations and by the fast paths, and the forms of the latter."""
    results = []
    for form in ("reference", None):
        model.zero_grad()
        torch.manual_seed(1)
        with kernels.use(form), kernels.forms_taken() as taken:
            out = model(batch)
        out.sin().sum().backward()
        results.append([out, *(p.grad for p in model.parameters() if p.grad is not None)])
    return results, {name: dict(forms) for name, forms in taken.items()}


def assert_close(results: list[list[torch.Tensor]], tolerance: float = 1e-10) -> None:
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_they_are_the_equations(settings):
    model, batch = small(**settings).train(), checks.collate(graphs((4, 1, 6, 19)))
    results, taken = steps(model, batch)
    assert_close(results)
    assert taken["ppgt_bias_and_gate"] == {"one product": 1}
    assert taken["gated_attention"] == {"numba": 2}


@pytest.mark.slow
def test_in_single_precision_maps_of_pairs_take_their_kernels():
    torch.manual_seed(0)
    settings = ZINC | {"num_layers": 2, "rrwp_dim": 5, "edge_dim": None, "in_dim": 3}
    model = create_model("ppgt", **settings)
    batch = checks.collate(checks.random_graphs((16,) * 33, pair_encodings=(("rrwp", 5),), in_dim=3))
    results, taken = steps(model, batch.to("cpu", torch.float32))
    for expected, found in zip(*results, strict=True):
        assert (found - expected).norm() < 1e-3 * expected.norm() + 1e-5
    assert taken["gelu_mlp"] == {"numba": 3}  # of the stem and its feed-forward networks
    assert taken["row_linear"] == {"numba": 1}  # theta and phi of both layers
    assert taken["ada_rms"] == {"numba": 2 + 1 + 2 * 2 + 1}


def test_layers_with_hooks_or_another_forward_are_called_one_by_one():
    batch, model, seen = checks.collate(graphs()), small(), []
    expected = model(batch)
    layer, linear = model.layers[0], model.layers[1].attention.pair_linear
    forward = layer.forward
    handle = linear.register_forward_hook(lambda *_: seen.append("hook"))
    for change in ("hook", "forward"):
        if change == "forward":  # as activation checkpointing does
            handle.remove()
            layer.forward = lambda *args: seen.append("forward") or forward(*args)
        with kernels.forms_taken() as taken:
            torch.testing.assert_close(model(batch), expected, rtol=1e-10, atol=1e-10)
        assert taken["ppgt_bias_and_gate"] == {"reference": 1}
        assert taken["gated_attention"] == {"numba": 2}  # this part is unchanged
    assert seen == ["hook", "forward"]


def test_a_subclass_of_attention_keeps_its_equations():
    class Squared(module.SL2Attention):
        def bias_and_gate(self, p):
            return super().bias_and_gate(p).square()

    model, batch = small(), checks.collate(graphs())
    before = model(batch)
    for layer in model.layers:
        layer.attention.__class__ = Squared
    assert not torch.allclose(model(batch), before)


# -- memory of many pairs


def stem_and_inputs(norm: str = "adarms") -> tuple[PairStem, list[torch.Tensor]]:
    torch.manual_seed(0)
    stem = PairStem(7, 16, 16, 2, 2, 3, norm).double()
    return stem, [torch.rand(70, width, dtype=torch.float64, requires_grad=True) for width in (7, 16, 2)]


@pytest.mark.slow
def test_chunks_change_nothing_and_reach_all_inputs(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 16)
    monkeypatch.setattr(module, "LARGE", 32)
    found = []
    for form in ("reference", None):
        stem, inputs = stem_and_inputs()
        with kernels.use(form), kernels.forms_taken() as taken:
            out = stem(*inputs)
        out.square().sum().backward()
        found.append([out, *(t.grad for t in (*inputs, *stem.parameters()))])
    assert_close(found)
    assert taken["ppgt_pairs_of_PairStem"]["in chunks"] == 1


def test_chunks_of_a_functional_call_learn_the_weights_that_are_given(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 16)
    monkeypatch.setattr(module, "LARGE", 32)
    found = []
    for form in ("reference", None):
        stem, inputs = stem_and_inputs()
        given = {name: (1.1 * p.detach()).requires_grad_() for name, p in stem.named_parameters()}
        with kernels.use(form):
            out = torch.func.functional_call(stem, given, tuple(inputs))
        found.append([out, *torch.autograd.grad(out.square().sum(), [*given.values(), *inputs])])
    assert_close(found)


def test_few_pairs_batch_norm_and_hooks_are_not_taken_in_chunks(monkeypatch):
    form = all_operations()["ppgt_pairs_of_PairStem"].forms[0]
    stem, (raw, *_) = stem_and_inputs()
    assert form.why_not(stem, raw) == "at most 262144 pairs: storing all is faster"
    monkeypatch.setattr(module, "LARGE", 32)
    assert form.why_not(stem, raw) is None
    assert form.why_not(stem_and_inputs("batch")[0], raw) == "batch norm reads all pairs"
    handle = stem.blocks[1].norm.register_forward_hook(lambda *_: None)
    assert form.why_not(stem, raw) == "blocks.1.norm has hooks"
    handle.remove()
    stem.register_forward_hook(lambda module, given, out: 2 * out)  # once, and not also of each chunk
    assert form.why_not(stem, raw) == "the stem has hooks"


def test_all_models_have_the_attached_forms():
    for name, changes in (("ppgt-node2subgraph-released", {"edge_dim": None}), ("i2gnn-ppgt", {})):
        given = {key: value for key, value in SMALL.items() if changes.get(key, value) is not None}
        model = create_model(name, **given).double()
        data = checks.random_graphs((5, 3, 6), pair_encodings=(("rrwp", 5),), node_encodings=(("target", 1),))
        with kernels.forms_taken() as taken:
            model(checks.collate(data))
        assert dict(taken["ppgt_bias_and_gate"]) == {"one product": 1}
        assert dict(taken["ppgt_released_attention"]) == {"by graph": 2}
