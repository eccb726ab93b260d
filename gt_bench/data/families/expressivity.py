"""csl, exp, cexp, sr25, brec: which graphs can a model distinguish? Nodes have no features, except in exp and cexp."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from gt_bench.config.protocols.brec import PAIRS as BREC_PAIRS
from gt_bench.config.protocols.brec import RELABELLINGS
from gt_bench.data.archives import UnpackLimits, decompress
from gt_bench.data.packed_writer import PackedWriter, pack
from gt_bench.data.readers import ids_to_split, located, parse_graph6, read_index_lines, read_npy, read_npz
from gt_bench.data.spec import DatasetSpec, files, published
from gt_bench.utils.errors import DatasetError

# first pair of each category, in the order of the file
BREC_CATEGORIES = {
    "basic": 0,
    "regular": 60,
    "strongly-regular": 110,
    "extension": 160,
    "cfi": 260,
    "4-vertex-condition": 360,
    "distance-regular": 380,
}


def prepare_csl(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack 150 circular skip-link graphs of 10 classes, with the five folds of Dwivedi et al. 2020."""
    data = read_npz(paths["csl/csl_plain.npz"], ("edge_index", "num_nodes", "num_edges", "y"))
    folds = [read_index_lines(paths[f"csl/CSL_{part}.index"]) for part in ("train", "val", "test")]
    count = len(data["y"])
    split = np.stack([ids_to_split(count, *ids) for ids in zip(*folds, strict=True)])  # [5, 150]
    pack(
        folder,
        spec.header(in_dim=[1], out_dim=10, num_splits=len(split)),
        {**data, "x": np.zeros((int(data["num_nodes"].sum()), 1), np.uint8), "split": split},
    )


def prepare_exp(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack pairs of graphs that 1-WL does not distinguish (Abboud et al. 2021), of two classes, with `folds` splits."""
    data = read_npz(paths[spec.files[0].path], ("x", "edge_index", "num_nodes", "num_edges", "y"))
    count, folds = len(data["y"]), spec.arguments["folds"]
    # unstated: the folds. Both graphs of a pair are consecutive and in one fold. Fold k is the test part, fold k + 1
    # the validation part
    fold = np.repeat(np.random.default_rng(spec.arguments["seed"]).permutation(count // 2) % folds, 2)
    split = np.stack([np.where(fold == k, 3, np.where(fold == (k + 1) % folds, 2, 1)) for k in range(folds)])
    pack(
        folder, spec.header(in_dim=[2], out_dim=2, num_splits=folds), {**data, "x": data["x"][:, None], "split": split}
    )


def prepare_sr25(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack 15 strongly regular graphs of 25 nodes, each its own class, without a split."""
    with PackedWriter(folder) as writer:
        path = paths[spec.files[0].path]
        _append_graph6(writer, path.read_bytes().split(), path)
        writer.append("y", np.arange(15))
        writer.finish(spec.header(in_dim=[1], out_dim=15, num_splits=0))


def prepare_brec(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack 400 pairs and their relabelled copies (Wang and Zhang 2023), without a split.

    Extras of each graph: `pair`, `side`, `control` and `category`.

    Raises:
        DatasetError: the file has another number of graphs.
    """
    path = paths[spec.files[0].path]
    lines = read_npy(decompress(path, UnpackLimits(total=1 << 28)), path)
    per_pair = 2 * RELABELLINGS
    count = 2 * BREC_PAIRS * per_pair
    if lines.shape != (count,) or lines.dtype.kind != "S":
        problem = f"{lines.shape} of {lines.dtype} where {count} graph6 strings are expected"
        raise DatasetError(problem, file=path)
    position = np.arange(count)
    control = position >= count // 2
    pair = position % (count // 2) // per_pair
    with PackedWriter(folder) as writer:
        for start in range(0, len(lines), 4096):
            _append_graph6(writer, lines[start : start + 4096], path)
        writer.append("y", pair)
        writer.append("pair", pair.astype(np.int16))
        writer.append("side", (position % 2).astype(np.uint8))
        writer.append("control", control.astype(np.uint8))
        category = np.searchsorted(list(BREC_CATEGORIES.values()), pair, side="right") - 1
        writer.append("category", category.astype(np.uint8))
        extras = dict.fromkeys(("pair", "side", "control", "category"), "graph")
        writer.finish(spec.header(in_dim=[1], out_dim=16, num_splits=0, extras=extras))


def _append_graph6(writer: PackedWriter, lines: Iterable[bytes], path: Path) -> None:
    with located(path):
        graphs = [parse_graph6(line) for line in lines]
    sizes = np.array([n for n, _ in graphs])
    edges = [np.concatenate([e, e[::-1]], axis=1) for _, e in graphs]
    writer.graphs(
        num_nodes=sizes,
        num_edges=[e.shape[1] for e in edges],
        edge_index=np.concatenate(edges, axis=1).astype(np.int16),
        x=np.zeros((sizes.sum(), 1), np.uint8),
    )


def _exp(name: str) -> DatasetSpec:
    return published(
        name,
        "graph-classification",
        "accuracy",
        prepare_exp,
        files=files(f"exp/{name.upper()}/{name}_plain.npz"),
        arguments={"folds": 10, "seed": 0},
    )


DATASETS = [
    published(
        "csl",
        "graph-classification",
        "accuracy",
        prepare_csl,
        files=files("csl/csl_plain.npz", "csl/CSL_train.index", "csl/CSL_val.index", "csl/CSL_test.index"),
    ),
    _exp("exp"),
    _exp("cexp"),
    published("sr25", "isomorphism", "pairs-distinguished", prepare_sr25, files=files("sr25/sr251256.g6")),
    published(
        "brec",
        "brec",
        "pairs-distinguished",
        prepare_brec,
        files=files("brec/brec_v3.npy.xz"),
        arguments={"categories": BREC_CATEGORIES},
    ),
]
