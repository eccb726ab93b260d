"""Gated attention in Triton without a GPU: values by Triton's interpreter, and compilation."""

import pytest
import torch

from tests.gt_models.kernels.in_triton import assert_compiles, interpreted

AGAINST_THE_REFERENCE = """
import json, torch
from gt_models.kernels.gated_attention import reference
from gt_models.kernels.gated_attention_triton import gated_attention
from tests.gt_models.kernels.cases import gated_attention_case as case

def results(function, arguments):
    out = function(*arguments)
    return [out, *torch.autograd.grad((out * out.detach().cos()).sum(), arguments[:2])]

def difference(a, b):
    return float((a - b).abs().max()) if a.numel() else 0.0

found, single, nans = [], [], []
for sizes, heads, width, dropout, gated in (  # more nodes than a tile has, one, none
    ((6, 1, 0, 20), 3, 5, 0.0, True), ((6, 1, 0, 20), 2, 8, 0.4, True), ((9, 10), 2, 12, 0.4, False),
    ((5, 9), 1, 40, 0.0, False), ((0,), 2, 5, 0.0, True), ((), 2, 5, 0.0, True),
):
    arguments = case(sizes, heads, width, dropout, gated)
    both = zip(results(reference, arguments), results(gated_attention, arguments))
    found.append([difference(*pair) for pair in both])
arguments = case((6, 1, 0, 20), 3, 8, 0.2, dtype=torch.float32)
single = [difference(*pair) for pair in zip(results(reference, arguments), results(gated_attention, arguments))]

qkv, pairs, *rest = case((6, 18), 2, 5, 0.4)
wide = torch.randn(len(pairs), 11, dtype=torch.float64)
wide[:, 3:7] = pairs.detach()
columns = [results(gated_attention, (qkv, p, *rest)) for p in (pairs, wide[:, 3:7].requires_grad_())]

for place in (0, 1, 2):  # queries, keys and values; bias; gate
    for bad in (float("nan"), float("inf"), -float("inf")):
        arguments = case((6, 18), 1, 5)
        arguments[min(place, 1)].data[3, max(place - 1, 0)] = bad
        outs = [function(*arguments) for function in (reference, gated_attention)]
        nans.append(torch.equal(outs[0].isnan(), outs[1].isnan()) and torch.equal(outs[0].isinf(), outs[1].isinf()))
arguments = case((20, 3), 2, 5)
arguments[1].data[:18, :2] = -float("inf")  # the first keys of a query have no weight, and the last ones do
outs = [function(*arguments) for function in (reference, gated_attention)]
late = difference(*outs)
twice = [results(gated_attention, case((20, 2), 2, 5, 0.3)) for _ in range(2)]
print(json.dumps([found, single, nans, late, [all(map(torch.equal, *pair)) for pair in (columns, twice)]]))
"""


@pytest.mark.slow
def test_interpreted_it_equals_the_reference_forward_and_backward():
    differences, single, same_nans, late, same_bits = interpreted(AGAINST_THE_REFERENCE)
    assert max(map(max, differences)) < 1e-12
    assert max(single) < 1e-4
    assert late < 1e-12
    assert all(same_nans)
    assert all(same_bits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "width", "dropout", "gated"),
    [("fp32", 8, 0.2, True), ("fp64", 12, 0.0, False), ("fp32", 16, 0.0, False), ("fp32", 64, 0.0, True)],
)
def test_the_compiler_takes_it_for_a_gpu(kind, width, dropout, gated):
    pytest.importorskip("triton")
    from gt_models.kernels import gated_attention_triton as form

    kinds = {"seed": "i32", "stride": "i64", "ptr": "*i64", "pair_ptr": "*i64"}
    constants = form._arguments(8, width, 0.5, -0.2, gated, dropout, torch.tensor([1]))
    del constants["seed"]
    for kernel, others in (
        (form._forward, {}),
        (form._backward, {"BY_KEY": False}),
        (form._backward, {"BY_KEY": True}),
    ):
        assert_compiles(kernel, dict.fromkeys(kernel.arg_names, f"*{kind}") | kinds, constants | others)
