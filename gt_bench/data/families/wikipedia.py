"""chameleon and crocodile (MUSAE, Rozemberczki et al. 2021) as in TokenGT: classes are six intervals of traffic."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.archives import read_member
from gt_bench.data.packed_writer import pack_graph
from gt_bench.data.readers import both_directions, dataset_errors, numbers, per_class_splits
from gt_bench.data.spec import DatasetSpec, files, node_classification
from gt_bench.utils.errors import DatasetError

CLASSES = 6


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack the CSV files of the archive as one undirected graph, with splits of 30 + 30 nodes per class."""
    archive = paths[spec.files[0].path]
    prefix = f"wikipedia/{spec.name}/musae_{spec.name}_"
    target = _csv(archive, prefix + "target.csv")
    target = target[target[:, 0].argsort(), 1]
    links = _csv(archive, prefix + "edges.csv")
    # unstated: edges in both directions, since links between pages are mutual, and without self-loops, since TokenGT
    # uses (u, u) as the token of a node
    edges = both_directions(links.T, len(target))
    # unstated: the bounds of the 6 classes. Here they are the sextiles, so that classes have equal sizes
    cuts = np.quantile(target, np.arange(1, CLASSES) / CLASSES)
    labels = np.searchsorted(cuts, target, side="left")
    features, splits = spec.arguments["features"], spec.arguments["splits"]
    pack_graph(
        folder,
        spec.header(in_dim=features, out_dim=CLASSES, num_splits=splits),
        x=_features(archive, prefix + "features.json", len(target), features),
        edge_index=edges,
        y=labels,
        split=per_class_splits(labels, val=30, test=30, seeds=range(splits)),
    )


def _csv(archive: Path, member: str) -> np.ndarray:
    lines = read_member(archive, member).decode("ascii", "replace").splitlines()[1:]
    rows = [line.split(",") for line in lines]
    if not rows or any(len(row) != 2 for row in rows):
        raise DatasetError("not a table of two columns", file=archive, place=member)
    return numbers(rows, int, archive, member)


def _features(archive: Path, member: str, nodes: int, width: int) -> np.ndarray:
    """Read {node: [feature ids]} as 0/1 features [N, F]."""
    x = np.zeros((nodes, width), np.uint8)
    with dataset_errors(archive, "not readable features", place=member):
        for node, ids in json.loads(read_member(archive, member)).items():
            x[int(node), np.asarray(ids, np.int64)] = 1
    return x


def _spec(name: str, features: int) -> DatasetSpec:
    arguments = {"features": features, "splits": 7}
    return node_classification(name, prepare, files=files("wikipedia/wikipedia.zip"), arguments=arguments)


DATASETS = [_spec("chameleon", 3132), _spec("crocodile", 13183)]
