"""The width at which a model has a budget of parameters: `gt-bench match` and `match:` in recipes."""

import json

import pytest
import yaml

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.recipe_sections import count_in
from gt_bench.config.schema import RecipeError, validated
from gt_bench.experiment.match_size import _nearest, matched
from gt_bench.pipeline.train import train_cell
from tests.gt_bench.conftest import RECIPE
from tests.gt_bench.shipping import CELL, run, train

MATCHED = {"model": {"name": "mlp", "num_layers": 2, "dropout": 0.2}, "match": {"parameters": 400, "by": "hidden_dim"}}


def of(model: str, **arguments) -> Recipe:
    content = {"model": {"name": model, **arguments}, "optimizer": {"lr": 0.01}, "epochs": 1, "seeds": [0]}
    return validated(Recipe, content, "test")


@pytest.mark.parametrize(
    ("text", "number"), [("500k", 500_000), ("1.5M", 1_500_000), ("20", 20), ("500_000", 500_000), ("2b", 2 * 10**9)]
)
def test_numbers_of_parameters(text, number):
    assert count_in(text) == number


@pytest.mark.parametrize("text", ["", "big", "-5k", "0", "0.2", "5kk", "k"])
def test_what_is_no_number_of_parameters(text):
    with pytest.raises(ValueError, match="expected a number of parameters such as 500k"):
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
    import inspect

    from gt_bench.experiment.match_size import _parameters, dims_of
    from gt_models.registry import model_info

    found = matched(of(model), dataset, "hidden_dim", 100_000, "test")
    taken = inspect.signature(model_info(model).cls).parameters
    dims = {k: v for k, v in dims_of(dataset).items() if k in taken}
    sizes = {
        w: _parameters(model, dims | {"hidden_dim": w})
        for w in (found.value - found.step, found.value, found.value + found.step)
    }
    assert sizes[found.value] == found.parameters
    assert abs(found.parameters - 100_000) == min(abs(size - 100_000) for size in sizes.values())
    heads = taken["num_heads"].default if "num_heads" in taken else 1
    assert found.value % heads == 0


def test_matching_draws_no_random_number():
    import torch

    torch.manual_seed(3)
    before = torch.get_rng_state()
    matched(of("edge-transformer"), "zinc", "hidden_dim", 100_000, "test")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("by", "budget", "message"),
    [
        ("hiden", 10**5, r"match.by: 'hiden' is not a whole-number argument of gcn \(did you mean 'hidden_dim'\?\)"),
        ("hidden_dim", 1000, "1,000 is less than 1,718, the number of parameters of gcn with hidden_dim: 1 on cornell"),
    ],
)
def test_a_budget_that_cannot_be_met_is_refused(by, budget, message):
    with pytest.raises(RecipeError, match=message):
        matched(of("gcn"), "cornell", by, budget, "test")


def test_an_argument_that_does_not_change_the_size_is_refused():
    with pytest.raises(RecipeError, match="match.by: steps does not change the number of parameters of appnp"):
        matched(of("appnp"), "cornell", "steps", 10**6, "test")


def test_a_recipe_states_the_width_and_where_it_comes_from(project):
    path = project.recipe(**MATCHED, origin={"all": "chosen: a test"})
    recipe = load_recipe(path)
    width = recipe.model.arguments["hidden_dim"]
    assert recipe.origin["model.hidden_dim"].startswith("chosen: match, ")
    assert run("show", CELL).output.count(f"hidden_dim: {width}  # chosen: match, ") == 1
    shown = json.loads(run("show", CELL, "--json").output)
    assert shown["model"]["hidden_dim"] == width


@pytest.mark.slow
def test_the_width_and_not_the_rule_is_the_identity(project):
    path = project.recipe(**MATCHED)
    recipe = load_recipe(path)
    width = recipe.model.arguments["hidden_dim"]
    assert "match" not in recipe.decisive()
    train()
    by_rule = {record["digest"]: record["deterministic"] for record in project.records()}
    assert all(run["recipe"]["model"]["hidden_dim"] == width for run in by_rule.values())
    assert all(abs(run["parameters"] - 400) <= 40 for run in by_rule.values())
    project.recipe(model={**RECIPE["model"], "hidden_dim": width})
    train()
    assert {record["digest"]: record["deterministic"] for record in project.records()} == by_rule
    result = json.loads((project.root / f"results/{CELL}.json").read_text())
    assert result["recipe"]["model"]["hidden_dim"] == width


def test_another_layer_gets_another_width(project):
    widths = []
    for layers in (2, 4):
        path = project.recipe(model={"name": "mlp", "num_layers": layers}, match={"parameters": "2k"})
        widths.append(load_recipe(path).model.arguments["hidden_dim"])
    assert widths[0] > widths[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": RECIPE["model"]},
            r"model.hidden_dim: 8 is given, but match: \{parameters: 400, by: hidden_dim\} gives",
        ),
        ({"match": {"parameters": "lots"}}, "match.parameters: .*expected a number of parameters such as 500k"),
        ({"match": {"parameters": 400, "by": "depth"}}, "match.by: 'depth' is not a whole-number argument of mlp"),
        ({"match": {"parameters": 400, "width": 3}}, "match.width"),
        (
            {"search": {"trials": 2, "space": {"model.num_layers": {"choices": [1, 2]}}}},
            "search.space.model.num_layers: may change the number of parameters, which match: keeps at 400; remove one",
        ),
    ],
)
def test_a_rule_that_contradicts_the_recipe_is_refused(project, changes, message):
    path = project.recipe(**MATCHED | changes)
    with pytest.raises(RecipeError, match=message):
        load_recipe(path)


def test_a_recipe_with_both_that_agree_loads(project):
    path = project.recipe(**MATCHED)
    resolved = load_recipe(path)
    path.write_text(yaml.safe_dump(resolved.model_dump(mode="json", exclude_unset=True)))
    assert load_recipe(path).model == resolved.model


@pytest.mark.slow
def test_the_learning_rate_can_be_searched_at_a_matched_size(project):
    project.recipe(**MATCHED, search={"trials": 2, "space": {"optimizer.lr": {"choices": [0.01, 0.02]}}})
    from gt_bench.pipeline.tune import tune_cell

    grid = load_grid()
    tune_cell(grid.find(CELL), grid)
    train_cell(grid.find(CELL), grid)
    widths = {record["deterministic"]["recipe"]["model"]["hidden_dim"] for record in project.records()}
    assert len(widths) == 1


def test_the_command():
    content = json.loads(run("match", "gcn", "cornell", "--parameters", "100k", "--json").output)
    assert content["by"] == "hidden_dim"
    assert abs(content["parameters"] - 100_000) < 2000
    printed = run("match", "edge-transformer", "zinc", "--parameters", "500k").output
    assert "a multiple of 8 (its heads)" in printed
    assert "match: {parameters: 500000, by: hidden_dim}" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gcn", "cornell", "--parameters", "big"], "--parameters big: expected a number"),
        (["gcnn", "cornell", "--parameters", "1k"], "no model named 'gcnn'"),
        (["gcn", "cornel", "--parameters", "1k"], "no dataset named 'cornel'"),
        (["gcn", "cornell", "--parameters", "9k", "--set", "epochs=2"], "--set epochs: only arguments of the model"),
    ],
)
def test_the_command_refuses(arguments, message):
    with pytest.raises(Exception, match=message):
        raise run("match", *arguments).exception
