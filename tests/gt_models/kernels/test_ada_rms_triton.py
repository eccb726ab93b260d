"""AdaRMSNorm in Triton without a GPU: values by Triton's interpreter, and compilation."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from gt_models.kernels.ada_rms import ada_rms
from tests.gt_models.kernels.in_triton import assert_compiles, interpreted

AGAINST_THE_REFERENCE = """
import json, torch
from gt_models.kernels.ada_rms import reference
from gt_models.kernels import ada_rms_triton as form
from tests.gt_models.kernels.cases import ada_rms_case
form.PROGRAMS, form.TILE = 2, 32  # several tiles for a program, several tokens in a tile
found, nans = [], []

def step(function, given):
    y = function(*given)
    return [y, *torch.autograd.grad((y * y.detach().cos()).sum(), given[:3])]

for shape in ((1, 8), (23, 5), (2, 3, 6), (9, 64), (0, 4)):
    for dtype in (torch.float64, torch.float32):
        given = ada_rms_case(*shape, dtype=dtype)
        exact = tuple(t.detach().double().requires_grad_() for t in given[:3])
        both = zip(step(reference, (*exact, given[3])), step(form.ada_rms, given))
        found.append([str(dtype), max([0.0, *(float((a - b).abs().max()) for a, b in both if a.numel())])])
columns = torch.randn(7, 10, dtype=torch.float64)
given = (columns.t()[1:8].requires_grad_(), *(t[:7].detach().requires_grad_() for t in ada_rms_case(1, 7)[1:3]), 1e-6)
strided = max(float((a - b).abs().max()) for a, b in zip(step(reference, given), step(form.ada_rms, given)))
for bad in (float("nan"), float("inf"), -float("inf")):
    given = ada_rms_case(9, 6)
    given[0].data[2, 3] = bad
    expected, others = (step(function, given)[:2] for function in (reference, form.ada_rms))
    nans.append(all(torch.equal(e.isnan(), o.isnan()) for e, o in zip(expected, others)))
zero = ada_rms_case(2, 5)
zero[0].data.zero_()
finite = all(bool(t.isfinite().all()) for t in step(form.ada_rms, zero))
twice = [step(form.ada_rms, ada_rms_case(40, 9)) for _ in range(2)]
print(json.dumps([found, strided, nans, finite, all(map(torch.equal, *twice))]))
"""


@pytest.mark.slow
def test_interpreted_it_equals_the_reference_forward_and_backward():
    found, strided, nans, finite, same_bits = interpreted(AGAINST_THE_REFERENCE)
    assert len(found) == 10
    assert max(difference for dtype, difference in found if dtype == "torch.float64") < 1e-11
    assert max(difference for dtype, difference in found if dtype == "torch.float32") < 1e-4
    assert strided < 1e-11
    assert nans == [True] * 3
    assert finite
    assert same_bits


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "width"), [("fp32", 64), ("fp64", 100), ("fp32", 2000)])
def test_the_compiler_takes_it_for_a_gpu(kind, width):
    pytest.importorskip("triton")
    from gt_models.kernels import ada_rms_triton as form

    for kernel in (form._forward, form._backward):
        kinds = dict.fromkeys(kernel.arg_names, f"*{kind}") | {"tokens": "i32"}
        assert_compiles(kernel, kinds, form._constants(width, 1e-6))


def test_a_gpu_takes_it():
    with FakeTensorMode():
        x, vector = torch.empty(4, 5, device="cuda"), torch.empty(5, device="cuda")
    reasons = {form.name: form.reason((x, vector, vector, 1e-6), {}) for form in ada_rms.forms}
    assert reasons == {"numba": "runs on cpu, not on cuda", "triton": None}
