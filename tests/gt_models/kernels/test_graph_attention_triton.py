"""Attention over neighbours in Triton without a GPU: values by Triton's interpreter, and compilation."""

import pytest

from tests.gt_models.kernels.in_triton import assert_compiles, interpreted

AGAINST_THE_REFERENCE = """
import json, torch
from gt_models.kernels.graph_attention import reference
from gt_models.kernels.graph_attention_triton import graph_attention
from tests.gt_models.kernels.cases import graph_attention_case as case
found, nans = [], []
for sizes in ((1, 1, 1, 5), (40, 150, 3, 5), (9, 0, 2, 4), (20, 400, 2, 60)):  # many edges a node: several tiles
    arguments, _ = case(*sizes)
    results = []
    for function in (reference, graph_attention):
        out = function(*arguments)
        results.append((out, *torch.autograd.grad((out * out.detach().cos()).sum(), arguments[:3])))
    found.append([float((a - b).abs().max()) for a, b in zip(*results)])
for bad in (float("nan"), float("inf"), -float("inf")):
    arguments, _ = case(12, 40, 2, 5)
    arguments[0].data[3, 2] = bad
    outs = [function(*arguments).isnan() for function in (reference, graph_attention)]
    nans.append([bool(torch.equal(*outs)), bool(outs[0].any())])
arguments, _ = case(12, 40, 2, 5)
twice = [torch.autograd.grad(graph_attention(*arguments).sin().sum(), arguments[:3]) for _ in range(2)]
print(json.dumps([found, nans, all(torch.equal(*pair) for pair in zip(*twice))]))
"""


@pytest.mark.slow
def test_interpreted_it_equals_the_reference_forward_and_backward():
    differences, nans, same_twice = interpreted(AGAINST_THE_REFERENCE)
    assert max(map(max, differences)) < 1e-12
    assert nans == [[True, True]] * 3
    assert same_twice


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "width"), [("fp32", 64), ("fp64", 120)])
def test_the_compiler_takes_it_for_a_gpu(kind, width):
    pytest.importorskip("triton")
    from gt_models.kernels import graph_attention_triton as form

    kinds = dict.fromkeys(("ptr", "col", "ptr_t", "col_t", "perm_t"), "*i32")
    for kernel in (form._forward, form._by_source, form._by_target):
        assert_compiles(kernel, dict.fromkeys(kernel.arg_names, f"*{kind}") | kinds, form._arguments(8, width, 0.2))
