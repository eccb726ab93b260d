"""Every form that a model takes on a device against its definition, on that device: forward, backward, dropout.

The device is the GPU if there is one; GT_FORMS_DEVICE names another.
"""

import inspect
import os

import pytest
import torch
from torch import Tensor, nn

from gt_models import list_models, model_info
from gt_models.kernels import dispatch, forms_taken, use
from gt_models.kernels.gated_attention import gated_attention, reference
from tests.gt_models.every_model import batch, build
from tests.gt_models.kernels.cases import gated_attention_case as case

DEVICE = os.environ.get("GT_FORMS_DEVICE", "cuda" if torch.cuda.is_available() else "cpu")
FAST = "triton" if DEVICE == "cuda" else "numba"
# on the CPU other tests compare every form: a few models show that this file works
MODELS = list_models() if DEVICE == "cuda" else ["ppgt", "tokengt"]
# with dropout on a GPU, the definition of the first two draws a hash and their form the generator of the GPU; the
# definition of the others draws from the generator and their form a hash (`gated_norm` has the same hash in both)
OTHER_MASKS = {"softmax_attention", "packed_attention", "polynormer_combine", "polynormer_released_combine"}
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}


def on_device(arguments: tuple) -> tuple:
    """Inputs on the device, as leaves; the seed of dropout stays on the CPU."""
    qkv, pairs, heads, graphs, *rest = arguments
    leaves = (t.detach().to(DEVICE).requires_grad_() for t in (qkv, pairs))
    return (*leaves, heads, graphs.to(DEVICE), *rest)


def results(function, arguments: tuple) -> list[Tensor]:
    out = function(*arguments)
    weights = torch.arange(out.numel(), dtype=out.dtype, device=out.device).view_as(out).cos()
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), arguments[:2])]


CASES = [
    ((6, 1, 0, 20), 2, 4, 0.4, True),
    ((6, 1, 0, 20), 3, 5, 0.0, True),
    ((37, 9, 23) * 8, 8, 8, 0.2, True),  # ZINC
    ((183,), 4, 16, 0.0, False),
    ((5, 90), 1, 40, 0.3, False),
    ((64, 65), 2, 64, 0.2, True),
    ((0,), 2, 5, 0.0, True),
]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize(("sizes", "heads", "width", "dropout", "gated"), CASES if DEVICE == "cuda" else CASES[:1])
def test_gated_attention(dtype, sizes, heads, width, dropout, gated):
    arguments = on_device(case(sizes, heads, width, dropout, gated, dtype))
    expected = results(reference, arguments)
    with use(gated_attention=FAST), forms_taken() as taken:
        found = results(gated_attention, arguments)
        again = results(gated_attention, arguments)
    assert set(taken["gated_attention"]) == {FAST}
    for one, other, repeated in zip(expected, found, again, strict=True):
        torch.testing.assert_close(other, one, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        assert torch.equal(other, repeated)


@pytest.mark.slow
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_gated_attention_of_numbers_that_are_not_finite(bad):
    for place in (0, 1):
        arguments = on_device(case((6, 18), 2, 4))
        arguments[place].data[3, 0] = bad
        with use(gated_attention=FAST):
            found = gated_attention(*arguments)
        expected = reference(*arguments)
        assert torch.equal(found.isnan(), expected.isnan())
        assert torch.equal(found.isinf(), expected.isinf())


def calls_of(model: nn.Module, data, monkeypatch) -> list[tuple]:
    """(operation, arguments, named arguments) of each call of an operation in a step of the model."""
    calls: list[tuple] = []
    plain = dispatch.Operation.__call__

    def recording(self, *args, **kwargs):
        calls.append((self, args, kwargs))
        return plain(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(dispatch.Operation, "__call__", recording)
        model(data).float().square().sum().backward()
    return calls


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("name", MODELS)
def test_the_forms_of_a_model(name, dropout, monkeypatch):
    """Outputs and gradients by all tensors of each call, in float64, with the forms that the model takes here."""
    known = inspect.signature(model_info(name).cls).parameters
    rates = {key: dropout for key in ("dropout", "attn_dropout", "activation_dropout") if dropout and key in known}
    if dropout and not rates:
        pytest.skip("has no dropout")
    torch.manual_seed(0)
    model = build(name, **rates).double().to(DEVICE).train()
    compared = 0
    for operation, args, kwargs in calls_of(model, batch((5, 3, 9)).to(DEVICE, torch.float64), monkeypatch):
        form = operation.choose(args, kwargs)
        if form is None or (dropout and DEVICE == "cuda" and operation.name in OTHER_MASKS):
            continue
        both = []
        for function in (operation.reference, operation._loaded[form.name]):
            torch.manual_seed(1)
            both.append(dispatch._outputs_and_gradients(function, args, kwargs))
        compared += 1
        for number, (expected, found) in enumerate(zip(*both, strict=True)):
            torch.testing.assert_close(
                found,
                expected,
                rtol=1e-8,
                atol=1e-9,
                msg=lambda text, where=f"{operation.name}, {form.name}, tensor {number}": f"{where}: {text}",
            )
    if DEVICE == "cpu":
        assert compared
