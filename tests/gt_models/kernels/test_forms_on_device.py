"""Every form that a model takes on a device against its definition, on that device: forward, backward, dropout.

The device is the GPU if there is one; GT_FORMS_DEVICE names another.
"""

import inspect
import os

import pytest
import torch
from torch import Tensor, nn

from gt_models import list_models, model_info
from gt_models.batch import GraphBatch
from gt_models.kernels import dispatch, forms_taken, use
from gt_models.layers.packing import Packing
from tests.gt_models.every_model import batch, build
from tests.gt_models.kernels.cases import CASES, SEED, case, results

DEVICE = os.environ.get("GT_FORMS_DEVICE", "cuda" if torch.cuda.is_available() else "cpu")
FAST = "triton" if DEVICE == "cuda" else "numba"
# on the CPU other tests compare every form: a few models show that this file works
MODELS = list_models() if DEVICE == "cuda" else ["ppgt", "tokengt"]
# with dropout on a GPU, the definition of the first two draws a hash and their form the generator of the GPU; the
# definition of the others draws from the generator and their form a hash (`gated_norm` has the same hash in both)
OTHER_MASKS = {"softmax_attention", "packed_attention", "polynormer_combine", "polynormer_released_combine"}
# on the CPU other tests compare every call
TRITON = ("ada_rms", "gated_attention", "gated_norm", "graph_attention", "triangular_attention")
ON_DEVICE = [name for name in CASES if name.partition(":")[0] in TRITON] if DEVICE == "cuda" else ["gated_attention"]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4}


def on_device(arguments: tuple) -> tuple:
    """Tensors and graphs on the device; the seed of dropout stays on the CPU."""
    moved = (a if a is SEED or not isinstance(a, Tensor | GraphBatch | Packing) else a.to(DEVICE) for a in arguments)
    return tuple(
        a.detach().requires_grad_(b.requires_grad) if isinstance(a, Tensor) else a
        for a, b in zip(moved, arguments, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", ON_DEVICE)
def test_a_triton_kernel(name, dtype):
    operation, arguments = case(name, dtype)
    arguments = on_device(arguments)
    expected = results(operation.reference, arguments)
    with use(**{operation.name: FAST}), forms_taken() as taken:
        found, again = results(operation, arguments), results(operation, arguments)
    assert set(taken[operation.name]) == {FAST}
    for one, other, repeated in zip(expected, found, again, strict=True):
        torch.testing.assert_close(other, one, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        assert torch.equal(other, repeated)


@pytest.mark.slow
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", sorted({name.partition(":")[0] for name in ON_DEVICE}))
def test_numbers_that_are_not_finite(name, bad):
    operation, arguments = case(name)
    arguments = on_device(arguments)
    for tensor in arguments[:2]:
        with torch.no_grad():
            kept, tensor.view(-1)[3] = tensor.view(-1)[3].clone(), bad
        if tensor.requires_grad:
            with use(**{operation.name: FAST}):
                found = operation(*arguments)
            expected = operation.reference(*arguments)
            assert torch.equal(found.isnan(), expected.isnan())
            assert torch.equal(found.isinf(), expected.isinf())
        with torch.no_grad():
            tensor.view(-1)[3] = kept


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
