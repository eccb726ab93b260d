"""chameleon and crocodile (MUSAE, Rozemberczki et al. 2021) as in TokenGT: traffic cut into six classes, 30 + 30 nodes a class held out."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.archives import read_member
from gt_bench.data.packed import pack
from gt_bench.data.readers import both_directions, numbers, per_class_splits
from gt_bench.data.spec import DatasetSpec, files
from gt_bench.utils.errors import DatasetError

CLASSES = 6


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Packs the archive's CSV files as one undirected graph; its splits are drawn per class."""
    archive = paths[spec.files[0].path]
    prefix = f"wikipedia/{spec.name}/musae_{spec.name}_"
    target = _csv(archive, prefix + "target.csv")
    target = target[target[:, 0].argsort(), 1]
    links = _csv(archive, prefix + "edges.csv")
    # unstated: links between pages are mutual, so both directions; self-loops dropped, because TokenGT takes a token (u, u) for a node
    edges = both_directions(links.T, len(target))
    # unstated: TokenGT prints 6 classes and not where the traffic is cut; here at the sextiles, so that classes are of like size
    cuts = np.quantile(target, np.arange(1, CLASSES) / CLASSES)
    labels = np.searchsorted(cuts, target, side="left")
    pack(
        folder,
        spec.header(in_dim=spec.arguments["features"], out_dim=CLASSES, num_splits=spec.arguments["splits"]),
        {
            "num_nodes": [len(target)],
            "num_edges": [edges.shape[1]],
            "x": _features(archive, prefix + "features.json", len(target), spec.arguments["features"]),
            "edge_index": edges,
            "y": labels,
            "split": per_class_splits(labels, val=30, test=30, seeds=range(spec.arguments["splits"])),
        },
    )


def _csv(archive: Path, member: str) -> np.ndarray:
    lines = read_member(archive, member).decode("ascii", "replace").splitlines()[1:]
    rows = [line.split(",") for line in lines]
    if not rows or any(len(row) != 2 for row in rows):
        raise DatasetError(f"{archive}, {member}: not a table of two columns")
    return numbers(rows, int, f"{archive}, {member}")


def _features(archive: Path, member: str, nodes: int, width: int) -> np.ndarray:
    """{node: [feature ids]} -> 0/1 [N, F]."""
    x = np.zeros((nodes, width), np.uint8)
    try:
        for node, ids in json.loads(read_member(archive, member)).items():
            x[int(node), np.asarray(ids, np.int64)] = 1
    except (ValueError, IndexError, AttributeError, TypeError) as error:
        raise DatasetError(f"{archive}, {member}: {error}") from error
    return x


def _spec(name: str, nodes: int, undirected: int, features: int, notes: tuple[str, ...] = ()) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        family="wikipedia",
        task="node-classification",
        metric="accuracy",
        level="node",
        split_kind="node",
        prepare=prepare,
        files=files("wikipedia/wikipedia.zip"),
        arguments={"features": features, "splits": 7},
        expected={
            "nodes": nodes,
            "edges_undirected": undirected,
            "self_loops": 0,
            "symmetric": True,
            "classes": CLASSES,
            "features": features,
        },
        licence="GPL-3.0",
        homepage="https://snap.stanford.edu/data/wikipedia-article-networks.html",
        citation="Rozemberczki et al., Multi-scale Attributed Node Embedding, Journal of Complex Networks 2021",
        notes=(
            "TokenGT prints the rows of the edge file (both directions of some links, and self-loops) as the number of edges",
            "where TokenGT cuts the traffic into six classes is not printed: the sextiles are chosen here",
            *notes,
        ),
    )


DATASETS = [
    _spec(
        "chameleon",
        2277,
        31371,
        3132,
        (
            "chameleon has duplicate nodes (Platonov et al. 2023); another version of it has 5 classes and 2,325 features",
        ),
    ),
    _spec("crocodile", 11631, 170773, 13183),
]
