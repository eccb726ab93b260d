"""User-supplied data in hand, and short runs on a dataset."""

from pathlib import Path

import torch
import yaml
from torch_geometric.data import Data

from gt_bench.api.evaluate import try_pair
from gt_bench.data.packed import PackedDataset
from gt_bench.data.prepare import prepare

FAST = {"epochs": 2, "model.hidden_dim": 8}


def graph(nodes: int = 30) -> Data:
    torch.manual_seed(0)
    return Data(x=torch.randn(nodes, 4), edge_index=torch.randint(0, nodes, (2, 2 * nodes)), y=torch.arange(nodes) % 3)


def run(model: str, dataset: str, change=None, **more):
    return try_pair(model, dataset, FAST | (change or {}), [0], **more)


def dataset_of(name: str) -> PackedDataset:
    """Prepare a dataset and open it."""
    return PackedDataset.open(prepare(name).folder)


def entry_of(name: str) -> dict:
    return yaml.safe_load(Path("datasets.yaml").read_text())[name]
