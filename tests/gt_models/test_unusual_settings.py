"""Every model refuses sizes and rates that are impossible, where it is built."""

import inspect
import types
import typing
from collections.abc import Iterator

import pytest

from gt_models import list_models, model_info
from tests.gt_models.every_model import build

# a layer from order k to order l, and a readout, follow those that `num_layers` counts
WITHOUT_LAYERS = {"hot", "hot-released", "mlp-pi"}


def arguments(name: str, kind: type) -> Iterator[str]:
    """Arguments that are a number of this type, or None."""
    for key, parameter in inspect.signature(model_info(name).cls, eval_str=True).parameters.items():
        union = typing.get_origin(parameter.annotation) in (typing.Union, types.UnionType)
        kinds = typing.get_args(parameter.annotation) if union else (parameter.annotation,)
        if kind in kinds and set(kinds) <= {kind, type(None)}:
            yield key


@pytest.mark.parametrize("name", list_models())
def test_negative_sizes(name):
    for key in set(arguments(name, int)) - {"in_dim"}:
        with pytest.raises((ValueError, RuntimeError), match="-1|at least one"):  # torch refuses negative dimensions
            build(name, **{key: -1})


@pytest.mark.parametrize("name", list_models())
def test_zero(name):
    for key in {"hidden_dim", "num_heads", "num_layers", "num_local_layers"} & set(arguments(name, int)):
        if key == "num_layers" and name in WITHOUT_LAYERS:
            build(name, num_layers=0)
            continue
        if key == "hidden_dim" and name not in {"edge-transformer", "hot", "polynormer", "ppgt", "tokengt"}:
            continue
        with pytest.raises(ValueError, match=r"\b0\b|at least one"):
            build(name, **{key: 0})


@pytest.mark.parametrize("name", [name for name in list_models() if name.startswith(("ppgt", "i2gnn"))])
def test_a_head_without_layers(name):
    """Its output would have the width of the model."""
    with pytest.raises(ValueError, match="head_layers is 0"):
        build(name, head_layers=0)


@pytest.mark.parametrize("rate", [-0.1, 1.5])
@pytest.mark.parametrize("name", list_models())
def test_rates(name, rate):
    for key in arguments(name, float):
        if key.endswith(("dropout", "drop_path", "_rate")):
            with pytest.raises(ValueError, match=str(rate)):
                build(name, **{key: rate})


@pytest.mark.parametrize("name", list_models())
def test_unknown_choices(name):
    for key, parameter in inspect.signature(model_info(name).cls, eval_str=True).parameters.items():
        if typing.get_origin(parameter.annotation) is typing.Literal:
            with pytest.raises(ValueError, match="median|99"):
                build(name, **{key: 99 if isinstance(parameter.default, int) else "median"})


def test_a_clamp_that_makes_all_logits_equal():
    with pytest.raises(ValueError, match="clamp is -1"):
        build("grit", clamp=-1.0)
