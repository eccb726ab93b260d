"""Dropout of attention weights of pairs."""

import pytest
import torch

from gt_models.layers.pair_dropout import PairDropout, kept_pairs
from tests.gt_models import checks


def weights(sizes=(4, 2, 3)):
    batch, n = checks.collate(checks.random_graphs(sizes)), max(sizes)
    return torch.ones(len(sizes), 2, n, n), batch


def test_it_draws_one_number_in_training_and_none_outside():
    for training in (True, False):
        module = PairDropout(0.5).train(training)
        torch.manual_seed(0)
        given, batch = weights()
        out = batch.pairs_from_dense(module(given, batch).permute(0, 2, 3, 1))
        after = torch.random.get_rng_state()
        torch.manual_seed(0)
        if training:
            torch.randint(2**31 - 1, (1,))
        assert torch.equal(after, torch.random.get_rng_state())
        assert set(out.unique().tolist()) == ({0.0, 2.0} if training else {1.0})


def test_what_is_dropped_does_not_depend_on_padding():
    module = PairDropout(0.5)
    torch.manual_seed(0)
    alone = module(*weights((3,)))
    torch.manual_seed(0)
    padded = module(*weights((3, 5)))
    assert torch.equal(padded[:1, :, :3, :3], alone)


def test_a_share_of_the_weights_is_dropped_and_seeds_differ():
    stays = [kept_pairs(torch.tensor([seed]), 2048, 4, 0.3).float() for seed in (1, 2)]
    for one in stays:
        assert one.mean().item() == pytest.approx(0.7, abs=0.02)
        assert one.mean(0).sub(0.7).abs().max() < 0.04  # each head
    assert (stays[0] == stays[1]).float().mean().item() == pytest.approx(0.7**2 + 0.3**2, abs=0.03)


def test_bad_rate():
    with pytest.raises(ValueError, match=r"dropout 1.0 is outside"):
        PairDropout(1.0)
