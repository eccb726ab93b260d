"""A task: its losses and metrics by name, and metrics over the batches of a split."""

import pytest
import torch

from gt_bench.tasks.registry import create_task


@pytest.mark.parametrize(
    ("task", "metric", "loss"),
    [
        ("node-classification", "accuracy", "mse"),
        ("graph-regression", "mae", "cross-entropy"),
        ("graph-multilabel", "ap", "l1"),
    ],
)
def test_a_loss_that_does_not_fit_the_targets_is_named(task, metric, loss):
    with pytest.raises(KeyError, match=f"loss '{loss}' is not one of this task's"):
        create_task(task, metric, loss)


def test_a_split_is_judged_as_a_whole_and_not_batch_by_batch():
    task = create_task("graph-regression", "mae", "mse", also=("mse",))
    outputs, targets = (
        [torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[10.0]])],
        [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0])],
    )
    assert task.evaluate(outputs, targets) == {"loss": 16.0, "mae": 2.0, "mse": 16.0}
    assert task.direction == "min"


def test_a_metric_that_is_not_there_is_named():
    with pytest.raises(KeyError, match="no metric named 'acuracy'; known: accuracy"):
        create_task("node-classification", "acuracy")


@pytest.mark.parametrize("task", ["node-classification", "graph-regression", "graph-multilabel"])
def test_no_loss_waits_for_the_device(task):
    """On the meta device, a value cannot be read."""
    metric = {"node-classification": "accuracy", "graph-regression": "mae", "graph-multilabel": "ap"}[task]
    for name, loss in create_task(task, metric).losses.items():
        output = torch.empty(6, 3, device="meta", requires_grad=True)
        target = torch.empty(6, device="meta", dtype=torch.long)
        loss(output, target if task == "node-classification" else torch.empty(6, 3, device="meta")).backward()
        assert output.grad.shape == (6, 3), name
