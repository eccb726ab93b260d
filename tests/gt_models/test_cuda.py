"""Every registered model has the same float64 outputs and gradients on a GPU as on the CPU.

A step under bfloat16 autocast is finite.
"""

import pytest
import torch
from torch import Tensor, nn

from gt_models import list_models
from gt_models.batch import GraphBatch
from gt_models.kernels import forms_taken
from tests.gt_models.every_model import batch, build

# it reads only the structure and pools by the maximum: entries of equal pairs tie, and rounding decides which one
# has the gradient
TIES = {"edge-transformer-brec-released"}

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def step(model: nn.Module, data: GraphBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Output and gradients, moved to the CPU."""
    out = model(data)
    (out.float() if out.dtype == torch.bfloat16 else out).square().sum().backward()
    return out.detach().cpu(), {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", list_models())
def test_the_same_on_both_devices(name):
    here, there = build(name).double(), build(name).double().cuda()
    there.load_state_dict(here.state_dict())
    out, grads = step(here, batch().to("cpu", torch.float64))
    other, other_grads = step(there, batch().to("cuda", torch.float64))
    torch.testing.assert_close(other, out, rtol=1e-10, atol=1e-10)
    assert grads.keys() == other_grads.keys()
    if name in TIES:
        return
    for parameter, grad in grads.items():
        torch.testing.assert_close(
            other_grads[parameter], grad, rtol=1e-8, atol=1e-9, msg=lambda text, p=parameter: f"{p}: {text}"
        )


@pytest.mark.parametrize("name", list_models())
def test_trains_under_bfloat16_autocast(name):
    model = build(name).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        out, grads = step(model, batch().to("cuda"))
    assert out.isfinite().all()
    assert grads
    assert all(g.isfinite().all() for g in grads.values())


@pytest.mark.parametrize("name", ["ppgt", "ppgt-released", "graphormer"])
def test_gated_attention_takes_its_form_and_drops_the_same_weights_on_both_devices(name):
    results = []
    for device in ("cpu", "cuda"):
        model = build(name, attn_dropout=0.4).double().to(device).train()
        torch.manual_seed(1)
        with forms_taken() as taken:
            results.append(step(model, batch().to(device, torch.float64)))
    (out, grads), (other, other_grads) = results
    torch.testing.assert_close(other, out, rtol=1e-10, atol=1e-10)
    for parameter, grad in grads.items():
        torch.testing.assert_close(other_grads[parameter], grad, rtol=1e-8, atol=1e-9)
    assert set(taken["gated_attention"]) == {"triton"}
