"""The layer of the encoder: forms of its attention, precision, and compilation."""

import pytest
import torch
from torch import Tensor

from gt_models.kernels import forms_taken, use
from gt_models.layers.packing import Packing
from gt_models.layers.transformer import EncoderLayer


@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("first_only", [False, True])
def test_layer_takes_either_form(first_only, rate):
    """Outputs and gradients, also with dropout, and the same random numbers from one seed."""
    torch.manual_seed(0)
    layer, counts = EncoderLayer(12, 3, 8, attn_dropout=rate).double(), torch.tensor([5, 3, 7, 1, 6])
    torch.nn.init.normal_(layer.attn.qkv.bias)
    packing, x = Packing.of(counts), torch.randn(22, 12, dtype=torch.float64, requires_grad=True)
    runs = []
    for form in ("reference", "numba"):
        torch.manual_seed(1)
        with use(packed_attention=form), forms_taken() as taken:
            out = layer(x, packing, first_only)
        assert taken["packed_attention"] == {form: 1}
        runs.append((out, *torch.autograd.grad(out.cos().sum(), [x, *layer.parameters()])))
    for expected, got in zip(*runs, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    assert torch.equal(layer(x, packing), layer(x, packing)) == (rate == 0.0)


def test_first_only_is_the_first_rows():
    torch.manual_seed(0)
    layer, packing, x = (
        EncoderLayer(12, 3, 8).double(),
        Packing.of(torch.tensor([5, 3, 7])),
        torch.randn(15, 12).double(),
    )
    torch.testing.assert_close(layer(x, packing, True), layer(x, packing)[packing.first], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("attention", ["softmax", "performer"])
def test_groups_change_nothing(attention):
    """Padded to one length, in groups of similar length, or graph by graph."""
    torch.manual_seed(0)
    layer, counts, x = (
        EncoderLayer(12, 3, 8, attention=attention).double(),
        torch.tensor([5, 0, 3, 7, 1, 6, 0]),
        torch.randn(22, 12).double(),
    )
    with use("reference"):
        expected, *others = [
            layer(x, Packing.of(counts, **k)) for k in ({"max_padding": 0.0}, {"max_padding": 0.25}, {"longest": 9})
        ]
    for other in others:
        torch.testing.assert_close(other, expected, rtol=1e-10, atol=1e-10)


def test_two_forwards_of_a_long_graph_before_one_backward(monkeypatch):
    """A layer that works by rows computes its features again in the backward pass, with the forward's projection."""
    monkeypatch.setattr("gt_models.layers.transformer.LONG", 40)
    monkeypatch.setattr("gt_models.layers.transformer.ROWS", 16)
    x, packing = torch.randn(50, 12, dtype=torch.float64), Packing.of(torch.tensor([50]))

    def gradients(together: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layer = EncoderLayer(12, 2, 24, dropout=0.2, activation_dropout=0.2, attention="performer", redraw_interval=1)
        layer.double()
        losses = []
        for _ in range(2):
            layer.attn.features.step()
            losses.append(layer(x, packing).square().sum())
            if not together:
                losses.pop().backward()
        if together:
            sum(losses).backward()
        return [p.grad for p in layer.parameters()]

    torch.testing.assert_close(gradients(True), gradients(False))


@pytest.mark.parametrize("heads", [1, 3])
def test_a_long_graph_goes_by_rows_to_the_same_numbers_and_keeps_only_the_input(monkeypatch, heads):
    torch.manual_seed(0)
    layer, packing = EncoderLayer(12, heads, 24, attention="performer").double(), Packing.of(torch.tensor([50]))
    torch.nn.init.normal_(layer.attn.qkv.bias)
    x = torch.randn(50, 12, dtype=torch.float64, requires_grad=True)
    results, kept = [], []
    for long, rows in ((100, 100), (40, 16)):
        monkeypatch.setattr("gt_models.layers.transformer.LONG", long)
        monkeypatch.setattr("gt_models.layers.transformer.ROWS", rows)
        places = {}

        def save(t: Tensor, places: dict[int, int] = places) -> Tensor:
            places[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(save, lambda t: t):
            out = layer(x, packing)
        kept.append(sum(places.values()))
        results.append([out, *torch.autograd.grad(out.cos().sum(), [x, *layer.parameters()])])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
    assert kept[1] < kept[0] / 2


def test_a_hook_on_the_attention_of_a_long_graph_is_obeyed(monkeypatch):
    monkeypatch.setattr("gt_models.layers.transformer.LONG", 40)
    monkeypatch.setattr("gt_models.layers.transformer.ROWS", 16)
    torch.manual_seed(0)
    layer, packing = EncoderLayer(12, 2, 24, attention="performer").double(), Packing.of(torch.tensor([50]))
    x = torch.randn(50, 12, dtype=torch.float64)
    layer.attn.register_forward_hook(lambda module, given, out: 0 * out)
    torch.testing.assert_close(layer(x, packing), x + layer.feed_forward(x))
