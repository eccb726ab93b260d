"""Text of options: KEY=VALUE and seeds."""

import pytest

from gt_bench.config.option_text import OptionError, seeds_in, values_in


def test_values_are_yaml():
    texts = ["optimizer.lr=1e-3", "model.norm = none", "x=[1, 2]", "text=a=b"]
    found = values_in("--set", texts, "optimizer.lr=0.01")
    assert found == {"optimizer.lr": 0.001, "model.norm": "none", "x": [1, 2], "text": "a=b"}


@pytest.mark.parametrize("text", ["lr", "=1", "lr=", " = "])
def test_another_form_than_key_and_value(text):
    with pytest.raises(OptionError) as error:
        values_in("--set", [text], "optimizer.lr=0.01")
    assert str(error.value) == f"--set {text}: expected KEY=VALUE, for example optimizer.lr=0.01"


def test_a_value_that_is_not_yaml():
    with pytest.raises(OptionError, match="--set x=2024-13-45: invalid YAML"):
        values_in("--set", ["x=2024-13-45"], "optimizer.lr=0.01")


def test_seeds():
    assert seeds_in("0-2,7") == [0, 1, 2, 7]
    for wrong in ("a", "3-1", "", "1-", "-1"):
        with pytest.raises(OptionError, match="--seeds .*: expected 0-9, or 0,2,5"):
            seeds_in(wrong)
    with pytest.raises(OptionError, match="--search-seeds 0-10000000000: these are more than 10,000 seeds"):
        seeds_in("0-10000000000", "--search-seeds")
