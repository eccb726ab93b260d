"""computer, photo (Amazon) and cs, physics (Coauthor) of Shchur et al. 2018, each with two split protocols.

NAME: 60/20/20, the split file of Polynormer. NAME-tokengt: 30 validation and 30 test nodes per class, the rest for
training (TokenGT). Features are words that occur or not: the counts of the Coauthor files are converted as in
torch_geometric, which the papers use.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gt_bench.data.packed_writer import pack_graph
from gt_bench.data.readers import both_directions, dataset_errors, ids_to_split, per_class_splits, read_npz
from gt_bench.data.spec import DatasetSpec, files, node_classification

FIELDS = ("data", "indices", "indptr", "shape")  # of a sparse matrix
KEYS = (*(f"adj_{field}" for field in FIELDS), *(f"attr_{field}" for field in FIELDS), "labels")


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack an npz file of sparse features and edges as one undirected graph.

    The argument `protocol` selects the splits: Polynormer's file, or drawn per class.
    """
    path = paths[spec.files[0].path]
    data = read_npz(path, KEYS)
    features, adjacency = _csr(data, "attr", path), _csr(data, "adj", path)
    labels, nodes = data["labels"], features.shape[0]
    # some edges of Amazon have one direction, and photo has a self-loop
    edges = both_directions(np.stack(adjacency.nonzero()), nodes)
    if spec.arguments["protocol"] == "polynormer":
        ids = read_npz(paths[spec.files[1].path], ("train", "valid", "test"))
        split = ids_to_split(nodes, ids["train"], ids["valid"], ids["test"])[None]
    else:
        # unstated: which nodes. TokenGT states 7 random splits and no seed
        split = per_class_splits(labels, val=30, test=30, seeds=range(spec.arguments["splits"]))
    classes, x = spec.arguments["classes"], features.astype(bool).toarray().view(np.uint8)
    header = spec.header(in_dim=features.shape[1], out_dim=classes, num_splits=len(split), row_normalise=True)
    pack_graph(folder, header, x=x, edge_index=edges, y=labels, split=split)


def _csr(data: Mapping[str, np.ndarray], name: str, path: Path) -> sp.csr_array:
    with dataset_errors(path, f"{name} is not a sparse matrix"):
        content, indices, indptr, shape = (data[f"{name}_{field}"] for field in FIELDS)
        matrix = sp.csr_array((content, indices, indptr), shape=tuple(shape))
        matrix.check_format(full_check=True)
        return matrix


def _specs(
    name: str, file: str, split: str, nodes: int, edges: int, classes: int, features: int, notes: tuple[str, ...]
) -> list[DatasetSpec]:
    data = f"amazon_coauthor/{file}_plain.npz"
    common: dict[str, Any] = {
        "licence": "MIT",
        "homepage": "https://github.com/shchur/gnn-benchmark",
        "citation": "Shchur et al., Pitfalls of Graph Neural Network Evaluation, 2018",
    }
    # Polynormer, Table 4; TokenGT, Table transductive_dataset
    expected = {"nodes": nodes, "edges": 2 * edges, "edges_undirected": edges, "self_loops": 0, "symmetric": True}
    expected |= {"classes": classes, "features": features}
    scaled = "features are 0 or 1, as in torch_geometric, and rows are divided by their sum, as in Polynormer's code"
    return [
        node_classification(
            name,
            prepare,
            files=files(data, f"amazon_coauthor/polynormer_splits/{split}_split.npz"),
            arguments={"protocol": "polynormer", "classes": classes},
            expected=expected,
            notes=(*notes, scaled, "one fixed 60/20/20 split: a standard deviation over runs has no split variance"),
            **common,
        ),
        node_classification(
            f"{name}-tokengt",
            prepare,
            files=files(data),
            arguments={"protocol": "tokengt", "classes": classes, "splits": 7},
            expected=expected | {"val": 30 * classes, "test": 30 * classes},
            notes=(
                *notes,
                scaled + "; TokenGT does not state this",
                "30 validation and 30 test nodes per class; not comparable with 60/20/20",
            ),
            **common,
        ),
    ]


_ORDER = ("it is assumed, not verified, that the split file has the node order of this file",)
DATASETS = [
    *_specs("computer", "amazon_cs", "amazon-computer", 13752, 245861, 10, 767, _ORDER),
    *_specs("photo", "amazon_photo", "amazon-photo", 7650, 119081, 8, 745, _ORDER),
    *_specs("cs", "coauthor_cs", "coauthor-cs", 18333, 81894, 15, 6805, ()),
    *_specs("physics", "coauthor_phy", "coauthor-physics", 34493, 247962, 5, 8415, ()),
]
