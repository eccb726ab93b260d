"""PyTorch's tools on the papers' models: adapters, hooks, quantisation, half precision, second derivatives.

They work if a model calls its submodules and never reads the weight of a child.
"""

import ast
import copy
import importlib.util
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gt_models import model_info
from gt_models.kernels import use
from gt_models.kernels.once_differentiable import SecondDerivativeError
from gt_models.registry import list_models, model_module
from tests.gt_models.every_model import batch, build, outputs

pytestmark = pytest.mark.slow

MODELS = [
    "polynormer", "polynormer-released", "edge-transformer", "edge-transformer-released",
    "edge-transformer-brec-released", "tokengt",
    "tokengt-attention", "tokengt-released", "hot", "hot-released", "ppgt", "ppgt-released",
    "ppgt-node2subgraph-released",
]  # fmt: skip
CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList)


def files_of(name: str) -> list[Path]:
    """The file of a model, or the files of its package."""
    origin = Path(importlib.util.find_spec(model_module(name)).origin)
    return sorted(origin.parent.glob("*.py")) if origin.name == "__init__.py" else [origin]


def imports_kernels(path: Path) -> bool:
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [getattr(node, "module", None) or "" for node in found] + [a.name for node in found for a in node.names]
    return any("kernels" in name.split(".") for name in names)


def test_every_paper_s_model_is_listed():
    papers = ("edge-transformer", "hot", "polynormer", "ppgt", "tokengt")
    assert set(MODELS) == {name for name in list_models() if name.startswith(papers)}


@pytest.mark.parametrize("name", MODELS)
def test_a_paper_s_file_imports_no_kernel(name):
    assert not [path for path in files_of(name) if imports_kernels(path)]


class LowRank(nn.Module):
    """A Linear with a low-rank update (LoRA), by which adapter libraries replace a Linear."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base, self.down, self.up = base, nn.Linear(base.in_features, 2), nn.Linear(2, base.out_features)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


def parent_of(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, last = name.rpartition(".")
    return model.get_submodule(path), last


@pytest.mark.parametrize("name", list_models())
def test_an_adapter_in_place_of_any_linear_is_called(name):
    deep = {"num_layers": 2} if name == "graphormer" else {}  # the graph's token is not biased by edges
    model, data = build(name, **deep).double().eval(), batch().to("cpu", torch.float64)
    with torch.no_grad():  # some initial weights are zero, those of PPGT are small
        torch._foreach_add_(parameters := list(model.parameters()), [0.1 * torch.randn_like(p) for p in parameters])
    expected = outputs(model, data)
    linears = [key for key, module in model.named_modules() if isinstance(module, nn.Linear)]
    assert len(linears) >= (3 if name in MODELS else 1)
    for key in linears:
        parent, last = parent_of(model, key)
        base = getattr(parent, last)
        setattr(parent, last, LowRank(base).double())
        assert not torch.allclose(outputs(model, data), expected, rtol=1e-9, atol=1e-12), f"{key} is not called"
        setattr(parent, last, base)
    torch.testing.assert_close(outputs(model, data), expected, rtol=0, atol=0)


# without dropout layers of a depth that these small models do not have; a model of which parts are called, and
# torch_geometric's own layer
NOT_CALLED = {"exphormer": "dropout", "linkx": "dropout", "i2gnn-ppgt": "ppgt", "sat": ".*fused_aggr"}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", list_models())
def test_the_hooks_of_every_submodule_fire(name, training):
    """Forward hooks, with which capture libraries trace a model, and backward hooks."""
    deep = {"num_layers": 2} if "num_layers" in model_info(name).arguments and not training else {}
    model, seen, behind = build(name, **deep).train(training), {}, set()
    for key, module in model.named_modules():
        if not isinstance(module, CONTAINERS):
            module.register_forward_hook(lambda *given, key=key: seen.update({key: given[2]}))
        if isinstance(module, nn.Linear | nn.LayerNorm):
            module.register_full_backward_hook(lambda *_, key=key: behind.add(key))
    outputs(model, batch()).sum().backward()
    missing = {key for key, module in model.named_modules() if not isinstance(module, CONTAINERS)} - set(seen)
    assert not [key for key in missing if not re.fullmatch(NOT_CALLED.get(name, ""), key)]
    assert name not in MODELS or all(isinstance(out, Tensor) for out in seen.values())
    assert behind == {key for key, module in model.named_modules() if isinstance(module, nn.Linear | nn.LayerNorm)}


@pytest.mark.parametrize("name", MODELS)
def test_hooks_change_no_number(name):
    """A layer uses its fast path, but with hooks on its children it uses its equations."""
    model, data = build(name).double().eval(), batch().to("cpu", torch.float64)
    hooked = copy.deepcopy(model)
    for module in hooked.modules():
        module.register_forward_hook(lambda *_: None)
    torch.testing.assert_close(outputs(hooked, data), outputs(model, data), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", list_models())
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_dynamic_quantisation(name):
    model, data = build(name).eval(), batch()
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    kept = [key for key, module in quantized.named_modules() if type(module) is nn.Linear]
    assert kept == []
    expected, found = outputs(model, data), outputs(quantized, data)
    assert (found - expected).abs().max() < 0.2 * expected.abs().max()
    assert not torch.equal(found, expected)


@pytest.mark.parametrize("name", MODELS)
def test_functional_call_and_its_gradient(name):
    model, data = build(name).eval(), batch()
    others = {key: 1.1 * value.detach() for key, value in model.named_parameters()}
    changed = copy.deepcopy(model)
    changed.load_state_dict(others, strict=False)
    changed(data).square().sum().backward()
    found = torch.func.functional_call(model, others, (data,))
    torch.testing.assert_close(found, changed(data), rtol=1e-4, atol=1e-5)
    gradients = torch.func.grad(lambda p: torch.func.functional_call(model, p, (data,)).square().sum())(others)
    for key, parameter in changed.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(gradients[key], expected, rtol=1e-3, atol=1e-4, msg=lambda m, key=key: f"{key}: {m}")


@pytest.mark.parametrize("name", MODELS)
def test_second_derivatives_of_the_equations(name):
    """Second derivatives, compared with differences of the first ones along one direction."""
    model, data = build(name).double().eval(), batch().to("cpu", torch.float64)
    parameters = [p for p in model.parameters() if p.requires_grad]
    with torch.no_grad():  # initially two arguments of a maximum may be equal
        torch._foreach_add_(parameters, [0.1 * torch.randn_like(p) for p in parameters])
    direction = [torch.randn_like(p) for p in parameters]

    def slope(create_graph: bool = False) -> tuple[Tensor, ...]:
        loss = model(data).square().sum()
        return torch.autograd.grad(
            loss, parameters, create_graph=create_graph, allow_unused=True, materialize_grads=True
        )

    def shifted(step: float) -> list[Tensor]:
        with torch.no_grad():
            torch._foreach_add_(parameters, direction, alpha=step)
        found = slope()
        with torch.no_grad():
            torch._foreach_add_(parameters, direction, alpha=-step)
        return [g.detach() for g in found]

    with use("reference"):
        along = sum((g * d).sum() for g, d in zip(slope(True), direction, strict=True))
        product = torch.autograd.grad(along, parameters, allow_unused=True, materialize_grads=True)
        ahead, behind = shifted(1e-7), shifted(-1e-7)
    scale = max(p.abs().max() for p in product)
    for found, one, other in zip(product, ahead, behind, strict=True):
        assert (found - (one - other) / 2e-7).abs().max() < 1e-4 * scale


@pytest.mark.parametrize("name", list_models())
def test_second_derivatives_are_right_or_refused(name):
    """`torch.autograd.grad` must not leave out what goes through a fast form, as it does with torch's own decorator."""
    model, data = build(name).double().eval(), batch().to("cpu", torch.float64)
    parameters = [p for p in model.parameters() if p.requires_grad]
    with torch.no_grad():
        torch._foreach_add_(parameters, [0.1 * torch.randn_like(p) for p in parameters])

    def product() -> tuple[Tensor, ...]:
        loss = outputs(model, data).sin().sum()
        slope = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True, materialize_grads=True)
        along = sum(g.sin().sum() for g in slope)
        return torch.autograd.grad(along, parameters, allow_unused=True, materialize_grads=True)

    with use("reference"):
        expected = product()
    try:
        found = product()
    except SecondDerivativeError:
        return
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6 * (1 + float(other.abs().max())))
