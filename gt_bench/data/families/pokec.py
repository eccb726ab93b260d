"""pokec in the version of LINKX (Lim et al. 2021): a MATLAB file, and the five splits of its repository."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.packed import pack
from gt_bench.data.readers import both_directions, ids_to_split
from gt_bench.data.safe_pickle import load_pickle
from gt_bench.data.spec import DatasetSpec, files
from gt_bench.utils.errors import DatasetError


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Packs the MATLAB file as one undirected graph with LINKX's splits. Raises DatasetError for a file of another form."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    matrix, splits = (paths[file.path] for file in spec.files)
    try:
        data = loadmat(matrix, variable_names=("edge_index", "node_feat", "label"))
        edges, x, labels = data["edge_index"], data["node_feat"], data["label"].ravel().astype(np.int64)
        nodes = len(labels)
    except (ValueError, KeyError, TypeError, OSError, NotImplementedError, IndexError, EOFError, MatReadError) as error:
        raise DatasetError(f"{matrix}: not LINKX's MATLAB file ({type(error).__name__}: {error})") from error
    edges = both_directions(edges, nodes)  # Polynormer makes it undirected
    pack(
        folder,
        spec.header(in_dim=x.shape[1], out_dim=2, num_splits=spec.arguments["splits"]),
        {
            "num_nodes": [nodes],
            "num_edges": [edges.shape[1]],
            "x": np.asarray(x, np.float32),
            "edge_index": edges,
            "y": labels,
            "split": np.stack(
                [
                    ids_to_split(nodes, s["train"], s["valid"], s["test"])
                    for s in _splits(splits, spec.arguments["splits"])
                ]
            ),
        },
    )


def _splits(path: Path, count: int) -> list[dict[str, np.ndarray]]:
    """An npy file of one object array: a list of {train, valid, test}."""
    content = path.read_bytes()
    start = content.find(b"\n") + 1  # the npy header ends with a newline, the pickle follows
    if not content.startswith(b"\x93NUMPY") or not start:
        raise DatasetError(f"{path}: not an npy file")
    splits = np.asarray(load_pickle(content[start:], path), object).ravel().tolist()
    if len(splits) != count or any(not isinstance(s, dict) or {"train", "valid", "test"} - set(s) for s in splits):
        raise DatasetError(f"{path}: not {count} splits of train, valid and test")
    return splits


DATASETS = [
    DatasetSpec(
        name="pokec",
        family="pokec",
        task="node-classification",
        metric="accuracy",
        level="node",
        split_kind="node",
        prepare=prepare,
        files=files("pokec/pokec.mat", "pokec/pokec-splits.npy"),
        arguments={"splits": 5},
        # Polynormer, Table 4
        expected={"nodes": 1632803, "classes": 2, "features": 65, "symmetric": True},
        homepage="https://github.com/CUAI/Non-Homophily-Large-Scale",
        citation="Lim et al., Large Scale Learning on Non-Homophilous Graphs, NeurIPS 2021",
        notes=(
            "Polynormer prints 30,622,564 edges, the file's directed rows; both directions are stored here",
            "label -1: gender unknown, in no split",
        ),
    )
]
