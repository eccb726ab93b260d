"""ogbn-arxiv, ogbn-products from ogb's archives (raw CSV, not the processed pickles), with ogb's splits and metric."""

import gzip
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.archives import UnpackLimits, unpack
from gt_bench.data.packed_writer import PackedWriter
from gt_bench.data.readers import both_directions, dataset_errors, ids_to_split
from gt_bench.data.spec import DatasetSpec, files, node_classification

ROWS = 1 << 18


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack ogb's CSV files block by block: the feature table need not fit in memory."""
    a = spec.arguments
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary, PackedWriter(folder) as writer:
        root = unpack(paths[spec.files[0].path], Path(temporary) / "raw", UnpackLimits(total=32 << 30)) / a["folder"]
        labels = np.concatenate(list(_csv(root / "raw/node-label.csv.gz", np.int64)))[:, 0]
        edges = np.concatenate(list(_csv(root / "raw/edge.csv.gz", np.int64))).T
        if a["both_directions"]:  # the file has each edge once; ogb adds the reverse edges
            edges = both_directions(edges, len(labels), loops=True)
        for block in _csv(root / "raw/node-feat.csv.gz", np.float32):
            writer.append("x", block)
        parts = [
            np.concatenate(list(_csv(root / f"split/{a['split']}/{part}.csv.gz", np.int64)))
            for part in ("train", "valid", "test")
        ]
        writer.graphs(num_nodes=[len(labels)], num_edges=[edges.shape[1]], edge_index=edges.astype(np.int32), y=labels)
        writer.append("split", ids_to_split(len(labels), *parts)[None])
        writer.finish(spec.header(in_dim=a["features"], out_dim=a["classes"]))


def _csv(path: Path, dtype: type) -> Iterator[np.ndarray]:
    """Yield blocks [rows, columns] of a gzipped table of numbers without a header."""
    import pandas as pd

    with (
        dataset_errors(path.name, f"not a readable table of {dtype.__name__}"),
        gzip.open(path, "rb") as file,
        pd.read_csv(file, header=None, dtype=dtype, chunksize=ROWS) as reader,
    ):
        for block in reader:
            yield block.to_numpy()


def _spec(name: str, folder: str, split: str, both: bool, classes: int, features: int) -> DatasetSpec:
    arguments = {"folder": folder, "split": split, "both_directions": both, "classes": classes, "features": features}
    return node_classification(name, prepare, files=files(f"ogb/{folder}.zip"), arguments=arguments)


DATASETS = [
    _spec("ogbn-arxiv", "arxiv", "time", False, 40, 128),
    _spec("ogbn-arxiv-undirected", "arxiv", "time", True, 40, 128),
    _spec("ogbn-products", "products", "sales_ranking", True, 47, 100),
]
