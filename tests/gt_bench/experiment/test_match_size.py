"""The width at which a model has a budget of parameters: `gt-bench match`."""

import inspect
import json

import pytest
import yaml

from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError, validated
from gt_bench.experiment.match_size import _nearest, _parameters, count_in, dims_of, matched
from gt_bench.utils.errors import UserError
from gt_models.registry import model_info
from tests.gt_bench.shipping import run
from tests.refusals import refused


def of(model: str, **arguments) -> Recipe:
    content = {"model": {"name": model, **arguments}, "optimizer": {"lr": 0.01}, "epochs": 1, "seeds": [0]}
    return validated(Recipe, content, "test")


@pytest.mark.parametrize(
    ("text", "number"), [("500k", 500_000), ("1.5M", 1_500_000), ("20", 20), ("500_000", 500_000), ("2b", 2 * 10**9)]
)
def test_numbers_of_parameters(text, number):
    assert count_in(text) == number


@pytest.mark.parametrize("text", ["", "big", "-5k", "0", "0.2", "5kk", "k"])
def test_invalid_numbers_of_parameters_are_refused(text):
    with pytest.raises(ValueError, match="500k"):
        count_in(text)


@pytest.mark.parametrize("budget", [10, 100, 777, 5000, 123_456])
@pytest.mark.parametrize("step", [1, 4])
@pytest.mark.parametrize("valid", [lambda w: True, lambda w: w % 8 == 0])
def test_bisection_finds_the_nearest_valid_width(budget, step, valid):
    def count(width):
        return width * width + 3 * width if valid(width) else None

    nearest = min((abs(count(w) - budget), w) for w in range(step, 4000, step) if valid(w))
    value, size = _nearest(count, budget, step)
    assert size == count(value)
    assert abs(size - budget) == nearest[0]


@pytest.mark.parametrize(
    ("model", "dataset"), [("gcn", "cornell"), ("edge-transformer", "zinc"), ("polynormer", "cornell")]
)
def test_no_other_width_is_nearer_and_heads_divide_it(model, dataset):
    found = matched(of(model), dataset, "hidden_dim", 100_000, "test")
    taken = inspect.signature(model_info(model).cls).parameters
    dims = {k: v for k, v in dims_of(dataset).items() if k in taken}
    widths = (found.value - found.step, found.value, found.value + found.step)
    sizes = {width: _parameters(model, dims | {"hidden_dim": width}) for width in widths}
    assert sizes[found.value] == found.parameters
    assert abs(found.parameters - 100_000) == min(abs(size - 100_000) for size in sizes.values())
    heads = taken["num_heads"].default if "num_heads" in taken else 1
    assert found.value % heads == 0


@pytest.mark.parametrize(
    ("model", "by", "budget"),
    [("gcn", "hiden", 10**5), ("gcn", "hidden_dim", 1000), ("appnp", "steps", 10**6)],
    ids=["no such argument", "smaller than the smallest", "does not change the size"],
)
def test_a_budget_that_cannot_be_met_is_refused(model, by, budget):
    with refused(RecipeError, file="test", place="--parameters" if budget == 1000 else "--by"):
        matched(of(model), "cornell", by, budget, "test")


def test_the_command_prints_a_width_that_a_recipe_accepts():
    content = json.loads(run("match", "gcn", "cornell", "--parameters", "100k", "--json").output)
    assert content["by"] == "hidden_dim"
    assert abs(content["parameters"] - 100_000) < 2000
    printed = run("match", "gcn", "cornell", "--parameters", "100k").output
    recipe = yaml.safe_load(printed.partition("in a recipe:\n")[2])
    assert recipe["model"] == {"name": "gcn", "hidden_dim": content["value"]}
    assert list(recipe["origin"]) == ["model.hidden_dim"]


@pytest.mark.parametrize(
    "arguments",
    ["gcn cornell --parameters big", "gcnn cornell --parameters 1k", "gcn cornel --parameters 1k",
     "gcn cornell --parameters 9k --set epochs=2"],
)  # fmt: skip
def test_the_command_refuses(arguments):
    assert isinstance(run("match", *arguments.split()).exception, UserError)
