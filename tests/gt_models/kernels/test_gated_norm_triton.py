"""The last step of a Polynormer layer in Triton without a GPU: values by Triton's interpreter, and compilation."""

import pytest

from tests.gt_models.kernels.in_triton import assert_compiles, interpreted

AGAINST_THE_REFERENCE = """
import itertools, json, torch
from gt_models.kernels.gated_norm import reference
from gt_models.kernels import gated_norm_triton as form
from tests.gt_models.kernels.cases import SEED, gated_norm_tensors as tensors
form.PROGRAMS = 2  # of which each takes several rows
found, nans = [], []

def step(function, given, relu, rate):
    x = function(*given.values(), 1e-5, relu, SEED if rate else None, rate)
    return [x, *torch.autograd.grad(x.sin().sum(), list(given.values()))]

for (rows, width), relu, rate in itertools.product(((1, 8), (7, 21), (0, 5)), (False, True), (0.0, 0.4)):
    given = tensors(rows, width)
    results = [step(function, given, relu, rate) for function in (reference, form.gated_norm)]
    found += [float((a - b).abs().max()) for a, b in zip(*results) if a.numel()]
for bad, relu in itertools.product((float("nan"), float("inf"), -float("inf")), (False, True)):
    given = tensors(6, 5)
    given["h"].data[1, 2] = given["a"].data[3, 4] = bad
    expected, others = (step(function, given, relu, 0.0) for function in (reference, form.gated_norm))
    nans.append(all(torch.equal(e.isnan(), o.isnan()) for e, o in zip(expected[:3], others[:3])))
print(json.dumps([max(found), len(found), nans]))
"""


@pytest.mark.slow
def test_interpreted_it_equals_the_reference_forward_and_backward():
    difference, compared, nans = interpreted(AGAINST_THE_REFERENCE)
    assert difference < 1e-11
    assert compared > 50
    assert nans == [True] * 6


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "relu", "rate"), [("fp32", True, 0.3), ("fp64", False, 0.0)])
def test_the_compiler_takes_it_for_a_gpu(kind, relu, rate):
    pytest.importorskip("triton")
    from gt_models.kernels import gated_norm_triton as form

    constants = form._constants(120, relu, rate > 0, rate) | {"EPS": 1e-5}
    for kernel in (form._forward, form._backward):
        assert_compiles(kernel, dict.fromkeys(kernel.arg_names, f"*{kind}") | {"seed": "i32", "rows": "i32"}, constants)
