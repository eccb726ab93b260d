"""WebKB: cornell, texas, wisconsin with the ten splits of Geom-GCN (Pei et al. 2020), as in torch_geometric."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.packed_writer import pack_graph
from gt_bench.data.readers import masks_to_split, read_npz, read_table
from gt_bench.data.spec import DatasetSpec, files, node_classification

SPLITS = 10
MASKS = ("train_mask", "val_mask", "test_mask")


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack the two text tables as one directed graph with Geom-GCN's ten splits."""
    name = spec.name
    rows = read_table(paths[f"webkb/{name}/out1_node_feature_label.txt"], columns=3)
    # node ids are 0..n-1, but not always in order
    order = np.argsort(np.array([int(row[0]) for row in rows]))
    features = np.array([[float(value) for value in rows[i][1].split(",")] for i in order])  # [N, 1703], 0 or 1
    labels = np.array([int(rows[i][2]) for i in order])
    edges = np.array([[int(a), int(b)] for a, b in read_table(paths[f"webkb/{name}/out1_graph_edges.txt"], columns=2)])
    # unstated: edges as stored: directed, with self-loops, duplicates merged (protocol webkb/mueller2023 and
    # torch_geometric's WebKB)
    edges = np.unique(edges, axis=0)
    splits = []
    for index in range(SPLITS):
        masks = read_npz(paths[f"webkb/splits/{name}_split_0.6_0.2_{index}.npz"], MASKS)
        splits.append(masks_to_split(*(masks[mask] for mask in MASKS)))
    pack_graph(
        folder,
        spec.header(in_dim=features.shape[1], out_dim=5, num_splits=SPLITS),
        x=features.astype(np.uint8) if np.isin(features, (0, 1)).all() else features,
        edge_index=edges.T,
        y=labels,
        split=np.stack(splits),
    )


def _spec(name: str) -> DatasetSpec:
    return node_classification(
        name,
        prepare,
        files=files(
            f"webkb/{name}/out1_node_feature_label.txt",
            f"webkb/{name}/out1_graph_edges.txt",
            *(f"webkb/splits/{name}_split_0.6_0.2_{index}.npz" for index in range(SPLITS)),
        ),
    )


DATASETS = [_spec("cornell"), _spec("texas"), _spec("wisconsin")]
