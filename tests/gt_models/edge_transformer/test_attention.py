"""What stands between the layers and triangular attention: the seed of the dropout, and precision."""

import pytest
import torch

from gt_models.edge_transformer.attention import attend
from tests.gt_models.edge_transformer.test_edge_transformer import graphs


@pytest.mark.parametrize(("dropout", "draws"), [(0.0, False), (0.5, True)])
def test_dropout_draws_one_number(dropout, draws):
    graph = graphs((4,))[0]
    torch.manual_seed(0)
    first = attend(torch.ones(16, 4, 2, 3), graph, dropout)
    after = torch.random.get_rng_state()
    torch.manual_seed(0)
    if draws:
        torch.randint(2**31 - 1, (1,))
    assert torch.equal(after, torch.random.get_rng_state())
    torch.manual_seed(0)
    assert torch.equal(attend(torch.ones(16, 4, 2, 3), graph, dropout), first)


def test_half_precision_is_computed_in_single():
    graph, projected = graphs((4,))[0], torch.randn(16, 4, 2, 3).bfloat16()
    out = attend(projected, graph)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, attend(projected.float(), graph).bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(attend(projected.float(), graph), attend(projected.float(), graph).float())
