"""Small searches of one cell and their trials."""

import csv
from pathlib import Path

from gt_bench.config.grid import load_grid
from gt_bench.pipeline.tune import tune_cell

CELL = "small/web/mlp"
RANGES = {"model.dropout": {"low": 0.0, "high": 0.8}, "optimizer.lr": {"low": 1e-4, "high": 1e-1, "log": True}}
WIDTHS = {"model.hidden_dim": {"choices": [4, 8, 16]}, "optimizer.lr": RANGES["optimizer.lr"]}

SPACE = {"model.dropout": {"choices": [0.0, 0.25, 0.5]}, "optimizer.lr": {"choices": [0.001, 0.01, 0.1]}}

GRID = {"trials": 9, "sampler": "grid", "pruner": "none", "space": SPACE}


def tune(**folders):
    grid = load_grid()
    return tune_cell(grid.find(CELL), grid, **folders)


def trials():
    with Path("tuned/small/web/mlp.csv").open() as file:
        return list(csv.DictReader(file))
