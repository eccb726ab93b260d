"""Rows in groups and their order."""

import numpy as np
import pytest
import torch

from gt_models.kernels.grouped import Grouped


@pytest.mark.parametrize("num_groups", [1, 7, (1 << 15) - 1, 1 << 15, 70000])
def test_rows_of_a_group_lie_side_by_side_in_their_order(num_groups):
    of = torch.randint(0, num_groups, (500,), generator=torch.Generator().manual_seed(0))
    of[0] = num_groups - 1
    groups, ptr, rows = Grouped(of, num_groups).sorted
    assert np.array_equal(groups, of)
    assert len(ptr) == num_groups + 1
    for g in of.unique().tolist():
        assert rows[ptr[g] : ptr[g + 1]].tolist() == (of == g).nonzero().flatten().tolist()


def test_no_rows():
    _, ptr, rows = Grouped(torch.empty(0, dtype=torch.long), 3).sorted
    assert ptr.tolist() == [0, 0, 0, 0]
    assert not len(rows)
