"""A recipe that does not fit its model or its dataset is one line that names both."""

import pytest

from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.experiment.validate import check_fit, check_model
from tests.gt_bench.conftest import RECIPE, write_yaml


def test_a_recipe_whose_model_s_file_cannot_be_imported_is_named(tmp_path):
    (tmp_path / "net.py").write_text("class Net(\n")
    recipe = load_recipe(write_yaml(tmp_path, {**RECIPE, "model": {"name": f"{tmp_path}/net.py:Net"}}))
    with pytest.raises(RecipeError, match=r"^web\.yaml: .*net\.py, line 1: expected a file that Python can import"):
        check_model(recipe, "web.yaml")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"name": "mlpp"}, ["model.name", "did you mean 'mlp'"]),
        ({"name": "mlp", "hiden_dim": 8}, ["model.hiden_dim", "did you mean 'hidden_dim'"]),
        ({"name": "mlp", "hidden_dim": "wide"}, ["model.hidden_dim", "integer"]),
        ({"name": "mlp", "out_dim": 3}, ["model.out_dim"]),
    ],
)
def test_model_arguments_are_checked_by_the_constructor(model, words):
    with pytest.raises(RecipeError) as error:
        check_model(Recipe(**{**RECIPE, "model": model}), "some.yaml")
    for word in ["some.yaml", *words]:
        assert word in str(error.value)


def test_a_model_that_cannot_predict_what_the_dataset_asks():
    recipe = Recipe(**RECIPE)
    check_fit(recipe, "node", "web")
    with pytest.raises(RecipeError, match="asks for pair; models that can: .*edge-transformer"):
        check_fit(recipe, "pair", "web")
    with pytest.raises(RecipeError, match="does not use it"):
        check_fit(Recipe(**RECIPE, encodings={"rrwp": {"steps": 3}}), "node", "web")
    with pytest.raises(RecipeError, match="did you mean|known"):
        check_fit(Recipe(**RECIPE, encodings={"rwrp": {}}), "node", "web")
