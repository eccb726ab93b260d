"""Every rate of every registered model changes outputs in training, and none in evaluation."""

import inspect

import pytest
import torch
from torch import nn

from gt_models import create_model, list_models, model_info
from gt_models.kernels import use
from gt_models.layers.dropout import RateOfDropout
from tests.gt_models.every_model import OWN, SMALL, batch

# settings that a rate needs to have an effect
BESIDE = {
    ("hot-released", "head_dropout"): {"head_dims": [8]},
    ("linkx", "dropout"): {"num_layers": 2},
    ("polynormer", "global_dropout"): {"attention": "global"},
    # without an input layer, `dropout` only affects the local layers
    ("polynormer-released", "dropout"): {"attention": "local", "input_layer": False},
    ("polynormer-released", "global_dropout"): {"attention": "global"},
    ("s2g", "dropout"): {"broadcast_activation": True, "pair_dims": ()},
}


def parameters(name: str) -> dict:
    return inspect.signature(model_info(name).cls).parameters


RATES = [
    (name, rate)
    for name in list_models()
    for rate, parameter in parameters(name).items()
    if rate.endswith(("dropout", "drop_path", "_rate")) and isinstance(parameter.default, float | None)
]


def build(name: str, **arguments) -> nn.Module:
    known = parameters(name)
    none = {rate: 0.0 for other, rate in RATES if other == name}
    small = {key: value for key, value in SMALL.items() if key in known} | OWN.get(name, {})
    torch.manual_seed(0)
    model = create_model(name, level=model_info(name).levels[0], **small | none | arguments)
    for parameter in model.parameters():  # the initial weights of 0.02 would hide dropped values
        nn.init.normal_(parameter, std=0.5)
    return model


def test_all_rates_are_known():
    assert len(RATES) > 25
    assert {name for name, _ in RATES} >= {"edge-transformer", "hot", "polynormer", "ppgt", "tokengt"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rate"), RATES)
def test_rate_acts_in_training_alone(name, rate):
    beside = BESIDE.get((name, rate), {})
    model, without, data = build(name, **beside, **{rate: 0.5}), build(name, **beside), batch()
    without.load_state_dict(model.state_dict())
    expected = without.train()(data)
    assert torch.equal(without(data), expected)  # no other random numbers
    outputs = []
    for seed in range(4):
        torch.manual_seed(seed)
        outputs.append(model.train()(data))
    assert all(out.isfinite().all() for out in outputs)
    assert any(not torch.allclose(out, expected) for out in outputs)
    assert any(not torch.equal(out, outputs[0]) for out in outputs[1:])
    model.load_state_dict(without.state_dict())  # the statistics of batch norms
    torch.testing.assert_close(model.eval()(data), without.eval()(data))


@pytest.mark.slow
@pytest.mark.parametrize("form", [None, "reference"])
@pytest.mark.parametrize(("name", "rate"), RATES)
def test_a_dropout_module_has_a_mode_of_its_own(name, rate, form):
    """A model in evaluation draws if its dropout modules are in training (Monte Carlo dropout), and the reverse not."""
    model, data = build(name, **BESIDE.get((name, rate), {}), **{rate: 0.5}), batch()
    modules = [module for module in model.modules() if isinstance(module, RateOfDropout | nn.Dropout)]
    if not any(getattr(module, "rate", 0) or getattr(module, "p", 0) for module in modules):
        pytest.skip(f"{rate} is not the rate of a dropout module")

    def outputs(training: bool) -> list[torch.Tensor]:
        model.train(not training)
        for module in modules:
            module.train(training)
        found = []
        for seed in range(4):
            torch.manual_seed(seed)
            found.append(model(data).detach())
        return found

    with use(form):
        first, *others = outputs(True)
        assert any(not torch.equal(out, first) for out in others)
        first, *others = outputs(False)
        assert all(torch.equal(out, first) for out in others)
