"""Checks of a recipe against its model, its dataset and the machine."""

import numpy as np
import pytest

from gt_bench.api.evaluate import try_pair
from gt_bench.config.grid import load_grid
from gt_bench.config.recipe import Recipe, load_recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.custom.dataset import custom_dataset
from gt_bench.data.custom.description import Description
from gt_bench.data.packed import PackedDataset
from gt_bench.experiment.validate import check_fit, check_metric, check_model, check_num_gpus, check_processes
from gt_bench.pipeline.train import train_cell
from gt_bench.store.run_store import Store
from gt_bench.tasks.registry import create_task
from gt_bench.utils.json_types import Settings
from tests.gt_bench.conftest import RECIPE, write_yaml
from tests.gt_bench.custom_data import ours  # noqa: F401 (a fixture)
from tests.refusals import refused

FAST: Settings = {"epochs": 2, "model.hidden_dim": 8}


def test_a_model_file_that_cannot_be_imported_is_named(tmp_path):
    (tmp_path / "net.py").write_text("class Net(\n")
    recipe = load_recipe(write_yaml(tmp_path, {**RECIPE, "model": {"name": f"{tmp_path}/net.py:Net"}}))
    with refused(RecipeError, file="web.yaml", place="model.name"):
        check_model(recipe, "web.yaml")


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({"name": "mlp", "hidden_dim": "wide"}, "model.hidden_dim"),
        ({"name": "mlp", "hidden_dim": 32.0}, "model.hidden_dim"),
        ({"name": "mlp", "out_dim": 3}, "model.out_dim"),
    ],
)
def test_model_arguments_are_checked_by_the_constructor(model, key):
    with refused(RecipeError, file="some.yaml", place=key):
        check_model(Recipe(**{**RECIPE, "model": model}), "some.yaml")


def test_a_model_that_does_not_support_the_level_or_an_encoding():
    recipe = Recipe(**RECIPE)
    check_fit(recipe, "node", "web")
    with refused(RecipeError, place="model.name", value=recipe.model.name):
        check_fit(recipe, "pair", "web")
    for name, arguments in {"rrwp": {"steps": 3}, "rwrp": {}}.items():
        with refused(RecipeError, place=f"encodings.{name}"):
            check_fit(Recipe(**RECIPE, encodings={name: arguments}), "node", "web")


# metrics that are undefined on a part


def write_graphs(path, y, split):
    """A file of graphs with one node each, targets `y` and rows of `split`."""
    count = np.ones(len(y), np.int64)
    arrays = {"x": np.linspace(0, 1, len(y))[:, None], "edge_index": np.zeros((2, 0), np.int64)}
    np.savez(path, **arrays, num_nodes=count, num_edges=0 * count, y=np.array(y), split=np.array(split))


TWO = [[1, 1, 2, 2, 3, 3], [1, 1, 3, 3, 2, 2]]
LABELS = [[0, 1], [1, 0], [0, 1], [0, 1], [0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("y", "task", "metric", "part"),
    [
        ([0, 1, 0, 0, 0, 1], "graph-classification", "roc-auc", "val"),
        ([0, 1, 0, 1, 1, 1], "graph-classification", "roc-auc", "test"),
        (LABELS, "graph-multilabel", "ap", "val"),
        (LABELS, "graph-multilabel", "roc-auc", "val"),
    ],
)
def test_an_undefined_metric_is_rejected_before_training(ours, y, task, metric, part):  # noqa: F811
    write_graphs("a.npz", y, TWO)
    for trials in (None, 2):
        with refused(RecipeError, place="dataset 'a'", value=metric) as error:
            try_pair("mlp", "a.npz", FAST, [0], trials, data=Description(task=task, metric=metric))
        assert f"the {part} part of split 0" in error.value.problem
    assert not list(Store().records())


def test_only_splits_that_are_used_are_checked(ours):  # noqa: F811
    write_graphs("a.npz", [0, 1, 0, 1, 1, 1], [[3, 3, 2, 2, 1, 1], [2, 2, 3, 3, 1, 1], [1, 2, 2, 3, 3, 3]])
    spec = custom_dataset("a", "a.npz", task="graph-classification", metric="roc-auc")
    spec.prepare(spec, {}, ours / "out")
    packed, task = PackedDataset.open(ours / "out"), create_task("graph-classification", "roc-auc")
    check_metric(packed, task, [0, 1], "x")
    with refused(RecipeError, file="x", place="dataset 'a'", value="roc-auc"):
        check_metric(packed, task, [0, 2], "x")


@pytest.mark.slow
def test_a_run_with_a_validation_of_nan_fails(ours, monkeypatch):  # noqa: F811
    write_graphs("a.npz", [0, 1, 0, 0, 0, 1], TWO)
    monkeypatch.setattr("gt_bench.experiment.setup.check_metric", lambda *arguments: None)
    row = try_pair("mlp", "a.npz", FAST, [0], data=Description(task="graph-classification", metric="roc-auc")).row
    assert (row["status"], row["mean"]) == ("failed", None)
    (record,) = Store().records()
    assert record.run.error == "roc-auc on val is nan in epoch 1: it is not defined there"


# several processes


def test_a_batch_of_one_graph_cannot_be_shared_by_processes(project):
    project.recipe("web", processes=2)
    grid = load_grid()
    with refused(RecipeError, place="processes", value=2):
        train_cell(grid.find("small/web/mlp"), grid)
    with refused(RecipeError, place="processes", value=2):
        check_processes(Recipe(**RECIPE, processes=2), "isomorphism", "graph", "pairs")
    check_processes(Recipe(**RECIPE), "isomorphism", "graph", "pairs")


def test_each_process_needs_a_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    recipe = Recipe(**RECIPE, processes=3)
    with refused(RecipeError, file="r.yaml", place="processes", value=3):
        check_num_gpus(recipe, "auto", True, "r.yaml")
    with refused(RecipeError, file="r.yaml", place="processes", value="cuda:1"):
        check_num_gpus(recipe, "cuda:1", True, "r.yaml")
    check_num_gpus(recipe, "auto", False)
    check_num_gpus(recipe.model_copy(update={"processes": 2}), "cuda", True)
