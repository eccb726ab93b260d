"""Text of options: KEY=VALUE and seeds."""

import pytest

from gt_bench.config.option_text import OptionError, seeds_in, values_in
from tests.refusals import refused


def test_values_are_yaml():
    texts = ["optimizer.lr=1e-3", "model.norm = none", "x=[1, 2]", "text=a=b"]
    found = values_in("--set", texts, "optimizer.lr=0.01")
    assert found == {"optimizer.lr": 0.001, "model.norm": "none", "x": [1, 2], "text": "a=b"}


@pytest.mark.parametrize("text", ["lr", "=1", "lr=", " = "])
def test_an_option_that_is_not_key_value_is_refused(text):
    with refused(OptionError, place="--set", value=text):
        values_in("--set", [text], "optimizer.lr=0.01")


def test_seeds():
    assert seeds_in("0-2,7") == [0, 1, 2, 7]
    for wrong in ("a", "3-1", "", "1-", "-1"):
        with refused(OptionError, place="--seeds", value=wrong):
            seeds_in(wrong)
    with refused(OptionError, place="--search-seeds", value="0-10000000000"):
        seeds_in("0-10000000000", "--search-seeds")
