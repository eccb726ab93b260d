"""When an attached implementation replaces the plain method of a module."""

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

from gt_models.kernels import Form, attach, explain, forms_taken, reads, use
from gt_models.kernels.dispatch import OPERATIONS
from gt_models.layers.accelerated import ATTACHED, accelerated


class Double(nn.Module):
    """y = 2 W x."""

    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(3, 3), nn.Dropout(0.0)

    @accelerated
    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.linear(self.dropout(x))

    def unmarked(self, x: Tensor) -> Tensor:
        return x


class Inherits(Double):
    """A subclass without an own implementation."""


class Triples(Double):
    """A subclass that calls the method that it overrides."""

    @accelerated
    def forward(self, x: Tensor) -> Tensor:
        return 1.5 * super().forward(x)


class Adapter(nn.Module):
    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 1


def fused(module: Double, x: Tensor) -> Tensor:
    return nn.functional.linear(x, 2 * module.linear.weight, 2 * module.linear.bias)


def fits(module: Double, x: Tensor) -> str | None:
    return reads(module, {"linear": nn.Linear})


@pytest.fixture(autouse=True)
def _fused():
    operations, attached = dict(OPERATIONS), dict(ATTACHED)
    attach(Double, "forward", "double_linear", [Form("fused", lambda: fused, fits)])
    yield
    for registry, before in ((OPERATIONS, operations), (ATTACHED, attached)):
        registry.clear()
        registry.update(before)


def taken_by(model: nn.Module, x: Tensor, name: str = "double_linear") -> tuple[Tensor, dict]:
    with forms_taken() as taken:
        out = model(x)
    return out, dict(taken.get(name, {}))


def test_a_form_replaces_the_method_with_equal_numbers_and_gradients():
    model, x = Double(), torch.randn(4, 3)
    out, taken = taken_by(model, x)
    assert taken == {"fused": 1}
    with use("reference"):
        expected, taken = taken_by(model, x)
    assert taken == {"reference": 1}
    torch.testing.assert_close(out, expected)
    for mine, other in zip(
        *(torch.autograd.grad(o.sum(), list(model.parameters())) for o in (out, expected)), strict=True
    ):
        torch.testing.assert_close(mine, other)


def test_copies_pickles_and_state_dicts_know_nothing_of_it():
    model, x = Double(), torch.randn(4, 3)
    expected = model(x)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    fresh = Double()
    fresh.load_state_dict(model.state_dict())
    assert list(model.state_dict()) == ["linear.weight", "linear.bias"]
    copies = (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(buffer, weights_only=False), fresh)
    for other in copies:
        out, taken = taken_by(other, x)
        assert torch.equal(out, expected)
        assert taken == {"fused": 1}


def hooked(model):
    model.linear.register_forward_hook(lambda *_: None)


def hooked_before(model):
    model.linear.register_forward_pre_hook(lambda *_: None)


def hooked_behind(model):
    model.linear.register_full_backward_hook(lambda *_: None)


def adapted(model):
    model.linear = Adapter(model.linear)


def parametrized(model):
    parametrize.register_parametrization(model.linear, "weight", nn.Identity())


def pruned(model):
    prune.random_unstructured(model.linear, "weight", 0.5)


def patched(model):
    model.linear.forward = lambda x: x


def quantized(model):
    torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8, inplace=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (hooked, "linear has hooks"),
        (hooked_before, "linear has hooks"),
        (hooked_behind, "linear has hooks"),
        (adapted, "linear is a Adapter"),
        (parametrized, "linear is a ParametrizedLinear"),
        (pruned, "linear has hooks"),
        (patched, "the forward of linear is replaced"),
        (quantized, "linear is a Linear"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_child_that_does_more_than_its_class_is_called(change, reason):
    model, x = Double(), torch.randn(4, 3)
    change(model)
    out, taken = taken_by(model, x)
    assert taken == {"reference": 1}
    torch.testing.assert_close(out, 2 * model.linear(x))
    assert f"not fused: {reason}" in explain(model, x)


def test_a_hook_of_all_modules_is_called():
    model, seen = Double(), []
    with torch.nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module))):
        taken = taken_by(model, torch.randn(4, 3))[1]
    assert taken == {"reference": 1}
    assert seen == [nn.Dropout, nn.Linear, Double]


def test_the_module_s_own_hooks_fire():
    model, seen = Double(), []
    model.register_forward_hook(lambda module, given, out: seen.append(out))
    out, taken = taken_by(model, torch.randn(4, 3))
    assert taken == {"fused": 1}
    assert len(seen) == 1
    assert seen[0] is out


def test_devices_and_dtypes_are_conditions():
    assert taken_by(Double().bfloat16(), torch.randn(4, 3).bfloat16())[1] == {"reference": 1}
    assert taken_by(Double().to("meta"), torch.empty(4, 3, device="meta"))[1] == {"reference": 1}


def test_a_subclass_has_none_until_one_is_attached_to_it():
    x = torch.randn(4, 3)
    assert taken_by(Inherits(), x)[1] == {}
    attach(Inherits, "forward", "inherited", [Form("fused", lambda: fused, fits)])
    assert taken_by(Inherits(), x, "inherited")[1] == {"fused": 1}


def test_what_is_attached_to_a_subclass_replaces_its_own_method_and_not_its_base_s():
    model, x = Triples(), torch.randn(4, 3)
    expected = 3 * model.linear(x)
    torch.testing.assert_close(model(x), expected)
    attach(Triples, "forward", "triple", [Form("fused", lambda: lambda m, x: 1.5 * fused(m, x), fits)])
    out, taken = taken_by(model, x, "triple")
    assert taken == {"fused": 1}
    torch.testing.assert_close(out, expected)
    with use("reference"):
        torch.testing.assert_close(model(x), expected)


def test_a_form_that_raises_is_disabled_with_one_warning_and_recorded():
    def broken(module, x):
        raise RuntimeError("no such instruction")

    attach(Double, "forward", "double_linear", [Form("broken", lambda: broken)])
    model, x = Double(), torch.randn(4, 3)
    with pytest.warns(
        RuntimeWarning, match="double_linear: broken is not used on cpu: it fails .RuntimeError: no such"
    ):
        out, taken = taken_by(model, x)
    assert taken == {"broken failed": 1, "reference": 1}
    torch.testing.assert_close(out, 2 * model.linear(x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert taken_by(model, x)[1] == {"reference": 1}


def test_an_input_that_is_wrong_raises_as_the_plain_method_does_and_puts_nothing_aside():
    model = Double()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.randn(4, 5))
    assert taken_by(model, torch.randn(4, 3))[1] == {"fused": 1}


def test_compilers_exporters_and_transforms_see_the_plain_method():
    model, x = Double(), torch.randn(4, 3)
    expected = model(x)
    with forms_taken() as taken:
        compiled = torch.compile(model, backend="eager", fullgraph=True)(x)
        exported = torch.export.export(model, (x,)).module()(x)
        assert taken == {}
        traced = torch.jit.trace(model, x, check_trace=False)(x)
        gradient = torch.func.grad(lambda x: model(x).sum())(x)
        called = torch.func.functional_call(model, dict(model.named_parameters()), (x,))
    assert set(taken["double_linear"]) == {"reference", "fused"}
    assert taken["double_linear"]["fused"] == 1  # by functional_call, which transforms no parameters
    for out in (compiled, exported, traced, called):
        torch.testing.assert_close(out, expected)
    torch.testing.assert_close(gradient, (2 * model.linear.weight.sum(0)).expand(4, 3))


def test_only_a_marked_method_can_have_a_form():
    with pytest.raises(ValueError, match="Double.unmarked is not marked as @accelerated"):
        attach(Double, "unmarked", "none", [])
