"""Classes and numbers of edges: batches, standardised targets, metrics, stored predictions and a run."""

import numpy as np
import pytest
import torch

from gt_bench.analysis.score import by_class, check_metrics, fitting_metrics
from gt_bench.config.option_text import OptionError
from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import PackedDataset
from gt_bench.store.predictions import load
from tests.gt_bench.custom_data import packed as pack_source
from tests.gt_bench.runs import assert_resumes, experiment
from tests.refusals import refused

NODES, EDGES = 12, 40
EDGE_RECIPE = {
    "batch": {"edges": 10},
    "head": {"name": "concat", "dim": 5},
    "model": {"name": "gcn", "hidden_dim": 6, "num_layers": 2},
    "epochs": 3,
    "split": 0,
}


def prepare(root, task, y, metric, edge_attr=None, split=None, name="trades", **more) -> PackedDataset:
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(NODES, 3)), "edge_index": rng.integers(0, NODES, (2, EDGES)), "y": y}
    arrays |= {} if edge_attr is None else {"edge_attr": edge_attr}
    arrays |= {} if split is None else {"split": np.array(split)}
    np.savez(root / f"{name}.npz", **arrays)
    more |= {"metric": metric}
    return pack_source(root / f"{name}.npz", root / "packed" / name, task, name=name, **more)


def classes(seed=1):
    return np.random.default_rng(seed).integers(0, 2, EDGES)


def test_batches_of_edges_have_their_nodes_targets_and_features(tmp_path):
    attributes = np.random.default_rng(2).normal(size=(EDGES, 2))
    packed = prepare(tmp_path, "edge-classification", classes(), "roc-auc", attributes)
    loader = experiment(tmp_path, "trades", **EDGE_RECIPE).loader(0)
    source = np.load(tmp_path / "trades.npz")
    seen = []
    for batch, rows in loader.training(0):
        assert rows is None
        assert torch.equal(batch.edge_index, torch.from_numpy(source["edge_index"]))  # of all parts
        seen.append(torch.cat([batch.extras["edge_label_index"].T, batch.y[:, None]], 1))
        torch.testing.assert_close(
            {tuple(np.round(row, 4)) for row in batch.extras["edge_label_attr"].tolist()}
            <= {tuple(np.round(row, 4)) for row in attributes.astype(np.float32).tolist()}, True,
        )  # fmt: skip
    ids = packed.split("train").numpy()
    given = np.column_stack([source["edge_index"].T, source["y"]])
    assert sorted(map(tuple, torch.cat(seen).tolist())) == sorted(map(tuple, given[ids].tolist()))
    assert [len(part) for part in seen] == [10] * (len(ids) // 10) + [len(ids) % 10] * (len(ids) % 10 > 0)
    assert loader.steps_per_epoch == len(seen)
    batch, _ = next(loader.evaluation("val"))
    order = loader.order("val")
    assert batch.extras["edge_label_index"].T.tolist() == given[order, :2].tolist()
    assert batch.y.tolist() == given[order, 2].tolist()
    np.testing.assert_allclose(batch.extras["edge_label_attr"].numpy(), attributes[order], rtol=1e-6)


def test_a_run_on_classes_resumes_and_its_predictions_are_scored(tmp_path):
    prepare(tmp_path, "edge-classification", classes(), "roc-auc", np.random.rand(EDGES, 2))
    record, _ = assert_resumes(tmp_path, "trades", killed_at=1, **EDGE_RECIPE)
    whole = experiment(tmp_path, "trades", "whole", **EDGE_RECIPE)
    found = load("tried/trades/gcn", whole.store.get(whole.digest(0)), whole.store)
    assert (found.level, found.task) == ("edge", "edge-classification")
    assert found.score("roc-auc") == pytest.approx(record.test)
    assert {"ap", "f1-binary", "accuracy"} <= set(fitting_metrics(found))
    assert found.parts["test"].example_ids.tolist() == whole.packed.split("test").tolist()
    assert sum(group.examples for group in by_class([found], ["accuracy"])) == len(whole.packed.split("test"))
    with refused(OptionError, place="--metric", value="mae"):
        check_metrics(["mae"], found)


def test_targets_of_edges_are_standardised_by_the_training_part(tmp_path):
    y = np.random.default_rng(3).normal(5, 3, (EDGES, 2))
    y[3, 0] = np.nan
    packed = prepare(tmp_path, "edge-regression", y, "r2")
    run = experiment(tmp_path, "trades", **EDGE_RECIPE | {"targets": "train"})
    loader = run.loader(0)
    train = y[packed.split("train").numpy()]
    mean, deviation = np.nanmean(train, 0), np.nanstd(train, 0, ddof=1)
    batch, _ = next(loader.evaluation("test"))
    np.testing.assert_allclose(batch.y.numpy(), (y[loader.order("test")] - mean) / deviation, rtol=1e-4, atol=1e-5)
    record, _ = run.run(0)
    assert record.run.status == "ok"
    # without standardising, the same data are another run
    assert run.digest(0) != experiment(tmp_path, "trades", **EDGE_RECIPE).digest(0)


@pytest.mark.parametrize(
    ("task", "metric", "y"),
    [
        ("edge-classification", "roc-auc", np.arange(EDGES) < 8),
        ("edge-classification", "f1-binary", np.arange(EDGES) < 8),
        ("edge-regression", "r2", (np.arange(EDGES) < 8) * 1.5),
    ],
)
def test_a_metric_that_is_undefined_on_a_part_is_refused_before_training(tmp_path, task, metric, y):
    split = [1] * 20 + [2] * 10 + [3] * 10
    y = y.astype(np.int64 if task.endswith("classification") else np.float64)
    prepare(tmp_path, task, y, metric, split=split)
    with refused(RecipeError, place="dataset 'trades'", value=metric) as error:
        experiment(tmp_path, "trades", **EDGE_RECIPE).run(0)
    assert "the val part of split 0" in error.value.problem


def test_a_dot_product_has_one_output(tmp_path):
    prepare(tmp_path, "edge-classification", classes(), "accuracy")
    with refused(RecipeError, place="model"):
        experiment(tmp_path, "trades", **EDGE_RECIPE | {"head": {"name": "dot", "dim": 5}}).run(0)


@pytest.mark.parametrize(
    ("changes", "place"), [({"batch": {"graphs": 4}}, "batch.graphs"), ({"batch": {"negatives": 1}}, "batch.negatives")]
)
def test_sections_of_other_tasks_are_refused(tmp_path, changes, place):
    prepare(tmp_path, "edge-classification", classes(), "accuracy")
    with refused(RecipeError, place=place) as error:
        experiment(tmp_path, "trades", **EDGE_RECIPE | changes).run(0)
    assert "edge-classification" in error.value.problem
