"""roman-empire, amazon-ratings, minesweeper, tolokers, questions (Platonov et al. 2023) with their ten splits."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.packed_writer import pack_graph
from gt_bench.data.readers import both_directions, masks_to_split, read_npz
from gt_bench.data.spec import DatasetSpec, files, node_classification

KEYS = ("node_features", "node_labels", "edges", "train_masks", "val_masks", "test_masks")


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack an npz file as one undirected graph with ten splits."""
    data = read_npz(paths[spec.files[0].path], KEYS)
    nodes, features = data["node_features"].shape
    edges = both_directions(data["edges"].T, nodes)  # stored in one direction, without self-loops
    split = masks_to_split(data["train_masks"], data["val_masks"], data["test_masks"])  # [10, N]
    pack_graph(
        folder,
        spec.header(in_dim=features, out_dim=spec.arguments["classes"], num_splits=len(split)),
        x=data["node_features"].astype(np.float32),
        edge_index=edges,
        y=data["node_labels"],
        split=split,
    )


def _spec(name: str, classes: int) -> DatasetSpec:
    return node_classification(
        name,
        prepare,
        metric="roc-auc" if classes == 2 else "accuracy",
        files=files(f"heterophilous/{name.replace('-', '_')}.npz"),
        arguments={"classes": classes},
    )


DATASETS = [
    _spec("roman-empire", 18),
    _spec("amazon-ratings", 5),
    _spec("minesweeper", 2),
    _spec("tolokers", 2),
    _spec("questions", 2),
]
