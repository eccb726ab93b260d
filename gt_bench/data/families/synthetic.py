"""Generated datasets with the same bytes on every machine: chains (HOT, Section 5, Table 1), sbm-cluster (CLUSTER)."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.packed_writer import pack
from gt_bench.data.readers import both_directions, concatenate_edges, consecutive_split
from gt_bench.data.spec import DatasetSpec


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
    DatasetSpec(
        name="chains",
        task="node-classification",
        metric="accuracy",
        also=("f1-micro", "f1-macro"),
        level="node",
        prepare=prepare_chains,
        # unstated: numbers of chains, the validation set (as the training set), undirected edges, the class as category
        # of the first node. HOT states only the two lengths, and its generator was not released
        arguments={"seed": 0, "train_length": 20, "test_length": 200, "train": 200, "val": 40, "test": 40},
        expected={
            "graphs": 280,
            "nodes": 240 * 20 + 40 * 200,
            "edges": 2 * (240 * 19 + 40 * 199),
            "symmetric": True,
            "classes": 2,
        },
        licence="generated here",
        citation="Kim et al., Transformers Generalize DeepSets and Can be Extended to Graphs and Hypergraphs, "
        "NeurIPS 2021",
        notes=(
            "the paper states the lengths and that one end node has the class; numbers of chains, validation set and "
            "features are chosen here",
        ),
    ),
    DatasetSpec(
        name="sbm-cluster",
        task="node-classification",
        metric="balanced-accuracy",
        level="node",
        prepare=prepare_sbm_cluster,
        arguments={"seed": 0, "p": 0.55, "q": 0.25, "train": 200, "val": 50, "test": 50},
        expected={"graphs": 300, "symmetric": True, "self_loops": 0, "classes": 6},
        licence="generated here",
        homepage="https://github.com/graphdeeplearning/benchmarking-gnns",
        citation="Dwivedi et al., Benchmarking Graph Neural Networks, JMLR 2023 (parameters of CLUSTER)",
        notes=(
            "a small sample drawn with the parameters of CLUSTER; not the published CLUSTER, which was drawn without a "
            "seed",
        ),
    ),
]
