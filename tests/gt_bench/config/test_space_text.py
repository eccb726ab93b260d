"""Keys of a search space as text."""

import pytest

from gt_bench.config.option_text import OptionError
from gt_bench.config.search_section import SearchSection
from gt_bench.config.space_text import space_in, space_text
from tests.refusals import refused

CASES = {
    "model.hidden=16,32,64": {"choices": [16, 32, 64]},
    "model.norm=batch,null,true": {"choices": ["batch", None, True]},
    "model.layers=1..4": {"low": 1, "high": 4, "integer": True},
    "model.hidden=16..256:log": {"low": 16, "high": 256, "integer": True, "log": True},
    "optimizer.lr=0.0001..0.01:log": {"low": 1e-4, "high": 1e-2, "log": True},
    "model.dropout=0.0..0.5:step=0.1": {"low": 0.0, "high": 0.5, "step": 0.1},
}


@pytest.mark.parametrize("text", CASES)
def test_a_key_of_a_space_is_read_and_written(text):
    key, space = space_in(text)
    assert space == CASES[text]
    section = SearchSection(trials=1, space={key: space})
    assert f"{key}={space_text(section.space[key])}" == text


def test_exponents_are_numbers():
    assert space_in("optimizer.lr=1e-4..1e-2:log")[1] == {"low": 1e-4, "high": 1e-2, "log": True}


@pytest.mark.parametrize("text", ["model.hidden", "=1,2", "a=1..x", "a=1..2:lg", "a=[1,"])
def test_invalid_spaces_are_refused(text):
    with refused(OptionError, place="--space", value=text):
        space_in(text)
