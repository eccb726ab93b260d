"""computer, photo (Amazon) and cs, physics (Coauthor) of Shchur et al. 2018, each with two split protocols.

NAME: 60/20/20, the split file of Polynormer. NAME-tokengt: 30 validation and 30 test nodes per class, the rest for
training (TokenGT). Features are words that occur or not: the counts of the Coauthor files are converted as in
torch_geometric, which the papers use.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gt_bench.data.packed_writer import pack_graph
from gt_bench.data.readers import both_directions, dataset_errors, ids_to_split, per_class_splits, read_npz
from gt_bench.data.spec import DatasetSpec, files, node_classification

if TYPE_CHECKING:
    from scipy.sparse import csr_array

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


def _csr(data: Mapping[str, np.ndarray], name: str, path: Path) -> "csr_array":
    from scipy.sparse import csr_array  # 0.1 s of each command that looks up a dataset

    with dataset_errors(path, f"{name} is not a sparse matrix"):
        content, indices, indptr, shape = (data[f"{name}_{field}"] for field in FIELDS)
        matrix = csr_array((content, indices, indptr), shape=tuple(shape))
        matrix.check_format(full_check=True)
        return matrix


def _specs(name: str, file: str, split: str, classes: int) -> list[DatasetSpec]:
    data = f"amazon_coauthor/{file}_plain.npz"
    return [
        node_classification(
            name,
            prepare,
            files=files(data, f"amazon_coauthor/polynormer_splits/{split}_split.npz"),
            arguments={"protocol": "polynormer", "classes": classes},
        ),
        node_classification(
            f"{name}-tokengt",
            prepare,
            files=files(data),
            arguments={"protocol": "tokengt", "classes": classes, "splits": 7},
        ),
    ]


DATASETS = [
    *_specs("computer", "amazon_cs", "amazon-computer", 10),
    *_specs("photo", "amazon_photo", "amazon-photo", 8),
    *_specs("cs", "coauthor_cs", "coauthor-cs", 15),
    *_specs("physics", "coauthor_phy", "coauthor-physics", 5),
]
