"""A metric that is undefined on a part is refused before anything is trained, and never leads to a run that is ok."""

import re

import numpy as np
import pytest
import torch

from gt_bench.api.evaluate import try_pair
from gt_bench.config.schema import RecipeError
from gt_bench.data.custom.dataset import custom_dataset
from gt_bench.data.packed import PackedDataset
from gt_bench.experiment.metric_fit import check_metric
from gt_bench.schemas import Settings
from gt_bench.store.run_store import Store
from gt_bench.tasks.metrics import why_undefined
from gt_bench.tasks.registry import create_task
from tests.gt_bench.custom_data import ours  # noqa: F401 (a fixture)

FAST: Settings = {"epochs": 2, "model.hidden_dim": 8}


@pytest.mark.parametrize(
    ("metric", "target", "reason"),
    [
        ("roc-auc", [0, 1, 0], None),
        ("roc-auc", [1, 1], "has one class (1)"),
        ("roc-auc", [[1.0, 0.0], [1.0, 1.0]], None),
        ("ap", [[1.0, 0.0], [1.0, 0.0]], "has one value of each of its 2 labels"),
        ("ap", [[1.0, 0.0], [float("nan"), 0.0]], "has one value of each of its 2 labels"),
        ("ap", [[1.0], [0.0]], None),
        ("accuracy", [1, 1], None),
        ("mae", [0.5], None),
    ],
)
def test_where_a_metric_is_undefined(metric, target, reason):
    assert why_undefined(metric, torch.tensor(target)) == reason


def write(path, y, split):
    count = len(y)
    np.savez(
        path, x=np.linspace(0, 1, count)[:, None], edge_index=np.zeros((2, 0), np.int64), num_nodes=np.ones(count, np.int64),
        num_edges=np.zeros(count, np.int64), y=np.array(y), split=np.array(split),
    )  # fmt: skip


TWO = [[1, 1, 2, 2, 3, 3], [1, 1, 3, 3, 2, 2]]


@pytest.mark.parametrize(
    ("y", "task", "metric", "says"),
    [
        ([0, 1, 0, 0, 0, 1], "graph-classification", "roc-auc", "the val part of split 0 has one class (0): roc-auc is not defined there; give another split, in which the part has both, or another metric: accuracy"),
        ([0, 1, 0, 1, 1, 1], "graph-classification", "roc-auc", "the test part of split 0 has one class (1)"),
        ([[0, 1], [1, 0], [0, 1], [0, 1], [0, 1], [1, 1]], "graph-multilabel", "ap", "the val part of split 0 has one value of each of its 2 labels: ap is not defined there; give another split, in which a label has"),
        ([[0, 1], [1, 0], [0, 1], [0, 1], [0, 1], [1, 1]], "graph-multilabel", "roc-auc", "the val part of split 0 has one value of each of its 2 labels: roc-auc is not"),
    ],
)  # fmt: skip
def test_refused_before_training(ours, y, task, metric, says):  # noqa: F811
    write("a.npz", y, TWO)
    for trials in (None, 2):
        with pytest.raises(RecipeError, match="dataset 'a': " + re.escape(says)):
            try_pair("mlp", "a.npz", FAST, [0], trials, task=task, metric=metric, bar=False)
    assert not list(Store().records())


def test_every_split_that_is_used_and_none_else_is_looked_at(ours):  # noqa: F811
    write("a.npz", [0, 1, 0, 1, 1, 1], [[1, 1, 2, 2, 2, 2], [2, 2, 3, 3, 1, 1], [1, 2, 2, 3, 3, 3]])
    spec = custom_dataset("a", "a.npz", task="graph-classification", metric="roc-auc")
    spec.prepare(spec, {}, ours / "out")
    packed, task = PackedDataset.open(ours / "out"), create_task("graph-classification", "roc-auc")
    check_metric(packed, task, [0, 1], "x")
    with pytest.raises(RecipeError, match="x: dataset 'a': the test part of split 2 has one class"):
        check_metric(packed, task, [0, 2], "x")


def test_a_validation_that_is_no_number_is_not_ok(ours, monkeypatch):  # noqa: F811
    write("a.npz", [0, 1, 0, 0, 0, 1], TWO)
    monkeypatch.setattr(
        "gt_bench.experiment.run.check_metric", lambda *arguments: None
    )  # as where nobody could see it coming
    row = try_pair("mlp", "a.npz", FAST, [0], task="graph-classification", metric="roc-auc", bar=False).row
    assert (row["status"], row["mean"]) == ("failed", None)
    (record,) = Store().records()
    assert record["deterministic"]["error"] == "roc-auc on val is nan in epoch 1: it is not defined there"
