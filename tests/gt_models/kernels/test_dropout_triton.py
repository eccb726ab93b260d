"""The hash of dropout in Triton equals that of plain torch, by Triton's interpreter."""

import pytest

from tests.gt_models.kernels.in_triton import interpreted

THE_SAME_ENTRIES = """
import json, torch, triton
import triton.language as tl
from gt_models.layers.dropout_hash import kept_at, threshold
from gt_models.kernels.dropout_triton import hash32, is_kept

@triton.jit
def entries(positions, out, seed, COUNT: tl.constexpr, LIMIT: tl.constexpr):
    c = tl.arange(0, COUNT)
    tl.store(out + c, is_kept(hash32(seed.to(tl.uint32)), tl.load(positions + c), LIMIT))

positions = torch.cat([torch.arange(500), torch.randint(2**40, (524,))])  # beyond 32 bits as well
same, rates = [], []
for seed in (0, 3, 2**31 - 2):
    out = torch.empty(1024, dtype=torch.bool)
    entries[(1,)](positions, out, seed, 1024, threshold(0.3))
    same.append(torch.equal(out, kept_at(torch.tensor([seed]), positions, 0.3)))
    rates.append(float(out.float().mean()))
print(json.dumps([same, rates]))
"""


@pytest.mark.slow
def test_it_drops_what_plain_torch_drops():
    same, kept = interpreted(THE_SAME_ENTRIES)
    assert same == [True] * 3
    assert all(0.6 < share < 0.8 for share in kept)
