"""Polynormer's fast paths equal its equations in values and gradients, and are used as documented."""

import pytest
import torch

from gt_models import kernels
from gt_models.batch import GraphBatch
from gt_models.kernels import all_operations
from gt_models.kernels.attached import polynormer as module
from tests.gt_models import checks
from tests.gt_models.polynormer.cases import build, graphs, messy_graph

MODELS = {
    "gat": {},
    "gcn": {"local_layer": "gcn", "version": "v2"},
    "random walk": {"local_layer": "random-walk", "norm": "none"},
    "both": {"attention": "local-and-global"},
    "released": {"name": "polynormer-released", "beta": "raw", "beta_init": 0.3},
    "large graphs": {
        "name": "polynormer-released", "local_layer": "gcn", "beta": "constant", "beta_init": 0.9, "batch_norm": True,
        "input_layer": False,
    },
}  # fmt: skip


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
    return results, {name: set(forms) for name, forms in taken.items()}


@pytest.mark.slow
@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_they_are_the_equations(settings):
    for batch in (checks.collate(graphs()), messy_graph()):
        results, taken = steps(build(dropout=0.4, in_dropout=0.2, relu=True, **settings), batch)
        for expected, found in zip(*results, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        fused = [forms for name, forms in taken.items() if name.endswith(("_local", "_global"))]
        assert fused
        assert all(forms == {"one product"} for forms in fused)


def test_graphs_of_very_different_sizes_are_not_padded():
    batch = checks.collate(checks.random_graphs((1, 2, 60, 1, 1, 1)))
    results, taken = steps(build("graph"), batch)
    assert taken["polynormer_attention"] == {"by graph"}
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_chunks_and_what_closes_a_layer_are_for_a_gpu(monkeypatch):
    monkeypatch.setattr(module.linear_attention, "CHUNK", 4)
    layer, graph = build().global_layers[0].attention, checks.random_graphs((11,))[0]
    given = [torch.rand(11, 8, dtype=torch.float64) for _ in range(3)]
    torch.testing.assert_close(
        module.in_chunks(layer, *given, graph), layer.attend(*given, graph), rtol=1e-12, atol=1e-12
    )
    chunks = next(form for form in all_operations()["polynormer_attention"].forms if form.name == "in chunks")
    (triton,) = all_operations()["polynormer_combine"].forms
    local = build().local_layers[0]
    assert chunks.reason((layer, *given, graph), {}) == "runs on cuda, not on cpu"
    assert triton.reason((local, *given[:2], None), {}) == "runs on cuda, not on cpu"
    assert chunks.why_not(layer, *given, graph) is None
    assert chunks.why_not(layer, *(t[:7] for t in given), graph) == "fewer than 8 nodes"
    assert chunks.why_not(layer, *given, checks.collate(graphs())) == "takes one graph"
    assert triton.why_not(local, *given[:2], None) is None
    assert triton.why_not(local, *given[:2], given[2][:, :1]) == "b differs from node to node"
    assert triton.why_not(build(norm="none").local_layers[0], *given[:2], None) == "norm is a NoneType"


def test_what_closes_a_layer_is_equation_17():
    local = build(dropout=0.3, relu=True).local_layers[0]
    h, a = torch.randn(2, 9, 8, dtype=torch.float64)
    results = []
    for combine in (module.combine, type(local).combine):
        torch.manual_seed(2)
        results.append(combine(local, h, a, None))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)
