"""gps, movielens, drug: hyperedges of three nodes of different types (Hyper-SAGNN, Zhang et al. 2020; HOT, Section 5).

One graph without edges. `hyperedges` [H, 3] contains global node ids, `type_sizes` [3] the number of nodes per type;
ids ascend by type. Nodes have one categorical column per type: 0 in columns of other types, 1 + number in its own.
The task draws negatives and computes further features from the training hyperedges.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.packed_writer import pack
from gt_bench.data.readers import read_npz
from gt_bench.data.spec import DatasetSpec, files, published
from gt_bench.utils.errors import DatasetError


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack the hyperedges [H, 3] of both files.

    The first split has no leak, the second one is the released split.

    Raises:
        DatasetError: a file has another form.
    """
    train_file, test_file = (paths[file.path] for file in spec.files)
    train, test = read_npz(train_file, ("train_data", "nums_type")), read_npz(test_file, ("test_data", "nums_type"))
    sizes = train["nums_type"].astype(np.int64)
    offsets = np.concatenate([[0], sizes.cumsum()[:-1]])
    rows = [_rows(train["train_data"], sizes, train_file), _rows(test["test_data"], sizes, test_file)]
    members = np.concatenate(rows) + offsets
    is_train = np.arange(len(members)) < len(rows[0])
    # all copies of a hyperedge get the same draw, so that they are in the same part
    distinct, which = np.unique(members, axis=0, return_inverse=True)
    which = which.ravel()
    in_train = np.zeros(len(distinct), bool)
    in_train[which[is_train]] = True
    # unstated: a validation part. The released split has none; a tenth of the distinct training hyperedges is used here
    held_out = np.random.default_rng(spec.arguments["seed"]).random(len(distinct)) < 0.1
    sound = np.where(is_train, np.where(held_out[which], 2, 1), np.where(in_train[which], 0, 3))
    released = np.where(is_train, 1, 3)
    kind = np.repeat(np.arange(len(sizes)), sizes)
    x = np.zeros((len(kind), len(sizes)), np.int64)
    x[np.arange(len(kind)), kind] = 1 + np.arange(len(kind)) - offsets[kind]
    pack(
        folder,
        spec.header(
            in_dim=(sizes + 1).tolist(), out_dim=1, num_splits=2, extras={"hyperedges": "table", "type_sizes": "table"}
        ),
        {
            "num_nodes": [sizes.sum()],
            "num_edges": [0],
            "x": x,
            "edge_index": np.zeros((2, 0), np.int64),
            "hyperedges": members,
            "type_sizes": sizes,
            "split": np.stack([sound, released]),
        },
    )


def _rows(rows: np.ndarray, sizes: np.ndarray, path: Path) -> np.ndarray:
    # MovieLens is stored as float64
    if rows.ndim != 2 or rows.shape[1] != len(sizes) or not np.array_equal(rows, np.floor(rows)):
        raise DatasetError("not a table of whole numbers with one column per node type", file=path)
    if (rows < 0).any() or (rows >= sizes).any():
        raise DatasetError("a hyperedge names a node that does not exist in its type", file=path)
    return rows.astype(np.int64)


def _spec(name: str, folder: str) -> DatasetSpec:
    return published(
        name,
        "hyperedge-prediction",
        "auc",
        prepare,
        also=("aupr",),
        level="hyperedge",
        split_kind="hyperedge",
        files=files(f"hyper_sagnn/{folder}/train_data.npz", f"hyper_sagnn/{folder}/test_data.npz"),
        arguments={"seed": 0},
    )


DATASETS = [_spec("gps", "GPS"), _spec("movielens", "MovieLens"), _spec("drug", "drug")]
