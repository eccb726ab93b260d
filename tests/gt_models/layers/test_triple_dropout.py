"""Dropout of attention weights of triples."""

import pytest
import torch

from gt_models.layers.triple_dropout import TripleDropout
from tests.gt_models import checks


def weights(sizes=(4, 2, 3)):
    batch, n = checks.collate(checks.random_graphs(sizes)), max(sizes)
    return torch.ones(len(sizes), n, n, n, 2), batch


def test_it_draws_one_number_in_training_and_none_outside():
    for training in (True, False):
        module = TripleDropout(0.5).train(training)
        torch.manual_seed(0)
        out = module(*weights())
        after = torch.random.get_rng_state()
        torch.manual_seed(0)
        if training:
            torch.randint(2**31 - 1, (1,))
        assert torch.equal(after, torch.random.get_rng_state())
        assert set(out.unique().tolist()) == ({0.0, 2.0} if training else {1.0})


def test_what_is_dropped_does_not_depend_on_padding():
    module = TripleDropout(0.5)
    torch.manual_seed(0)
    alone = module(*weights((3,)))
    torch.manual_seed(0)
    padded = module(*weights((3, 5)))
    assert torch.equal(padded[:1, :3, :3, :3], alone)


def test_bad_rate():
    with pytest.raises(ValueError, match="dropout 1.0 is outside"):
        TripleDropout(1.0)
