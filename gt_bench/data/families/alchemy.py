"""alchemy: 12,000 graphs of TUDataset's alchemy_full, selected by fixed index files, with twelve targets."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.archives import UnpackLimits, read_member
from gt_bench.data.packed_writer import pack
from gt_bench.data.readers import consecutive_split, numbers, read_index_lines
from gt_bench.data.spec import DatasetSpec, files, published
from gt_bench.utils.errors import DatasetError


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack the text tables of the archive: one category per atom and bond, y [12].

    Raises:
        DatasetError: the tables or index files are damaged or contradict each other.
    """
    archive, *index_files = (paths[entry.path] for entry in spec.files)
    ids = [np.concatenate(read_index_lines(path)) for path in index_files]

    def table(name: str, dtype: type) -> np.ndarray:
        member = f"alchemy_full/alchemy_full_{name}.txt"
        text = read_member(archive, member, UnpackLimits(total=4 << 30)).decode("ascii", "replace")
        rows = [line.split(",") for line in text.splitlines() if line.strip()]
        return numbers(rows, dtype, archive, member)

    graph = table("graph_indicator", int)[:, 0] - 1
    labels, targets = table("node_labels", int), table("graph_attributes", float)
    edges, kinds = table("A", int).T - 1, table("edge_labels", int)
    chosen = np.concatenate(ids)
    count = len(targets)
    if (
        len(np.unique(chosen)) != len(chosen)
        or chosen.min() < 0
        or chosen.max() >= count
        or (np.diff(graph) < 0).any()
        or len(graph) != len(labels)
    ):
        problem = "does not match its index files: duplicate indices, or graphs are not in order"
        raise DatasetError(problem, file=archive)
    if (
        edges.min() < 0
        or edges.max() >= len(graph)
        or edges.shape[1] != len(kinds)
        or (graph[edges[0]] != graph[edges[1]]).any()
    ):
        raise DatasetError("an edge joins two graphs, or a node that does not exist", file=archive)
    new = np.full(count, -1)
    new[chosen] = np.arange(len(chosen))
    of_node, of_edge = new[graph], new[graph[edges[0]]]
    node_order, edge_order = (
        np.flatnonzero(of >= 0)[np.argsort(of[of >= 0], kind="stable")] for of in (of_node, of_edge)
    )
    first = np.searchsorted(graph, np.arange(count))  # a graph's rows are consecutive in the file
    local = np.arange(len(graph)) - first[graph]
    part = consecutive_split(*map(len, ids))[0]
    y = targets[chosen]
    # deviates: the published runs compute mean and standard deviation over all 12,000 graphs, including the test part
    mean, deviation = y[part == 1].mean(0), y[part == 1].std(0, ddof=1)
    pack(
        folder,
        spec.header(
            in_dim=(labels.max(0) + 1).tolist(),
            edge_dim=(kinds.max(0) + 1).tolist(),
            out_dim=y.shape[1],
            extras={"target_mean": "table", "target_deviation": "table"},
        ),
        {
            "num_nodes": np.bincount(of_node[of_node >= 0], minlength=len(chosen)),
            "num_edges": np.bincount(of_edge[of_edge >= 0], minlength=len(chosen)),
            "x": labels[node_order],
            "edge_index": local[edges[:, edge_order]],
            "edge_attr": kinds[edge_order],
            "y": ((y - mean) / deviation).astype(np.float32),
            "target_mean": mean,
            "target_deviation": deviation,
            "split": part[None],
        },
    )


DATASETS = [
    published(
        "alchemy",
        "graph-regression",
        "mae",
        prepare,
        files=files(
            "alchemy/alchemy_full.zip",
            "alchemy/train_al_10.index",
            "alchemy/val_al_10.index",
            "alchemy/test_al_10.index",
        ),
    )
]
