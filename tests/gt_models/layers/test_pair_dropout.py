"""Dropout of attention weights of pairs and of triples."""

import pytest
import torch

from gt_models.layers.pair_dropout import PairDropout, kept_pairs
from gt_models.layers.triple_dropout import TripleDropout
from tests.gt_models import checks

SHAPES = {PairDropout: (lambda b, n: (b, 2, n, n)), TripleDropout: (lambda b, n: (b, n, n, n, 2))}


def weights(kind, sizes=(4, 4, 4)):
    return torch.ones(SHAPES[kind](len(sizes), max(sizes))), checks.collate(checks.random_graphs(sizes))


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("training", [True, False])
def test_pair_dropout_draws_one_number_in_training_alone(kind, training):
    module = kind(0.5).train(training)
    given = weights(kind)
    torch.manual_seed(0)
    out = module(*given)
    after = torch.random.get_rng_state()
    torch.manual_seed(0)
    if training:
        torch.randint(2**31 - 1, (1,))
    assert torch.equal(after, torch.random.get_rng_state())
    assert set(out.unique().tolist()) == ({0.0, 2.0} if training else {1.0})


@pytest.mark.parametrize("kind", SHAPES)
def test_what_is_dropped_does_not_depend_on_padding(kind):
    found = []
    for sizes in ((3,), (3, 5)):
        given = weights(kind, sizes)
        torch.manual_seed(0)
        found.append(kind(0.5)(*given))
    alone, padded = found
    real = (slice(1), *(slice(size) for size in alone.shape[1:]))
    assert torch.equal(padded[real], alone)


def test_a_share_of_the_weights_is_dropped_and_seeds_differ():
    stays = [kept_pairs(torch.tensor([seed]), 2048, 4, 0.3).float() for seed in (1, 2)]
    for one in stays:
        assert one.mean().item() == pytest.approx(0.7, abs=0.02)
        assert one.mean(0).sub(0.7).abs().max() < 0.04  # each head
    assert (stays[0] == stays[1]).float().mean().item() == pytest.approx(0.7**2 + 0.3**2, abs=0.03)


@pytest.mark.parametrize("kind", SHAPES)
def test_a_rate_of_one_is_refused(kind):
    with pytest.raises(ValueError, match=r"1\.0"):
        kind(1.0)
