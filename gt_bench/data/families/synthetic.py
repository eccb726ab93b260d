"""Generated datasets with the same bytes on every machine: chains (HOT, Section 5, Table 1), sbm-cluster (CLUSTER)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.packed_writer import pack
from gt_bench.data.readers import both_directions, concatenate_edges, consecutive_split
from gt_bench.data.spec import DatasetSpec, published


def prepare_chains(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Make chains whose nodes all have one class, which only the feature of an end node shows."""
    a = spec.arguments
    rng = np.random.default_rng(a["seed"])
    lengths = np.repeat([a["train_length"], a["train_length"], a["test_length"]], [a["train"], a["val"], a["test"]])
    # balanced in each part
    classes = np.concatenate([rng.permuted(np.arange(a[part]) % 2) for part in ("train", "val", "test")])
    first = lengths.cumsum() - lengths
    x = np.zeros((lengths.sum(), 1), np.int64)  # category 0: no information; 1, 2: the class
    x[first, 0] = 1 + classes
    chain = [both_directions(np.stack([np.arange(n - 1), np.arange(1, n)]), n) for n in lengths]
    pack(
        folder,
        spec.header(in_dim=[3], out_dim=2),
        {
            "num_nodes": lengths,
            "x": x,
            "y": np.repeat(classes, lengths),
            "split": consecutive_split(a["train"], a["val"], a["test"]),
            **concatenate_edges(chain),
        },
    )


def prepare_sbm_cluster(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Draw graphs of six communities of 5..34 nodes, the classes. One node of each has its number as feature."""
    a = spec.arguments
    rng = np.random.default_rng(a["seed"])
    xs, ys, edges = [], [], []
    for _ in range(a["train"] + a["val"] + a["test"]):
        community = np.repeat(np.arange(6), rng.integers(5, 35, 6))
        n = len(community)
        same = community[:, None] == community[None, :]
        upper = np.triu(rng.random((n, n)) < np.where(same, a["p"], a["q"]), 1)
        x = np.zeros(n, np.int64)
        for c in range(6):
            x[rng.choice(np.flatnonzero(community == c))] = c + 1
        order = rng.permutation(n)  # new id of each node
        x[order], community[order] = x.copy(), community.copy()
        xs.append(x)
        ys.append(community)
        edges.append(both_directions(order[np.stack(upper.nonzero())], n))
    pack(
        folder,
        spec.header(in_dim=[7], out_dim=6),
        {
            "num_nodes": [len(x) for x in xs],
            "x": np.concatenate(xs)[:, None],
            "y": np.concatenate(ys),
            "split": consecutive_split(a["train"], a["val"], a["test"]),
            **concatenate_edges(edges),
        },
    )


DATASETS = [
    published(
        "chains",
        "node-classification",
        "accuracy",
        prepare_chains,
        also=("f1-micro", "f1-macro"),
        level="node",
        # unstated: numbers of chains, the validation set (as the training set), undirected edges, the class as category
        # of the first node. HOT states only the two lengths, and its generator was not released
        arguments={"seed": 0, "train_length": 20, "test_length": 200, "train": 200, "val": 40, "test": 40},
    ),
    published(
        "sbm-cluster",
        "node-classification",
        "balanced-accuracy",
        prepare_sbm_cluster,
        level="node",
        arguments={"seed": 0, "p": 0.55, "q": 0.25, "train": 200, "val": 50, "test": 50},
    ),
]
