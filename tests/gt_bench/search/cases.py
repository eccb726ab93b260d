"""A small search and its trials."""

import csv
from pathlib import Path

SPACE = {"model.dropout": {"choices": [0.0, 0.25, 0.5]}, "optimizer.lr": {"choices": [0.001, 0.01, 0.1]}}

GRID = {"trials": 9, "sampler": "grid", "pruner": "none", "space": SPACE}


def trials():
    with Path("tuned/small/web/mlp.csv").open() as file:
        return list(csv.DictReader(file))
