"""Files hosted by torch_geometric: pattern, cluster, mnist, cifar10 (Dwivedi et al. 2023), pascalvoc-sp (LRGB), qm9."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from gt_bench.data.archives import UnpackLimits, read_member
from gt_bench.data.packed import PackedHeader
from gt_bench.data.packed_writer import PackedWriter
from gt_bench.data.readers import concatenate_graphs, consecutive_split, dataset_errors, located
from gt_bench.data.safe_pickle import load_pickle, load_torch
from gt_bench.data.spec import DatasetSpec, files, published
from gt_bench.utils.errors import DatasetError

BLOCK = 2000
LIMITS = UnpackLimits(total=16 << 30)
Graph = dict[str, np.ndarray]


def prepare_sbm(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack pattern or cluster. The node feature is a category, which the file stores one-hot."""

    def read(data: dict[str, Any]) -> Graph:
        x = _array(data, "x")
        x = x.argmax(1) if x.ndim == 2 and x.shape[1] > 1 else x.ravel()
        y = _array(data, "y").astype(np.int64)
        return {"x": x[:, None].astype(np.uint8), "edge_index": _array(data, "edge_index"), "y": y}

    header = spec.header(in_dim=[spec.arguments["signals"]], out_dim=spec.arguments["classes"])
    _write_parts(folder, header, read, _load_parts(spec, paths))


def prepare_superpixels(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack mnist or cifar10. Node features are colour and position, as in GraphGPS and PPGT; one number per edge."""

    def read(data: dict[str, Any]) -> Graph:
        x = np.concatenate([_array(data, "x"), _array(data, "pos")], axis=1).astype(np.float32)
        edge_attr = _array(data, "edge_attr").reshape(-1, 1).astype(np.float32)
        y = _array(data, "y").reshape(1).astype(np.int64)
        return {"x": x, "edge_index": _array(data, "edge_index"), "edge_attr": edge_attr, "y": y}

    header = spec.header(in_dim=spec.arguments["colours"] + 2, edge_dim=1, out_dim=10)
    _write_parts(folder, header, read, _load_parts(spec, paths))


def prepare_voc(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack pascalvoc-sp: tuples (x [n, 14], edge_attr [m, 2], edge_index [2, m], y [n]).

    x and edge_attr are standardised with the training part.
    """
    names = ("x", "edge_attr", "edge_index", "y")

    def read(graph: Sequence[Any]) -> Graph:
        data = dict(zip(names, graph))
        scaled = {
            name: ((_array(data, name) - mean) / deviation).astype(np.float32)
            for name, (mean, deviation) in moments.items()
        }
        return {**scaled, "edge_index": _array(data, "edge_index"), "y": _array(data, "y").astype(np.int64)}

    archive, folder_name = paths[spec.files[0].path], spec.arguments["folder"]
    parts = [
        load_pickle(read_member(archive, f"{folder_name}/{part}.pickle", LIMITS), archive)
        for part in ("train", "val", "test")
    ]
    moments = {
        name: _moments(_array(dict(zip(names, graph)), name) for graph in parts[0]) for name in ("x", "edge_attr")
    }
    _write_parts(folder, spec.header(in_dim=14, edge_dim=2, out_dim=21), read, parts)


def prepare_qm9(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack qm9 with hydrogens: the first 12 of 19 targets, standardised with the training part, random 80/10/10 split.

    Graphs are complete, as in the Edge Transformer's code. The extra `bond` marks the edges that are bonds.

    Raises:
        DatasetError: the file is damaged or has another form.
    """
    archive = paths[spec.files[0].path]
    graphs = load_torch(read_member(archive, "qm9_v3.pt", LIMITS), archive)
    if not isinstance(graphs, list) or not graphs:
        raise DatasetError("not a list of graphs", file=archive)
    tenth = len(graphs) // 10
    # unstated: the seed. The first tenth of a permutation is the test part, the second one the validation part, as in
    # the Edge Transformer's code
    order = np.random.default_rng(spec.arguments["seed"]).permutation(len(graphs))
    split = np.ones(len(graphs), np.uint8)
    split[order[:tenth]], split[order[tenth : 2 * tenth]] = 3, 2
    y = np.stack([_array(data, "y").ravel()[:12] for data in graphs]).astype(np.float64)
    # deviates: the published runs compute mean and standard deviation over all molecules, including the test part
    mean, deviation = y[split == 1].mean(0), y[split == 1].std(0, ddof=1)
    y = ((y - mean) / deviation).astype(np.float32)

    def read(item: tuple[int, dict[str, Any]]) -> Graph:
        index, data = item
        return {"x": _array(data, "x").astype(np.float32), **_complete_graph(data), "y": y[index][None]}

    extras = {"bond": "edge", "target_mean": "table", "target_deviation": "table"}
    header = spec.header(in_dim=11, edge_dim=5, out_dim=12, extras=extras)
    tables = {"target_mean": mean.astype(np.float32), "target_deviation": deviation.astype(np.float32)}
    with located(archive):
        _write(folder, header, map(read, enumerate(graphs)), tables | {"split": split[None]})


def _complete_graph(data: Mapping[str, Any]) -> Graph:
    """Make an edge for every ordered pair of atoms: four channels of the bond (zero if none) and the distance."""
    x, bonds, kinds, position = (_array(data, key) for key in ("x", "edge_index", "edge_attr", "pos"))
    n = len(x)
    if (
        position.shape != (n, 3)
        or kinds.shape != (bonds.shape[1], 4)
        or (bonds.size and not 0 <= bonds.min() <= bonds.max() < n)
    ):
        shapes = f"positions {position.shape}, bonds {bonds.shape}, bond types {kinds.shape}"
        raise DatasetError(f"a molecule of {n} atoms has {shapes}")
    features, bond = np.zeros((n, n, 5), np.float32), np.zeros((n, n), np.uint8)
    features[bonds[0], bonds[1], :4], bond[bonds[0], bonds[1]] = kinds, 1
    features[:, :, 4] = np.linalg.norm(position[:, None] - position[None], axis=2)
    pairs = np.stack((~np.eye(n, dtype=bool)).nonzero())
    return {"edge_index": pairs, "edge_attr": features[pairs[0], pairs[1]], "bond": bond[pairs[0], pairs[1]]}


def _moments(arrays: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Compute mean and standard deviation [F] over the rows of all arrays [n_i, F]; 1 for constant columns."""
    count, total, squares = 0, 0.0, 0.0
    for array in arrays:
        values = array.astype(np.float64)
        count, total, squares = count + len(values), total + values.sum(0), squares + (values**2).sum(0)
    mean = total / max(count, 1)
    deviation = np.sqrt(np.maximum(squares / max(count, 1) - mean**2, 0.0))
    return mean, np.where(deviation > 0, deviation, 1.0)  # type: ignore[return-value]


def _load_parts(spec: DatasetSpec, paths: Mapping[str, Path]) -> list[list[dict[str, Any]]]:
    """Load the lists of graphs of train, val and test."""
    archive = paths[spec.files[0].path]
    parts = load_torch(read_member(archive, spec.arguments["member"], LIMITS), archive)
    if not isinstance(parts, list | tuple) or len(parts) != 3:
        raise DatasetError("not three lists of graphs", file=archive)
    return list(parts)


def _array(data: Mapping[str, Any], key: str) -> np.ndarray:
    with dataset_errors("", f"a graph has no readable {key!r}"):
        return np.asarray(data[key])


def _write_parts(
    folder: Path, header: PackedHeader, read: Callable[[Any], Graph], parts: Sequence[Sequence[Any]]
) -> None:
    """Write the graphs of train, val and test."""
    split = consecutive_split(*map(len, parts))
    _write(folder, header, map(read, chain(*parts)), {"split": split})


def _write(folder: Path, header: PackedHeader, graphs: Iterator[Graph], tables: Mapping[str, np.ndarray]) -> None:
    """Write graphs in blocks, and tables."""
    with PackedWriter(folder) as writer:
        while block := list(islice(graphs, BLOCK)):
            arrays = concatenate_graphs(block)
            arrays["edge_index"] = arrays["edge_index"].astype(np.int16)
            writer.graphs(num_nodes=[len(graph["x"]) for graph in block], **arrays)
        for name, table in tables.items():
            writer.append(name, table)
        writer.finish(header)


DATASETS = [
    *(
        published(
            name,
            "node-classification",
            "balanced-accuracy",
            prepare_sbm,
            level="node",
            files=files(f"pyg/{name.upper()}_v2.zip"),
            arguments={"member": f"{name.upper()}_v2.pt", "signals": signals, "classes": classes},
        )
        for name, signals, classes in (("pattern", 3, 2), ("cluster", 7, 6))
    ),
    *(
        published(
            name,
            "graph-classification",
            "accuracy",
            prepare_superpixels,
            files=files(f"pyg/{name.upper()}_v2.zip"),
            arguments={"member": f"{name.upper()}_v2.pt", "colours": colours},
        )
        for name, colours in (("mnist", 1), ("cifar10", 3))
    ),
    published(
        "pascalvoc-sp",
        "node-classification",
        "f1-macro",
        prepare_voc,
        level="node",
        files=files("pyg/pascalvocsp.zip"),
        arguments={"folder": "voc_superpixels_edge_wt_region_boundary"},
    ),
    published("qm9", "graph-regression", "mae", prepare_qm9, files=files("pyg/qm9_v3.zip"), arguments={"seed": 0}),
]
