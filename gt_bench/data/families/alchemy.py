"""alchemy: 12,000 graphs of TUDataset's alchemy_full by the fixed index files (10,000 / 1,000 / 1,000), twelve targets."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.archives import Limits, read_member
from gt_bench.data.packed import pack
from gt_bench.data.spec import DatasetSpec, files
from gt_bench.utils.errors import DatasetError


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Packs the archive's text tables in the order of the index files: one category per atom and bond, y [12]. Raises DatasetError where
    they disagree."""
    archive, *index_files = (paths[entry.path] for entry in spec.files)
    ids = [_numbers(path.read_bytes().replace(b",", b"\n"), np.int64, path)[:, 0] for path in index_files]

    def table(name: str, dtype: type) -> np.ndarray:
        member = f"alchemy_full/alchemy_full_{name}.txt"
        return _numbers(read_member(archive, member, Limits(total=4 << 30)), dtype, f"{archive}, {member}")

    graph = table("graph_indicator", np.int64)[:, 0] - 1
    labels, targets = table("node_labels", np.int64), table("graph_attributes", np.float64)
    edges, kinds = table("A", np.int64).T - 1, table("edge_labels", np.int64)
    chosen = np.concatenate(ids)
    count = len(targets)
    if (
        len(np.unique(chosen)) != len(chosen)
        or chosen.min() < 0
        or chosen.max() >= count
        or (np.diff(graph) < 0).any()
        or len(graph) != len(labels)
    ):
        raise DatasetError(
            f"{archive}: does not fit its index files (an index occurs twice, or graphs are out of order)"
        )
    if (
        edges.min() < 0
        or edges.max() >= len(graph)
        or edges.shape[1] != len(kinds)
        or (graph[edges[0]] != graph[edges[1]]).any()
    ):
        raise DatasetError(f"{archive}: an edge joins two graphs, or none")
    new = np.full(count, -1)
    new[chosen] = np.arange(len(chosen))
    of_node, of_edge = new[graph], new[graph[edges[0]]]
    node_order, edge_order = (
        np.flatnonzero(of >= 0)[np.argsort(of[of >= 0], kind="stable")] for of in (of_node, of_edge)
    )
    first = np.searchsorted(graph, np.arange(count))  # a graph's rows are consecutive in the file
    local = np.arange(len(graph)) - first[graph]
    part = np.repeat([1, 2, 3], [len(part) for part in ids])
    y = targets[chosen]
    # deviates: the published runs take mean and deviation over all 12,000 graphs, test included
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


def _numbers(content: bytes, dtype: type, where: object) -> np.ndarray:
    """Comma-separated numbers -> [rows, columns]."""
    try:
        rows = [line for line in content.decode("ascii").splitlines() if line.strip()]
        return np.array([[dtype(cell) for cell in row.split(",")] for row in rows], dtype).reshape(len(rows), -1)
    except (ValueError, OverflowError) as error:
        raise DatasetError(f"{where}: not a table of numbers ({error})") from error


DATASETS = [
    DatasetSpec(
        name="alchemy",
        family="alchemy",
        task="graph-regression",
        metric="mae",
        prepare=prepare,
        files=files(
            "alchemy/alchemy_full.zip",
            "alchemy/train_al_10.index",
            "alchemy/val_al_10.index",
            "alchemy/test_al_10.index",
        ),
        expected={"graphs": 12000, "targets": 12, "symmetric": True, "train": 10000, "val": 1000, "test": 1000},
        licence="MIT",
        homepage="https://chrsmrrs.github.io/datasets/",
        citation="Chen et al., Alchemy: A Quantum Chemistry Dataset for Benchmarking AI Models, 2019; split of Morris et al., 2022",
        notes=(
            "targets are standardised with the training part; the Edge Transformer takes statistics of all 12,000, test included: a leak",
        ),
    )
]
