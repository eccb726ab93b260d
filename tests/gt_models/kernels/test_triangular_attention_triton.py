"""Triangular attention in Triton without a GPU: values by Triton's interpreter, and compilation."""

import pytest
import torch

from tests.gt_models.kernels.in_triton import assert_compiles, interpreted

INTERPRETED = """
import json, torch
from gt_models.kernels.triangular_attention import reference
from gt_models.kernels.triangular_attention_triton import triangular_attention
from tests.gt_models import checks
found = []
for sizes, heads, width, dropout, dtype in (
    ((5, 1, 9, 0, 3), 2, 4, 0.0, torch.float64),
    ((5, 1, 9, 0, 3), 2, 5, 0.3, torch.float64),
    ((18, 2), 1, 8, 0.3, torch.float32),
    ((), 1, 8, 0.0, torch.float32),
):
    batch = checks.collate(checks.random_graphs(sizes)) if sizes else checks.collate(checks.random_graphs((0,)))
    x = torch.randn(batch.num_pairs, 4, heads, width, dtype=dtype, requires_grad=True)
    results = []
    for function in (reference, triangular_attention):
        out = function(x, batch, torch.tensor([3]), dropout)
        results.append((out, *torch.autograd.grad((out * out.detach().cos()).sum(), x)))
    found.append([float((a - b).abs().max()) if a.numel() else 0.0 for a, b in zip(*results)])
x = torch.randn(9, 4, 1, 4)
x[4, 0] = float("nan")
batch = checks.random_graphs((3,))[0]
outs = [function(x, batch, torch.tensor([3]), 0.0).isnan() for function in (reference, triangular_attention)]
print(json.dumps([found, bool(torch.equal(*outs)), bool(outs[0].any())]))
"""


@pytest.mark.slow
def test_interpreted_it_equals_the_reference_forward_and_backward():
    differences, same_nan, any_nan = interpreted(INTERPRETED)
    assert max(differences[0] + differences[1]) < 1e-12
    assert max(differences[2]) < 1e-4
    assert differences[3] == [0.0, 0.0]
    assert any_nan
    assert same_nan


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "width", "dropout"), [("fp32", 8, 0.2), ("fp64", 12, 0.0)])
def test_the_compiler_takes_it_for_a_gpu(kind, width, dropout):
    pytest.importorskip("triton")
    from gt_models.kernels import triangular_attention_triton as form

    constants = form._arguments(8, width, torch.tensor([1]), dropout)
    kinds = {"first": "*i64", "sizes": "*i64", "seed": "i32"} | dict.fromkeys(
        ("x", "out", "stats", "grad", "inner", "dx"), f"*{kind}"
    )
    del constants["seed"]
    assert_compiles(form._forward, kinds, constants)
    for second in (False, True):
        assert_compiles(form._backward, kinds, constants | {"SECOND": second})
