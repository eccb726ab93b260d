"""Weights of a kept run in a model made by its name."""

import pytest
import torch

from gt_bench.config.grid import load_grid
from gt_bench.data.packed import PackedDataset
from gt_bench.experiment.pretrained import NoWeights
from gt_bench.pipeline.train import train_cell
from gt_models import create_model


def test_the_best_weights_of_a_kept_run(project):
    project.recipe("web", "mlp")
    grid = load_grid()
    train_cell(grid.find("small/web/mlp"), grid, bar=False)
    model = create_model("mlp", pretrained="small/web/mlp")
    records = [r["deterministic"] for r in project.records()]
    best = max(records, key=lambda r: r["val"])
    packed = PackedDataset.open(project.root / "data/packed/web")
    batch, rows = packed.batch(torch.tensor([0])), packed.split("test", best["split"])
    assert not model.training
    accuracy = (model(batch)[rows].argmax(1) == batch.y[rows].view(-1)).float().mean()
    assert float(accuracy) == pytest.approx(best["test"])


def test_what_cannot_be(project):
    path = project.recipe("web", "mlp")
    with pytest.raises(NoWeights, match="`gt-bench train small/web/mlp` keeps those of the best seed"):
        create_model("mlp", pretrained="small/web/mlp")
    with pytest.raises(NoWeights, match=f"{path.relative_to(project.root)}: is a recipe of 'mlp', not of 'gcn'"):
        create_model("gcn", pretrained="small/web/mlp")
    with pytest.raises(TypeError, match="take out in_dim"):
        create_model("mlp", pretrained="small/web/mlp", in_dim=3)
