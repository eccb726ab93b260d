"""Search spaces: their size, values that a recipe refuses, and fair searches."""

from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.config.search_section import SearchSection
from gt_bench.pipeline.train import train_cell
from gt_bench.pipeline.tune import tune_cell
from gt_bench.search.artifacts import search_summary
from gt_bench.search.space import space_size, trials_of
from tests.gt_bench.search.cases import CELL, GRID, SPACE, tune
from tests.refusals import refused

RECIPE = "suites/small/recipes/web/mlp.yaml"


def test_a_space_with_values_that_the_model_refuses_together_names_them(project):
    space = {"model.dropout": {"choices": [7.0]}, "model.hidden_dim": {"choices": [8]}}
    project.recipe(search={"trials": 2, "space": space})
    refusal = {"file": RECIPE, "place": "search.space", "value": {"model.dropout": 7.0, "model.hidden_dim": 8}}
    with refused(RecipeError, **refusal):
        tune()


@pytest.mark.parametrize(
    ("space", "place", "problem"),
    [
        ({}, "", "is empty"),
        ({"model.dropout": {"choices": []}}, ".model.dropout.choices", "is empty"),
        ({"optimizer.lr": {"low": 0.1, "high": 0.1}}, ".optimizer.lr", "expected low < high"),
    ],
)
def test_an_empty_search_space(project, space, place, problem):
    project.recipe(search={"trials": 2, "space": space})
    with refused(RecipeError, file=RECIPE, place=f"search.space{place}") as error:
        load_recipe(RECIPE)
    assert problem in error.value.problem


@pytest.mark.parametrize(
    ("key", "space", "value"),
    [
        ("reduced", {"choices": ["a"]}, None),  # no run depends on it
        ("targets", {"choices": ["train", "all"]}, None),  # validation values could not be compared
        ("split", {"choices": [0, 1]}, None),
        ("encodings.rwse.steps", {"choices": [3]}, None),  # not an encoding of the recipe
        ("optimizer.weight_decay", {"low": -0.5, "high": 0.1}, -0.5),
        ("schedule.factor", {"low": 0.1, "high": 3.0}, 3.0),
    ],
)
def test_a_key_or_an_end_of_a_range_that_does_not_fit_the_recipe(project, key, space, value):
    project.recipe(search={"trials": 2, "space": {key: space}})
    with refused(RecipeError, file=RECIPE, place=f"search.space.{key}", value=value):
        tune()


def test_a_grid_has_no_ranges(project):
    project.recipe(search={"trials": 2, "sampler": "grid", "space": {"model.dropout": {"low": 0.0, "high": 0.5}}})
    with refused(RecipeError, file=RECIPE, place="search.sampler", value="grid"):
        tune()


@pytest.mark.parametrize(
    ("space", "size"),
    [
        (SPACE, (9, 0)),
        ({"a": {"low": 0, "high": 1}}, (1, 1)),
        ({"a": {"low": 1, "high": 4, "integer": True}, "b": {"low": 0.0, "high": 0.5, "step": 0.1}}, (4 * 6, 0)),
        ({"a": {"low": 1e-4, "high": 1, "log": True}, "b": {"choices": [1, 2]}}, (2, 1)),
    ],
)
def test_the_size_of_a_space(space, size):
    assert space_size(SearchSection(trials=1, space=space)) == size


def fair(trials_each: int) -> None:
    path = Path("params.yaml")
    path.write_text(path.read_text() + f"fair_search: {{small: {trials_each}}}\n")


@pytest.mark.slow
def test_a_fair_search_gives_every_cell_the_same_trials_over_spaces_of_one_size(project):
    project.recipe(search=GRID)
    project.recipe(row="twin", search={**GRID, "trials": 2})
    project.recipe(row="untuned")
    fair(4)
    grid = load_grid()
    for row in ("mlp", "twin"):
        tune_cell(grid.find(f"small/web/{row}"), grid)
        summary = search_summary(grid.find(f"small/web/{row}"))
        assert (summary.used, summary.space, summary.keys) == (
            4,
            "9 points",
            ["model.dropout", "optimizer.lr"],
        )
    # another number than in the recipe is not reported as reduced
    assert train_cell(grid.find("small/web/twin"), grid).reduced == []
    project.recipe(row="twin", search={**GRID, "space": {"model.dropout": {"choices": [0.1, 0.2]}}})
    fair(4)
    with refused(RecipeError, file="params.yaml", place="fair_search.small") as error:
        trials_of(load_grid().find(CELL), load_grid(), load_recipe(RECIPE))
    assert "9 points: small/web/mlp" in error.value.remedy
    assert "2 points: small/web/twin" in error.value.remedy
    Path("params.yaml").write_text(Path("params.yaml").read_text().replace("{small: 4}", "{smal: 4}"))
    with refused(RecipeError, place="fair_search", value="smal"):
        load_grid()
