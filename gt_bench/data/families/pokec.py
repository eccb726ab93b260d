"""pokec in the version of LINKX (Lim et al. 2021): a MATLAB file, and the five splits of its repository."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.packed_writer import pack_graph
from gt_bench.data.readers import both_directions, dataset_errors, ids_to_split
from gt_bench.data.safe_pickle import load_pickle
from gt_bench.data.spec import DatasetSpec, files, node_classification
from gt_bench.utils.errors import DatasetError


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack the MATLAB file as one undirected graph with LINKX's splits.

    Raises:
        DatasetError: a file is damaged or has another form.
    """
    from scipy.io import loadmat

    matrix, splits = (paths[file.path] for file in spec.files)
    with dataset_errors(matrix, "not LINKX's MATLAB file"):
        data = loadmat(matrix, variable_names=("edge_index", "node_feat", "label"))
        edges, x, labels = data["edge_index"], data["node_feat"], data["label"].ravel().astype(np.int64)
    nodes, num_splits = len(labels), spec.arguments["splits"]
    parts = [ids_to_split(nodes, s["train"], s["valid"], s["test"]) for s in _splits(splits, num_splits)]
    pack_graph(
        folder,
        spec.header(in_dim=x.shape[1], out_dim=2, num_splits=num_splits),
        x=np.asarray(x, np.float32),
        edge_index=both_directions(edges, nodes),  # as Polynormer
        y=labels,
        split=np.stack(parts),
    )


def _splits(path: Path, count: int) -> list[dict[str, np.ndarray]]:
    """Read an npy file of one object array: a list of {train, valid, test}."""
    content = path.read_bytes()
    start = content.find(b"\n") + 1  # the npy header ends with a newline, followed by the pickle
    if not content.startswith(b"\x93NUMPY") or not start:
        raise DatasetError("not an npy file", file=path)
    splits = np.asarray(load_pickle(content[start:], path), object).ravel().tolist()
    if len(splits) != count or any(not isinstance(s, dict) or {"train", "valid", "test"} - set(s) for s in splits):
        raise DatasetError(f"not {count} splits with train, valid and test", file=path)
    return splits


DATASETS = [
    node_classification(
        "pokec",
        prepare,
        files=files("pokec/pokec.mat", "pokec/pokec-splits.npy"),
        arguments={"splits": 5},
    )
]
