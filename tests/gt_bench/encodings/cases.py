"""A packed dataset of six graphs, its folder of encodings, and arguments for each encoding."""

import numpy as np

from gt_bench.data.packed import PackedDataset
from gt_bench.data.packed_writer import pack
from gt_models.encodings import ENCODINGS
from tests.gt_bench.conftest import header_of
from tests.gt_models.checks import random_graphs

SIZES = (5, 3, 9, 1, 6, 6)


def make_packed(folder, seed=0, graphs=None):
    graphs = graphs or random_graphs(SIZES, in_dim=2, density=0.4, seed=seed)
    sizes = [g.num_nodes for g in graphs]
    edges = np.concatenate([g.edge_index.numpy() for g in graphs], 1)
    header = header_of(folder.name, "graph-regression", in_dim=graphs[0].x.size(1))
    pack(folder, header, {
        "num_nodes": sizes, "num_edges": [g.num_edges for g in graphs], "edge_index": edges,
        "x": np.concatenate([g.x.numpy() for g in graphs]),
        "y": np.arange(len(sizes), dtype=np.float32), "split": np.array([[1] * (len(sizes) - 2) + [2, 3]]),
    })  # fmt: skip
    return PackedDataset.open(folder)


def folder_of(packed):
    return packed.folder.parent.parent / "encodings" / packed.header.name


def default_arguments(name):
    names = ENCODINGS[name].parameters
    return {
        key: value for key, value in {"steps": 4, "k": 4, "count": 1, "degree": 3, "columns": 2}.items() if key in names
    }
