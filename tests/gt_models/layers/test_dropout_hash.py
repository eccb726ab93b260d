"""The hash of dropout, compared with whole numbers."""

import pytest
import torch
from torch import Tensor

from gt_models.kernels import use
from gt_models.kernels.dropout import drop
from gt_models.layers import dropout, softmax_attention
from gt_models.layers.dropout_hash import draw_seed, hash32, kept, threshold
from gt_models.layers.packing import Packing
from gt_models.layers.pair_dropout import PairDropout
from tests.gt_models.checks import collate, random_graphs

SEED = torch.tensor([5])


def mix(x: int) -> int:
    x = (x ^ x >> 16) * 0x7FEB352D % 2**32
    x = (x ^ x >> 15) * 0x846CA68B % 2**32
    return x ^ x >> 16


def test_the_reference_against_whole_numbers():
    values = [0, 1, 5, 2**31 - 1, 2**31, 2**32 - 1]
    assert hash32(torch.tensor(values)).tolist() == [mix(v) for v in values]
    expected = [mix((mix(5) + i * 0x9E3779B9) % 2**32) >= int(0.3 * 2**32) for i in range(300)]
    assert kept(SEED, 300, 0.3).tolist() == expected
    assert threshold(0.5) == 2**31
    x = torch.randn(300, dtype=torch.float64)
    with use("reference"):
        torch.testing.assert_close(
            drop(x, SEED, 0.3), torch.where(torch.tensor(expected), x / 0.7, 0.0), rtol=1e-12, atol=0
        )


def unmix(x: int) -> int:
    """The inverse of `mix`: a shift by at least half of the width inverts itself, an odd factor has an inverse."""
    x ^= x >> 16
    x = x * pow(0x846CA68B, -1, 2**32) % 2**32
    x ^= x >> 15 ^ x >> 30
    x = x * pow(0x7FEB352D, -1, 2**32) % 2**32
    return x ^ x >> 16


def test_two_seeds_never_share_the_hash_of_an_entry():
    """hash32 is a bijection, so hash32(seed) + position * GOLDEN and its hash differ for two seeds at any position."""
    for value in (0, 1, 5, 2**15, 2**31 - 1, 2**31, 2**32 - 1, *torch.randint(2**32, (1000,)).tolist()):
        assert unmix(mix(value)) == mix(unmix(value)) == value
    position = torch.arange(10000)
    one, other = (hash32((hash32(torch.tensor(seed)) + position * 0x9E3779B9) % 2**32) for seed in (5, 6))
    assert not (one == other).any()
    assert one.unique().numel() == len(position)  # GOLDEN is odd: two positions below 2^32 differ, too


def test_a_compiled_graph_draws_the_seed_on_its_device():
    """A CUDA graph that is replayed cannot read a number from the CPU."""
    device = torch.device("meta")  # in place of a GPU
    assert draw_seed(device).device.type == "cpu"
    assert torch.compile(draw_seed, backend="eager", fullgraph=True)(device).device == device


@pytest.mark.parametrize("module", [dropout, softmax_attention], ids=lambda module: module.__name__)
def test_layers_name_the_device_of_their_weights(module, monkeypatch):
    devices = []

    def recording(device: torch.device) -> Tensor:
        devices.append(device)
        return torch.zeros(1, dtype=torch.long, device=device)

    monkeypatch.setattr(module, "draw_seed", recording)
    if module is dropout:
        batch = collate(random_graphs((3,))).to("meta")
        PairDropout(0.5)(torch.ones(1, 2, 3, 3, device="meta"), batch)
    else:
        tokens = torch.ones(3, 12, device="meta")
        layer = softmax_attention.SoftmaxAttention(2, 0.5)
        layer(None, tokens, Packing.of(torch.tensor([3], device="meta"), 3, 3))
    assert devices == [torch.device("meta")]
