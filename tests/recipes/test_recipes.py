"""Every recipe that is shipped: it loads, its model takes it, its dataset exists, its values have origins, its printed number is there."""

import pytest

from gt_models.registry import model_info
from stages.datasets.catalog import get_spec
from stages.recipe import check_fit, check_model, check_origins
from stages.report.published import METRIC_NAMES
from tests.recipes.shipped import PATHS, cell, dataset, matches, recipe, results


@pytest.mark.parametrize("path", PATHS, ids=cell)
def test_a_recipe_fits_its_model_and_its_dataset(path):
    content, spec = recipe(path), get_spec(dataset(path))
    check_model(content, path)
    check_fit(content, spec.level, spec.name, path)
    check_origins(content, path, complete=True)
    assert bool(content.batch.parts) <= (spec.split_kind == "node")
    if content.phases:
        assert hasattr(model_info(content.model.name).cls, "set_phase")


@pytest.mark.parametrize("path", [p for p in PATHS if recipe(p).published], ids=cell)
def test_the_published_number_exists(path):
    reference = recipe(path).published
    for place in reference.references(dataset(path)):
        place["metric"] = METRIC_NAMES.get(place["metric"], place["metric"])
        assert [e for e in results() if matches(e, place)], f"published/results.yaml prints nothing at {place}"


def test_no_two_rows_of_a_suite_are_one_run():
    """A second protocol of the same row decides other numbers, or it is no second protocol."""
    seen: dict[str, str] = {}
    for path in PATHS:
        key = f"{path.parent}: {recipe(path).decisive()}"
        assert key not in seen, f"{cell(path)} decides the same numbers as {seen[key]}"
        seen[key] = cell(path)
