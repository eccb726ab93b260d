"""Small runs of the training loop on a synthetic dataset, for tests of training, checkpoints and signals."""

from types import SimpleNamespace

import torch
from torch import nn

from gt_bench.config.recipe import Recipe
from gt_bench.data.packed import PackedDataset
from gt_bench.runtime.environment import Clock
from gt_bench.tasks.registry import create_task
from gt_bench.training.checkpoint import Checkpoint
from gt_bench.training.interfaces import SplitData
from gt_bench.training.loader import Loader
from gt_bench.training.trainer import Run
from tests.gt_bench.conftest import RECIPE, pack_many, pack_web

NODE2SUBGRAPH = {
    "name": "ppgt-node2subgraph-released", "hidden_dim": 8, "num_layers": 1, "num_heads": 2, "rrwp_dim": 5,
    "stem_dim": 8, "num_stem_ffn": 1, "node_mask_rate": 0.5,
}  # fmt: skip
NOTHING_ENCODED = SimpleNamespace(attach=lambda batch, graphs: batch)


class Net(nn.Module):
    """A model of node features with dropout and BatchNorm, so that random numbers and buffers matter."""

    def __init__(self, in_dim, out_dim, graph=False):
        super().__init__()
        self.graph, self.phase, self.phases = graph, None, []
        self.hidden, self.norm, self.out = nn.Linear(in_dim, 8), nn.BatchNorm1d(8), nn.Linear(8, out_dim)
        self.drop = nn.Dropout(0.3)

    def set_phase(self, name):
        """Sets the phase and notes it."""
        self.phase = name
        self.phases.append(name)

    def forward(self, batch):
        """Returns [N, out_dim] for nodes, or sums over graphs [B, out_dim]."""
        out = self.out(self.drop(self.norm(self.hidden(batch.x)).relu()))
        return out.new_zeros(batch.num_graphs, out.size(1)).index_add(0, batch.batch, out) if self.graph else out


def make(
    tmp_path, dataset="web", seed=0, checkpoint=None, build=None, task=("node-classification", "accuracy"), **changes
):
    """Creates a `Run` of the small recipe with `changes` on the dataset `web` or `many`."""
    folder = tmp_path / "data" / "packed" / dataset
    if not folder.exists():
        (pack_web if dataset == "web" else pack_many)(tmp_path / "data")
    recipe = Recipe(**{**RECIPE, **changes})
    packed = PackedDataset.open(folder)
    dtype = torch.float64 if recipe.precision == "float64" else torch.float32
    loader = Loader(SplitData(packed, NOTHING_ENCODED, 0, recipe.batch, seed, torch.device("cpu"), dtype))
    build = build or (lambda: Net(5, 3) if dataset == "web" else Net(4, 1, graph=True))
    return Run(
        recipe, create_task(*task), loader, build, seed=seed, meter=Clock(), checkpoint=checkpoint or Checkpoint(None)
    )


def curves(outcome):
    """Returns the content of an outcome, for comparisons."""
    return {k: v for k, v in vars(outcome).items()}


REGRESSION = {"dataset": "many", "task": ("graph-regression", "mae"), "batch": {"graphs": 4}}
