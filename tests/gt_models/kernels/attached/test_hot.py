"""HOT's fast paths equal its equations in values and gradients, and are used as documented."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from gt_models.hot import HigherOrderAttention
from gt_models.hot.support import Support
from gt_models.kernels import all_operations, forms_taken, use
from gt_models.kernels.attached import hot as module
from gt_models.layers.performer import RandomFeatures
from gt_models.released.hot import ReleasedAttention

SETTINGS = {
    "nodes": {"level": "node"},
    "graphs": {"level": "graph", "form": "dense"},
    "hyperedges": {"level": "hyperedge"},
    "no global classes": {"level": "node", "global_classes": False},
    "softmax": {"level": "node", "attention": "softmax"},
}


def build(name: str = "hot", **arguments) -> nn.Module:
    torch.manual_seed(0)
    shape = {"hidden_dim": 8, "num_layers": 2, "num_heads": 2, "edge_dim": 3, "kernel": "generalized", "dropout": 0.3}
    return create_model(name, in_dim=4, out_dim=3, redraw_interval=None, **(shape | arguments)).double()


def batch() -> GraphBatch:
    """A batch with parallel edges, a self-loop and a graph without edges."""
    rng = torch.Generator().manual_seed(0)
    edges = torch.tensor([[0, 1, 1, 4, 5, 7, 0, 3, 2], [1, 0, 2, 0, 7, 5, 1, 3, 4]])
    x, attr = (torch.randn(n, d, generator=rng, dtype=torch.float64) for n, d in ((10, 4), (9, 3)))
    extras = {"hyperedge_index": torch.tensor([[0, 1, 2], [5, 7, 6], [0, 1, 2]])}
    return GraphBatch(x, edges, torch.tensor([0, 5, 8, 10]), attr, extras=extras)


def step(model: nn.Module, form: str | None) -> tuple[list[Tensor], dict[str, set[str]]]:
    """Output and gradients of a training step, and the forms that were used."""
    model.zero_grad()
    torch.manual_seed(1)
    with use(form), forms_taken() as taken:
        out = model(batch())
    out.sin().sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [out.detach(), *gradients], {name: set(forms) for name, forms in taken.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hot", "hot-released"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_they_are_the_equations(name, settings):
    model = build(name, **settings)
    (expected, plain), (found, fast) = step(model, "reference"), step(model, None)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-10, atol=1e-10)
    assert all(forms == {"reference"} for forms in plain.values())
    if settings.get("attention") == "softmax":
        assert fast["hot_softmax"] == {"fused"}
        assert fast["hot_attention"] == {"reference"}
    else:
        assert "numba" in fast["hot_attention"]
        assert fast["kernel_attention"] == {"numba"}


class Scaled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize("form", [HigherOrderAttention, ReleasedAttention])
def test_reasons_against_the_kernel_form(form):
    support, values = Support.sparse(batch()), torch.randn(10 + 7, 4, dtype=torch.float64)
    features = RandomFeatures(2, 3, None, "relu")
    (numba,) = all_operations()["hot_attention"].forms

    def why_not(layer: nn.Module, features: RandomFeatures | None = features) -> str | None:
        return numba.why_not(layer, values, support, features)

    layer = form(2, 2, 4, 4, 4, 2, attention="kernel")
    assert why_not(layer) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert why_not(layer) == "autocast is on"
    assert why_not(layer, None) == "not the ReLU kernel"
    assert why_not(layer, RandomFeatures(2, 3, None, "softmax")) == "not the ReLU kernel"
    assert why_not(form(2, 2, 4, 4, 4, 2)) == "not the ReLU kernel"
    handle = layer.maps["2"].register_forward_hook(lambda *_: None)
    assert why_not(layer) == "maps.2 has hooks"
    handle.remove()
    handle = features.register_forward_hook(lambda *_: None)
    assert why_not(layer) == "features has hooks"
    handle.remove()
    layer.output = Scaled(40, 4)
    assert why_not(layer) == "output is a Scaled"


@pytest.mark.slow
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("columns", [slice(None), slice(16, None)])
def test_a_large_product_is_given_to_onednn_without_gaps(monkeypatch, turned, columns):
    """oneDNN is a thousand times slower for a weight with gaps between its rows and columns."""
    torch.manual_seed(0)
    whole = torch.randn(64, 48, requires_grad=True)
    weight = whole[:, columns].T if turned else whole[:, columns]
    x = torch.randn(1 + module.LARGE // weight.numel(), weight.size(1), requires_grad=True)
    bias, given = torch.randn(weight.size(0)), []
    monkeypatch.setattr(module, "row_linear", lambda x, w, b: given.append(w) or F.linear(x, w, b))
    found = module._product(x, weight, bias)
    assert given[0].is_contiguous() or given[0].T.is_contiguous()
    torch.testing.assert_close(found, F.linear(x, weight, bias))
    monkeypatch.undo()
    with forms_taken() as taken:
        outcomes = [f(x, weight, bias) for f in (module._product, F.linear)]
    assert sum(taken["row_linear"].values()) == 1
    results = [[out, *torch.autograd.grad(out.square().sum(), (x, whole))] for out in outcomes]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-2)
    with forms_taken() as taken:
        module._product(x[1:2], weight, bias)
    assert not taken


def test_the_first_batch_may_have_no_nodes():
    """The self-check of a kernel at its first use must not depend on the sizes of the batch."""
    kernel = all_operations()["kernel_attention"]
    kernel._failed.clear()
    model = build(level="node", edge_dim=None)
    out = model(GraphBatch(torch.zeros(0, 4), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 0])))
    assert out.shape == (0, 3)
    assert set(kernel._failed.values()) <= {None}
