"""`gt-bench board CELL --recipe`: a recipe as one file equals the recipe, and names the origin of each value."""

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import parse_yaml
from gt_bench.config.serialize import recipe_text

CELLS = ("ppgt/zinc/ppgt", "hot/chains/hot", "polynormer/questions/polynormer", "embedded/chains/gcn")


@pytest.mark.parametrize("cell", [cell.cell for cell in load_grid().cells.values() if cell.cell in CELLS])
def test_the_text_is_the_recipe_and_each_value_has_its_origin(cell):
    recipe = load_recipe(load_grid().find(cell).recipe_path)
    text = recipe_text(recipe)
    assert Recipe.model_validate(parse_yaml(text) | {"origin": recipe.origin}).decisive() == recipe.decisive()
    (lr,) = [line for line in text.splitlines() if line.startswith("  lr: ")]
    assert lr.endswith(
        f"# {next(recipe.origin[key] for key in ('optimizer.lr', 'optimizer', 'all') if key in recipe.origin)}"
    )
    assert text.count("#") >= len(recipe.given_values()) - 5


def test_a_mapping_that_is_one_value_is_one_line():
    recipe = Recipe.model_validate(
        {"model": {"name": "gcn"}, "optimizer": {"lr": 1e-5}, "epochs": 2, "seeds": [0, 1], "origin": {"all": "chosen"}}
    )
    assert recipe_text(recipe).splitlines() == [
        "model:",
        "  name: gcn  # chosen",
        "optimizer:",
        "  lr: 1.0e-05  # chosen",
        "epochs: 2  # chosen",
        "seeds: [0, 1]  # chosen",
    ]
