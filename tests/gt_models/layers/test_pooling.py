"""Sums, means and maxima over the nodes of each graph, compared with loops."""

import pytest
import torch

from gt_models.batch import GraphBatch
from gt_models.layers.pooling import pool

FORMS = {"sum": lambda part: part.sum(0), "mean": lambda part: part.mean(0), "max": lambda part: part.amax(0)}


@pytest.mark.parametrize("how", FORMS)
def test_pooling_by_loops(how):
    ptr, x = torch.tensor([0, 2, 2, 5]), torch.randn(5, 3)
    batch = GraphBatch(x, torch.empty(2, 0, dtype=torch.long), ptr)
    out = pool(x, batch, how)
    torch.testing.assert_close(out[[0, 2]], torch.stack([FORMS[how](x[:2]), FORMS[how](x[2:])]))
    assert not out[1].any()  # an empty graph


def test_unknown_pooling_names_the_known_ones():
    batch = GraphBatch(torch.zeros(1, 1), torch.empty(2, 0, dtype=torch.long), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="known: sum, mean, max"):
        pool(batch.x, batch, "median")
