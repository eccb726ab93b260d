"""Norms of PPGT: their limits, gradients, and precision."""

import math

import pytest
import torch

from gt_models.ppgt.norms import AdaRMSNorm


@pytest.mark.slow
def test_adarms_gradient_and_limits():
    norm = AdaRMSNorm(5).double()
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(
        norm(x), x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * math.sqrt(1 + 1e-6)
    )  # as RMSNorm at first
    with torch.no_grad():
        norm.alpha.fill_(1.0), norm.beta.zero_()
    torch.testing.assert_close(norm(x), x)  # the identity it can become
    with torch.no_grad():
        norm.alpha.normal_(), norm.beta.normal_()
    assert torch.autograd.gradcheck(
        lambda x, a, b: torch.func.functional_call(norm, {"alpha": a, "beta": b}, x), (x, norm.alpha, norm.beta)
    )
    zero = torch.zeros(1, 5, dtype=torch.float64, requires_grad=True)
    norm(zero).sum().backward()
    assert zero.grad.isfinite().all()
    assert norm.float()(torch.randn(3, 5, dtype=torch.bfloat16)).dtype == torch.bfloat16
