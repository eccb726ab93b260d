"""Experiments of the small suite."""

from pathlib import Path

import pytest

from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import load_recipe
from gt_bench.experiment.run import Experiment
from gt_bench.store.run_store import Store


@pytest.fixture
def make(project):
    """`make(dataset, row, **changes of the recipe)` creates the experiment of small/DATASET/ROW."""

    def experiment(dataset="web", row="mlp", **changes) -> Experiment:
        path = project.recipe(dataset, row, **changes)
        grid = load_grid()
        name = f"suites/small/recipes/{dataset}/{row}.yaml"
        return Experiment(load_recipe(path), name, dataset, grid.run, Store(), Path("data"))

    return experiment
