"""Saved weights: loaded as a model, and compared with the record. `gt-bench score`: tests/gt_bench/store."""

import pytest
import torch

from gt_bench.config.grid import load_grid
from gt_bench.data.packed import PackedDataset
from gt_bench.experiment.pretrained import agree
from gt_bench.pipeline.train import train_cell
from gt_bench.store.weights import WeightsError
from gt_models import create_model
from tests.refusals import refused


def test_the_best_weights_of_a_cell(project):
    project.recipe("web", "mlp")
    grid = load_grid()
    train_cell(grid.find("small/web/mlp"), grid, bar=False)
    model = create_model("mlp", pretrained="small/web/mlp")
    records = [r.run for r in project.records()]
    best = max(records, key=lambda r: r.val)
    packed = PackedDataset.open(project.root / "data/packed/web")
    batch, rows = packed.batch(torch.tensor([0])), packed.split("test", best.split)
    assert not model.training
    accuracy = (model(batch)[rows].argmax(1) == batch.y[rows].view(-1)).float().mean()
    assert float(accuracy) == pytest.approx(best.test)


def test_a_cell_without_weights_or_of_another_model(project):
    path = project.recipe("web", "mlp")
    with refused(WeightsError, remedy="`gt-bench train small/web/mlp` saves those of the best seed"):
        create_model("mlp", pretrained="small/web/mlp")
    with refused(WeightsError, file=str(path.relative_to(project.root)), value="gcn"):
        create_model("gcn", pretrained="small/web/mlp")
    with pytest.raises(TypeError, match="remove in_dim"):
        create_model("mlp", pretrained="small/web/mlp", in_dim=3)


@pytest.mark.parametrize(
    ("now", "processes", "same"),
    [
        ({"accuracy": 0.5}, 1, True),
        ({"accuracy": 0.5 + 1e-16 * 2}, 1, False),  # one process: equal to the bit
        ({"accuracy": 0.50004}, 2, True),  # several add in another order
        ({"accuracy": 0.5001}, 2, False),
        ({"accuracy": 0.5, "f1-macro": 0.5}, 2, False),
    ],
)
def test_metrics_are_equal_to_the_bit_unless_several_processes_computed_them(now, processes, same):
    assert agree(now, {"accuracy": 0.5}, processes) is same
