"""The backward pass of an operation under autocast."""

import torch

from gt_models.kernels.multi_linear import multi_linear


def test_a_backward_pass_inside_autocast_computes_as_the_forward_pass_did():
    x, weight = torch.randn(6, 5, requires_grad=True), torch.randn(3, 5, requires_grad=True)
    (out,) = multi_linear(x, weight, None)
    with torch.autocast("cpu", torch.bfloat16):
        (grad,) = torch.autograd.grad(out.sum(), x)
        assert multi_linear(x, weight, None)[0].dtype == torch.bfloat16
    torch.testing.assert_close(grad, weight.sum(0).expand(6, 5))
