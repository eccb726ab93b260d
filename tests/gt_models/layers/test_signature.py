"""The signature of a released form: the arguments of the paper's model, then additional ones."""

import inspect

import pytest
from torch import nn

from gt_models import create_model, model_info
from gt_models.layers.signature import with_arguments_of


class Paper(nn.Module):
    def __init__(self, width: int, depth: int = 2, norm: str = "layer"):
        super().__init__()
        self.got = {"width": width, "depth": depth, "norm": norm}


class Released(Paper):
    @with_arguments_of(Paper, "norm", depth=3)
    def __init__(self, scale: float = 1.0, **paper):
        super().__init__(**paper, norm="none")
        self.scale = scale


def test_signature_and_values():
    assert str(inspect.signature(Released)) == "(width: int, depth: int = 3, scale: float = 1.0)"
    assert Released(4).got == {"width": 4, "depth": 3, "norm": "none"}
    assert (Released(4, scale=2.0).scale, Released(4, 5).got["depth"]) == (2.0, 5)


@pytest.mark.parametrize("arguments", [{}, {"width": 4, "widht": 5}, {"width": 4, "norm": "layer"}])
def test_missing_and_unknown_arguments_are_refused(arguments):
    with pytest.raises(TypeError):
        Released(**arguments)


def test_what_the_paper_does_not_have_is_refused():
    with pytest.raises(TypeError, match="no argument dpeth"):
        with_arguments_of(Paper, dpeth=3)


@pytest.mark.parametrize("name", ["hot", "ppgt"])
def test_a_release_takes_what_its_paper_takes(name):
    paper, released = (inspect.signature(model_info(n).cls).parameters for n in (name, f"{name}-released"))
    assert set(paper) < set(released)
    with pytest.raises(TypeError, match="did you mean 'hidden_dim'"):
        create_model(f"{name}-released", in_dim=3, out_dim=2, hiden_dim=8)
