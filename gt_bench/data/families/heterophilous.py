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


def _spec(name: str, nodes: int, edges: int, classes: int, features: int, notes: tuple[str, ...] = ()) -> DatasetSpec:
    return node_classification(
        name,
        prepare,
        metric="roc-auc" if classes == 2 else "accuracy",
        files=files(f"heterophilous/{name.replace('-', '_')}.npz"),
        arguments={"classes": classes},
        # Polynormer, Table 4
        expected={
            "nodes": nodes,
            "edges": 2 * edges,
            "edges_undirected": edges,
            "self_loops": 0,
            "symmetric": True,
            "classes": classes,
            "features": features,
            "splits": 10,
        },
        licence="MIT",
        homepage="https://github.com/yandex-research/heterophilous-graphs",
        citation="Platonov et al., A critical look at the evaluation of GNNs under heterophily, ICLR 2023",
        notes=notes,
    )


_POINTER = ("the pinned checksum is that of a Git LFS pointer; it was not verified with the file itself",)
DATASETS = [
    _spec("roman-empire", 22662, 32927, 18, 300, _POINTER),
    _spec("amazon-ratings", 24492, 93050, 5, 300, _POINTER),
    _spec("minesweeper", 10000, 39402, 2, 7),
    _spec("tolokers", 11758, 519000, 2, 10),
    _spec("questions", 48921, 153540, 2, 301, _POINTER),
]
