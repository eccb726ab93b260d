"""The search space of a user-supplied model."""

from pathlib import Path

import pytest

from gt_bench.config.search_section import SearchSection
from gt_bench.plugins.argument_space import argument_space
from gt_bench.plugins.default_recipes import recipe_of
from gt_bench.plugins.models import find

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(
        self, in_dim, out_dim, hidden=48, num_layers=3, heads=4, dropout=0.3, alpha=0.1, residual=True, norm="batch",
        seed=7,
    ):
        super().__init__()
        self.head = nn.Linear(in_dim, out_dim)

    def forward(self, x):
        return self.head(x)
"""


def test_every_number_has_a_range_by_its_default():
    found = argument_space(
        {"hidden_channels": 32, "num_layers": 2, "k": 1, "p_drop": 0.5, "alpha": 0.1, "eps": 1e-5, "scale": 2.0}
    )
    assert found == {
        "hidden_channels": {"choices": [16, 32, 64]},
        "num_layers": {"low": 1, "high": 4, "integer": True},
        "k": {"low": 1, "high": 2, "integer": True},
        "p_drop": {"low": 0.0, "high": 0.7},
        "alpha": {"low": 0.01, "high": 0.55, "log": True},
        "eps": {"low": 1e-6, "high": 1e-4, "log": True},
        "scale": {"low": 0.5, "high": 8.0, "log": True},
    }
    SearchSection(trials=1, space={f"model.{name}": space for name, space in found.items()})


def test_flags_words_negative_numbers_and_seeds_have_none():
    assert argument_space({"residual": True, "norm": "batch", "k": -1, "seed": 3, "width": None}) == {}


def test_a_width_is_divisible_by_every_number_of_heads():
    assert argument_space({"hidden": 32, "heads": 4})["heads"] == {"choices": [2, 4, 8]}
    assert argument_space({"hidden": 24, "heads": 4})["heads"] == {"choices": [2, 4]}
    assert "heads" not in argument_space({"hidden": 15, "heads": 5})


def test_a_model_of_a_file_is_searched_by_its_arguments(ours):
    from gt_bench.data.packed import PackedDataset
    from gt_bench.data.prepare import prepare

    Path("my.py").write_text(MODEL)
    prepare("web")
    header = PackedDataset.open("data/packed/web").header
    recipe = recipe_of(
        find("my.py:Net"), header, {"model.alpha": 0.2}, None, 5, {"optimizer.lr": {"choices": [0.1, 0.2]}}
    )
    space = recipe.searched.space
    assert list(space) == [
        "optimizer.lr", "optimizer.weight_decay", "model.hidden", "model.num_layers", "model.heads", "model.dropout",
    ]  # fmt: skip
    assert space["optimizer.lr"].choices == [0.1, 0.2]
    assert space["model.hidden"].choices == [24, 48, 96]


@pytest.mark.slow
def test_the_defaults_of_a_constructor_win_unless_they_are_set(ours, capsys, forked):
    from gt_bench.api.evaluate import try_pair
    from gt_bench.config.recipe import load_recipe

    text = MODEL.replace("hidden=48", "hidden_dim=48").replace("class Net", "class Own")
    Path("own.py").write_text(text)
    for given, dropout in (({}, None), ({"model.dropout": 0.1}, 0.1)):
        found = try_pair("own.py:Own", "web", {"epochs": 1, **given}, [0])
        assert load_recipe(found.recipe).model.arguments.get("dropout") == dropout
        assert "hidden_dim" not in load_recipe(found.recipe).model.arguments
    said = capsys.readouterr().out
    assert "  of the constructor: model.hidden_dim=48, model.num_layers=3, model.heads=4, model.dropout=0.3" in said
    assert "  set: epochs=1, model.dropout=0.1" in said.replace(
        "model.dropout=0.1, epochs=1", "epochs=1, model.dropout=0.1"
    )
    assert "optimizer.lr=0.01" in said
    # a required argument has no default to keep
    Path("needs.py").write_text(text.replace("hidden_dim=48", "hidden_dim"))
    found = try_pair("needs.py:Own", "web", {"epochs": 1}, [0])
    assert load_recipe(found.recipe).model.arguments == {"hidden_dim": 64}
