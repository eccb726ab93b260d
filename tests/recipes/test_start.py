"""The recipe that another one starts from has the necessary weights, and saves them."""

import inspect

import pytest
import torch
import yaml

from gt_bench.config.grid import load_grid
from gt_bench.data.registry import get_spec
from gt_bench.data.standin import shape_of
from gt_bench.experiment.validate import check_model
from gt_bench.utils.paths import recipe_file
from gt_models.registry import create_model, model_info
from tests.recipes.shipped import PATHS, ROOT, cell, dataset, recipe


def model_of(path):
    content, spec = recipe(path), get_spec(dataset(path))
    shape = shape_of(spec)
    given = {
        "in_dim": shape.in_dim,
        "out_dim": shape.out_dim,
        "level": content.level_of(spec.level),
        "edge_dim": shape.edge_dim,
    }
    taken = inspect.signature(model_info(content.model.name).cls).parameters
    with torch.device("meta"):
        return create_model(
            content.model.name, **{k: v for k, v in given.items() if k in taken}, **check_model(content, path)
        )


@pytest.mark.parametrize("path", [p for p in PATHS if recipe(p).start], ids=cell)
def test_a_cell_starts_from_one_that_keeps_weights_that_fit(path):
    start = recipe(path).start
    source = recipe_file(start.cell, ROOT / "suites")
    assert source in PATHS
    assert recipe(source).keep_weights
    assert set(recipe(path).seeds) <= set(recipe(source).seeds)
    assert dataset(source) == dataset(path)
    before, after = model_of(source), model_of(path)
    shapes = {name: value.shape for name, value in before.state_dict().items()}
    missing = [name for name, value in after.state_dict().items() if shapes.get(name) != value.shape]
    # random features are drawn again; all learned weights come from the source
    assert not set(missing) & {name for name, _ in after.named_parameters()}
    assert start.load == ("common" if missing or len(shapes) > len(after.state_dict()) else "all")


def test_the_stage_of_such_a_cell_waits_for_the_other():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    train, finetune = stages["train"]["do"], stages["finetune"]["do"]
    assert stages["finetune"]["foreach"] == "${finetunes}"
    assert set(finetune["deps"]) - set(train["deps"]) == {"results/${item.after}.json"}
    assert set(train["deps"]) <= set(finetune["deps"])
    assert (finetune["outs"], finetune["cmd"]) == (train["outs"], train["cmd"])
    grid = load_grid(ROOT / "params.yaml")
    assert {c.cell: c.after for c in grid.finetunes.values()} == {
        cell(p): recipe(p).start.cell for p in PATHS if recipe(p).start
    }
