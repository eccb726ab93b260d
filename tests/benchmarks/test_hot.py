"""Both sides of the benchmark of HOT compute the same result."""

import pytest
import torch

from benchmarks.hot import ours, plain, work


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["kernel", "softmax"])
def test_the_plain_form_is_the_same_function(attention):
    outcomes = []
    for build in (ours, plain):
        torch.manual_seed(0)
        model, loss = build(200, attention)
        value = loss()
        value.backward()
        outcomes.append((value, [p.grad for p in model.parameters()]))
    torch.testing.assert_close(*outcomes, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_the_work_of_a_step_is_counted():
    flops, moved = work(200, "kernel")
    assert flops > 1e8
    assert moved > 1e6
