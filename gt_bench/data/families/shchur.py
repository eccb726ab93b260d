"""computer, photo (Amazon) and cs, physics (Coauthor) of Shchur et al. 2018, each with two split protocols.

NAME: 60/20/20, the one split file of Polynormer. NAME-tokengt: 30 validation and 30 test nodes per class, the rest for training (TokenGT).
Features are words that occur or not: the counts of the Coauthor files are read as torch_geometric reads them, which the papers used.
"""

# mypy: disable-error-code="arg-type"

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gt_bench.data.packed import pack
from gt_bench.data.readers import both_directions, ids_to_split, per_class_splits, read_npz
from gt_bench.data.spec import DatasetSpec, files
from gt_bench.utils.errors import DatasetError

KEYS = (
    "adj_data",
    "adj_indices",
    "adj_indptr",
    "adj_shape",
    "attr_data",
    "attr_indices",
    "attr_indptr",
    "attr_shape",
    "labels",
)


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Packs one npz file of sparse features and edges, made undirected; splits are Polynormer's file or drawn per class, as `protocol`
    says."""
    path = paths[spec.files[0].path]
    data = read_npz(path, KEYS)
    features, adjacency = _csr(data, "attr", path), _csr(data, "adj", path)
    labels, nodes = data["labels"], features.shape[0]
    edges = both_directions(
        np.stack(adjacency.nonzero()), nodes
    )  # Amazon is stored in one direction here and there; photo has a self-loop
    if spec.arguments["protocol"] == "polynormer":
        ids = read_npz(paths[spec.files[1].path], ("train", "valid", "test"))
        split = ids_to_split(nodes, ids["train"], ids["valid"], ids["test"])[None]
    else:
        # unstated: which nodes; TokenGT names 7 random splits and no seed
        split = per_class_splits(labels, val=30, test=30, seeds=range(spec.arguments["splits"]))
    pack(
        folder,
        spec.header(
            in_dim=features.shape[1], out_dim=spec.arguments["classes"], num_splits=len(split), row_normalise=True
        ),
        {
            "num_nodes": [nodes],
            "num_edges": [edges.shape[1]],
            "x": features.astype(bool).toarray().view(np.uint8),
            "edge_index": edges,
            "y": labels,
            "split": split,
        },
    )


def _csr(data: Mapping[str, np.ndarray], name: str, path: Path) -> sp.csr_array:
    try:
        matrix = sp.csr_array(
            (data[f"{name}_data"], data[f"{name}_indices"], data[f"{name}_indptr"]), shape=tuple(data[f"{name}_shape"])
        )
        matrix.check_format(full_check=True)
        return matrix
    except (ValueError, TypeError) as error:
        raise DatasetError(f"{path}: {name} is no sparse matrix ({error})") from error


def _specs(
    name: str, file: str, split: str, nodes: int, edges: int, classes: int, features: int, notes: tuple[str, ...]
) -> list[DatasetSpec]:
    data = f"amazon_coauthor/{file}_plain.npz"
    common = {
        "family": "shchur",
        "task": "node-classification",
        "metric": "accuracy",
        "level": "node",
        "split_kind": "node",
        "prepare": prepare,
        "licence": "MIT",
        "homepage": "https://github.com/shchur/gnn-benchmark",
        "citation": "Shchur et al., Pitfalls of Graph Neural Network Evaluation, 2018",
    }
    # Polynormer, Table 4; TokenGT, Table transductive_dataset
    expected = {"nodes": nodes, "edges": 2 * edges, "edges_undirected": edges, "self_loops": 0, "symmetric": True}
    expected |= {"classes": classes, "features": features}
    scaled = "features are 0 or 1, as torch_geometric reads these files, and rows divided by their sum, as the Polynormer code does"
    return [
        DatasetSpec(
            name=name,
            files=files(data, f"amazon_coauthor/polynormer_splits/{split}_split.npz"),
            arguments={"protocol": "polynormer", "classes": classes},
            expected=expected,
            notes=(*notes, scaled, "one fixed 60/20/20 split: a deviation over runs contains no split variance"),
            **common,
        ),
        DatasetSpec(
            name=f"{name}-tokengt",
            files=files(data),
            arguments={"protocol": "tokengt", "classes": classes, "splits": 7},
            expected=expected | {"val": 30 * classes, "test": 30 * classes},
            notes=(
                *notes,
                scaled + "; TokenGT does not say",
                "30 validation and 30 test nodes per class; not to be compared with 60/20/20",
            ),
            **common,
        ),
    ]


_ORDER = ("that the split file's node order is this file's order is assumed, not proven",)
DATASETS = [
    *_specs("computer", "amazon_cs", "amazon-computer", 13752, 245861, 10, 767, _ORDER),
    *_specs("photo", "amazon_photo", "amazon-photo", 7650, 119081, 8, 745, _ORDER),
    *_specs("cs", "coauthor_cs", "coauthor-cs", 18333, 81894, 15, 6805, ()),
    *_specs("physics", "coauthor_phy", "coauthor-physics", 34493, 247962, 5, 8415, ()),
]
