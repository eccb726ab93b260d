"""tpugraphs-layout-{xla,nlp}-{default,random}, tpugraphs-tile: computation graphs, configurations and their runtimes.

A graph has `config_count` configurations. `config_runtime` and `config_feat` contain those of all graphs one after the
other. Layout features belong to `config_nodes` nodes of the graph (ids in `config_node`), tile features to the graph.
"""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import numpy as np

from gt_bench.data.archives import ArchiveError, UnpackLimits, tar_members
from gt_bench.data.packed import PackedDataset
from gt_bench.data.packed_writer import PackedWriter
from gt_bench.data.readers import dataset_errors, located, read_npz
from gt_bench.data.spec import DatasetSpec, files, published
from gt_bench.utils.errors import DatasetError

LIMITS = UnpackLimits(total=1 << 40)
OPCODES, NODE_FEATURES = 120, 140
KEYS = {
    "layout": ("node_feat", "node_opcode", "edge_index", "node_config_feat", "node_config_ids", "config_runtime"),
    "tile": ("node_feat", "node_opcode", "edge_index", "config_feat", "config_runtime", "config_runtime_normalizers"),
}
TABLES = {"layout": ("config_runtime", "config_feat", "config_node"), "tile": ("config_runtime", "config_feat")}


def prepare(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack programs with their configurations and runtimes.

    A tenth of the training programs is the validation part, the official validation programs are the test part.

    Raises:
        DatasetError: a file is damaged or has another form.
    """
    kind, counts = spec.arguments["kind"], []
    with PackedWriter(folder) as writer:
        for entry in spec.files:
            graphs = 0
            for name, data in _graphs(paths[entry.path], KEYS[kind]):
                with located(entry.path, name):
                    _append(writer, data, kind)
                graphs += 1
            counts.append(graphs)
        part = np.repeat([1, 3], counts).astype(np.uint8)
        # unstated: the data that select an epoch. A tenth of the training graphs, drawn once, because the official
        # validation graphs are the test part
        part[np.random.default_rng(0).permutation(counts[0])[: max(1, counts[0] // 10)]] = 2
        writer.append("split", part[None])
        extras = dict.fromkeys(TABLES[kind], "table") | {
            "opcode": "node",
            "config_count": "graph",
            "config_nodes": "graph",
        }
        writer.finish(spec.header(in_dim=NODE_FEATURES, out_dim=1, extras=extras))


def configurations(dataset: PackedDataset, graph: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Look up the configurations of a graph.

    Args:
        dataset: the dataset.
        graph: id of the graph.

    Returns:
        Runtimes [C], features [C, config_nodes, F] (tile: [C, F]), and ids of the configured nodes (tile: None).
    """
    counts, nodes = dataset.array("config_count").numpy(), dataset.array("config_nodes").numpy()
    start, count = int(counts[:graph].sum()), int(counts[graph])
    runtimes = dataset.array("config_runtime")[start : start + count].numpy()
    if "config_node" not in dataset.header.extras:
        return runtimes, dataset.array("config_feat")[start : start + count].numpy(), None
    first = int((counts[:graph].astype(np.int64) * nodes[:graph]).sum())
    features = dataset.array("config_feat")[first : first + count * int(nodes[graph])].numpy()
    before = int(nodes[:graph].sum())
    ids = dataset.array("config_node")[before : before + int(nodes[graph])].numpy()
    return runtimes, features.reshape(count, int(nodes[graph]), -1), ids


def segments(nodes: int, size: int) -> list[slice]:
    """Divide a graph into segments of consecutive nodes. Graphs are stored in topological order: neighbours are near.

    Args:
        nodes: number of nodes.
        size: maximum number of nodes per segment.

    Returns:
        The segments.

    Raises:
        ValueError: `size` is less than 1.
    """
    if size < 1:
        raise ValueError(f"size of a segment must be at least one node; got {size}")
    return [slice(start, min(start + size, nodes)) for start in range(0, nodes, size)]


def ordered_pair_accuracy(scores: np.ndarray, runtimes: np.ndarray) -> float:
    """Compute the share of pairs of configurations with different runtimes whose scores have the same order.

    Args:
        scores: [C]. Equal scores count as wrong.
        runtimes: [C].

    Returns:
        The share.

    Raises:
        ValueError: all runtimes are equal.
    """
    # blocks of rows bound the memory
    right = total = 0
    for start in range(0, len(runtimes), 1024):
        longer = runtimes[start : start + 1024, None] > runtimes[None]
        total += int(longer.sum())
        right += int((longer & (scores[start : start + 1024, None] > scores[None])).sum())
    if not total:
        raise ValueError("all runtimes are equal: no pair has an order")
    return right / total


def _append(writer: PackedWriter, data: Mapping[str, np.ndarray], kind: str) -> None:
    nodes, runtime = len(data["node_feat"]), data["config_runtime"]
    features = data["node_config_feat"] if kind == "layout" else data["config_feat"]
    configured = data["node_config_ids"] if kind == "layout" else np.zeros(0, np.int64)
    fits = (
        len(features) == len(runtime)
        and len(data["node_opcode"]) == nodes
        and (kind == "tile" or features.shape[1] == len(configured))
    )
    if not fits or data["edge_index"].ndim != 2 or data["edge_index"].shape[1] != 2:
        raise DatasetError("shapes of configurations, nodes and edges contradict each other")
    if kind == "tile":
        runtime = runtime / data["config_runtime_normalizers"]
    writer.graphs(
        num_nodes=[nodes],
        num_edges=[len(data["edge_index"])],
        edge_index=data["edge_index"].T.astype(np.int32),
        x=data["node_feat"].astype(np.float32),
        opcode=data["node_opcode"].astype(np.uint8),
        config_count=np.array([len(runtime)], np.int32),
        config_nodes=np.array([len(configured)], np.int32),
    )
    writer.append("config_runtime", runtime.astype(np.float64))
    writer.append("config_feat", features.reshape(-1, features.shape[-1]).astype(np.float32))
    if kind == "layout":
        writer.append("config_node", configured.astype(np.int32))


def _graphs(path: Path, keys: tuple[str, ...]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield (name, arrays) of every npz file of a tar archive."""
    total = 0
    with dataset_errors(path, "cannot be read", error_class=ArchiveError):
        for member, file in tar_members(path):
            total += member.size
            if total > LIMITS.total:
                raise ArchiveError(f"unpacks to more than {LIMITS.total:,} bytes", value=total)
            if PurePosixPath(member.name).suffix == ".npz":
                yield member.name, read_npz(io.BytesIO(file.read()), keys)


def _spec(name: str, kind: str, stem: str) -> DatasetSpec:
    return published(
        name,
        "configuration-ranking",
        "ordered-pair-accuracy",
        prepare,
        files=files(f"tpugraphs/{stem}_train.tar", f"tpugraphs/{stem}_valid.tar"),
        arguments={"kind": kind},
        also=("accuracy",) if kind == "tile" else (),
    )


DATASETS = [
    *(
        _spec(f"tpugraphs-layout-{s}-{q}", "layout", f"npz_layout_{s}_{q}")
        for s in ("xla", "nlp")
        for q in ("default", "random")
    ),
    _spec("tpugraphs-layout-tile", "tile", "npz_tile_xla"),
]
