"""Miniatures: a few tiny graphs with random features in the form of a dataset, for use when the data are unavailable.

    python -m gt_bench.data.standin FOLDER      measure the packed datasets in FOLDER (data/packed), update shapes.json

For a model, a miniature looks like the dataset: level, task, metric, widths and vocabularies, targets and splits are
the same. What the spec does not state before preparation is in shapes.json: measured on packed data, or as published.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gt_bench.config.protocols import PROTOCOLS
from gt_bench.data.packed import SEEN, PackedDataset, PackedHeader
from gt_bench.data.packed_writer import pack
from gt_bench.data.registry import catalog
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import write_bytes

SHAPES = Path(__file__).parent / "shapes.json"
LARGEST_GRAPH = 100_000  # nodes
_HEADER_FIELDS = ("in_dim", "out_dim", "edge_dim", "num_splits", "extras", "row_normalise")
# sizes of a miniature: graphs of 5 to 9 nodes, or one graph of 42 nodes
GRAPHS, SMALLEST, LARGEST, NODES, HYPEREDGES = 13, 5, 9, 42, 48


@dataclass(frozen=True)
class Shape:
    """What the header and arrays of a dataset look like.

    Attributes:
        in_dim: as in `PackedHeader`.
        out_dim: as in `PackedHeader`.
        edge_dim: as in `PackedHeader`.
        num_splits: as in `PackedHeader`.
        extras: as in `PackedHeader`.
        row_normalise: as in `PackedHeader`.
        targets: columns of floating-point targets; 0 for one number without columns, None for classes or no targets.
        graphs: number of graphs; None if neither measured nor published, as for all sizes below.
        nodes: number of nodes.
        edges: number of stored edges, one per direction.
        max_nodes: nodes of the largest graph.
        train: rows of the training part of the first split.
        val: rows of its validation part.
        test: rows of its test part.
        directed: whether some edge has no reverse edge.
        self_loops: number of edges from a node to itself.
        isolated: number of nodes without edges to other nodes.
        missing: whether node features have missing values.
        bytes: size of data.safetensors.
        source: where the numbers are from.
    """

    in_dim: int | list[int]
    out_dim: int
    edge_dim: int | list[int] | None = None
    num_splits: int = 1
    extras: dict[str, str] = field(default_factory=dict)
    row_normalise: bool = False
    targets: int | None = None
    graphs: int | None = None
    nodes: int | None = None
    edges: int | None = None
    max_nodes: int | None = None
    train: int | None = None
    val: int | None = None
    test: int | None = None
    directed: bool = False
    self_loops: int = 0
    isolated: int = 0
    missing: bool = False
    bytes: int | None = None
    source: str = "measured"


def measure(packed: PackedDataset) -> Shape:
    """Measure the shape of a packed dataset."""
    header, counted = packed.header, packed.header.statistics
    y = packed.array("y") if "targets" in counted else None
    first = np.repeat(packed.array("node_ptr")[:-1].numpy(), packed.array("edge_ptr").diff().numpy())
    ends = np.stack([packed.array(name).numpy() + first for name in ("source", "target")])
    return Shape(
        **{key: getattr(header, key) for key in _HEADER_FIELDS},
        targets=None if y is None or not y.is_floating_point() else 0 if y.dim() == 1 else y.size(1),
        graphs=packed.num_graphs,
        nodes=packed.num_nodes,
        edges=packed.num_edges,
        max_nodes=int(packed.sizes.max()),
        train=counted.get("train"),
        val=counted.get("val"),
        test=counted.get("test"),
        directed=not counted["symmetric"],
        self_loops=counted["self_loops"],
        isolated=packed.num_nodes - np.unique(ends[:, ends[0] != ends[1]]).size,
        bytes=header.data_bytes,
    )


@cache
def shapes() -> dict[str, Shape]:
    """Read shapes.json: dataset -> shape."""
    return {name: Shape(**entry) for name, entry in json.loads(SHAPES.read_text(encoding="utf-8")).items()}


def shape_of(spec: DatasetSpec, data: Path = Path("data")) -> Shape:
    """Find the shape of a dataset: in shapes.json, else in the packed dataset, else in the spec.

    Args:
        spec: the dataset.
        data: folder of packed/.

    Returns:
        Its shape.

    Raises:
        DatasetError: it is not known before the dataset is prepared.
    """
    if spec.name in shapes():
        return shapes()[spec.name]
    folder, known = data / "packed" / spec.name, {**spec.arguments, **spec.expected}
    if (folder / "header.json").exists():
        return measure(PackedDataset.open(folder))
    features, classes = known.get("features"), known.get("classes")
    if spec.task.endswith("-classification") and isinstance(features, int) and isinstance(classes, int):
        sizes: dict[str, Any] = {key: known.get(key) for key in ("graphs", "nodes", "edges", "train", "val", "test")}
        return Shape(features, classes, num_splits=known.get("splits", 1), **sizes, source="the dataset's spec")
    raise DatasetError(
        "its widths are not known before it is prepared",
        file=f"dataset {spec.name!r}",
        remedy=f"run `python -m stages.download {spec.name}`, and for a dataset of this repository then "
        "`python -m gt_bench.data.standin data/packed`, which saves them in gt_bench/data/shapes.json",
    )


def miniature(spec: DatasetSpec, folder: Path, data: Path = Path("data"), life_size: int | None = None) -> PackedHeader:
    """Pack a miniature of a dataset.

    Args:
        spec: the dataset.
        folder: folder of the miniature.
        data: folder of packed/.
        life_size: number of graphs of the average size of the dataset, for measurements of time and memory. For a
            dataset of one graph, that graph has at most LARGEST_GRAPH nodes, and all hyperedges if it has hyperedges.

    Returns:
        The header of the miniature.

    Raises:
        DatasetError: widths, or with `life_size` the sizes of graphs, are not known.
    """
    shape, rng = shape_of(spec, data), np.random.default_rng(0)
    if life_size is None:
        sizes, degree = _sizes(spec, rng), None
    else:
        if shape.nodes is None or shape.graphs is None or shape.edges is None:
            problem = "the sizes of its graphs are not known before it is prepared"
            remedy = f"run `python -m stages.download {spec.name}`"
            raise DatasetError(problem, file=f"dataset {spec.name!r}", remedy=remedy)
        mean, degree = shape.nodes / shape.graphs, shape.edges / shape.nodes
        spread = 0.3 if shape.graphs > 1 else 0.0
        count = min(life_size, shape.graphs)
        sizes = np.clip(np.rint(rng.uniform(1 - spread, 1 + spread, count) * mean), 2, LARGEST_GRAPH).astype(np.int64)
    edges = [_edges(n, rng, degree) if shape.edges != 0 else np.zeros((2, 0), np.int64) for n in sizes]
    if life_size is None:
        edges = [_irregular(e, n, shape, number) for number, (e, n) in enumerate(zip(edges, sizes, strict=True))]
    arrays: dict[str, np.ndarray] = {
        "num_nodes": sizes,
        "num_edges": np.array([e.shape[1] for e in edges]),
        "edge_index": np.concatenate(edges, axis=1),
        "x": _features(shape.in_dim, int(sizes.sum()), rng, shape.row_normalise),
    }
    if shape.missing:
        arrays["x"][::5, 0] = np.nan
    if shape.edge_dim is not None:
        arrays["edge_attr"] = _features(shape.edge_dim, arrays["edge_index"].shape[1], rng)
    arrays |= _targets(spec, shape, sizes, int(arrays["num_edges"].sum()), rng)
    arrays |= _extras(spec, shape, sizes, arrays, rng, HYPEREDGES if life_size is None else sum(_parts(shape)))
    if shape.num_splits:
        rows = {
            "node": sizes.sum(),
            "graph": len(sizes),
            "hyperedge": len(arrays.get("hyperedges", ())),
            "edge": len(arrays.get("target_pair", ())),
        }
        arrays["split"] = _splits(spec, shape, rows[spec.split_kind], life_size is not None)
    fields = {key: getattr(shape, key) for key in _HEADER_FIELDS}
    header = spec.header(**fields, notes=("a miniature with random features, not the dataset",))
    arguments = {key: value for key, value in header.provenance["arguments"].items() if key != "reader"}  # not JSON
    changes = {
        "derived": "a miniature with random features",
        "provenance": header.provenance | {"arguments": arguments},
    }
    return pack(folder, header.model_copy(update=changes), arrays)


def _splits(spec: DatasetSpec, shape: Shape, rows: int, life_size: bool) -> np.ndarray:
    """Make split codes [S, rows] in thirds.

    At life size, splits of graphs and hyperedges have the shares of the dataset (8 : 1 : 1 if unknown): they decide the
    time of an epoch.
    """
    thirds = (np.arange(rows)[None] + np.arange(shape.num_splits)[:, None]) % 3 + 1
    if not life_size or spec.split_kind == "node" or rows < GRAPHS:
        return thirds
    counts = np.array(_parts(shape) or [8, 1, 1], float)
    val, test = np.maximum(np.rint(rows * counts[1:] / counts.sum()), 1).astype(int)
    order = np.repeat([1, 2, 3], [rows - val - test, val, test])
    return np.stack([np.roll(order, number) for number in range(shape.num_splits)])


def _parts(shape: Shape) -> list[int]:
    """Return the sizes of the three parts of the first split; nothing if one is unknown."""
    parts = [part for part in (shape.train, shape.val, shape.test) if part]
    return parts if len(parts) == 3 else []


def _sizes(spec: DatasetSpec, rng: np.random.Generator) -> np.ndarray:
    if spec.split_kind in ("node", "hyperedge", "edge"):
        return np.array([NODES])
    if spec.task in PROTOCOLS:
        return PROTOCOLS[spec.task].miniature_sizes(rng, SMALLEST, LARGEST)
    return rng.integers(SMALLEST, LARGEST + 1, GRAPHS)


def _edges(n: int, rng: np.random.Generator, degree: float | None = None) -> np.ndarray:
    """Make a ring with chords, in both directions: about `degree` edges per node, by default a few chords."""
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n])
    chords = rng.integers(0, n, (2, n // 2 if degree is None else max(0, round(n * (degree / 2 - 1)))))
    both = np.concatenate([ring, ring[::-1], chords, chords[::-1]], axis=1)
    both = both[:, both[0] != both[1]]
    return np.stack(np.divmod(np.unique(both[0] * n + both[1]), n))


def _irregular(edges: np.ndarray, n: int, shape: Shape, number: int) -> np.ndarray:
    """Make edges directed, add self-loops and (in every fourth graph) isolated nodes, if the dataset has them."""
    nodes = np.arange(n)
    if shape.isolated and number % 4 == 0:
        edges = edges[:, ~np.isin(edges, nodes[4::20]).any(0)]
    if shape.directed:
        edges = edges[:, (edges[0] < edges[1]) | (edges.sum(0) % 3 > 0)]
    if shape.self_loops:
        edges = np.concatenate([edges, np.stack([nodes[::10]] * 2)], axis=1)
    return np.stack(np.divmod(np.unique(edges[0] * n + edges[1]), n))


def _features(dim: int | list[int], rows: int, rng: np.random.Generator, counts: bool = False) -> np.ndarray:
    if isinstance(dim, int):
        if counts:  # bags of words: few of many columns are not zero
            words = rng.integers(1, 4, (rows, dim))
            return (words * (rng.random((rows, dim)) < (0.05 if dim > 1000 else 0.35))).astype(np.uint8)
        return rng.standard_normal((rows, dim), np.float32)
    return np.stack([rng.integers(0, vocabulary, rows) for vocabulary in dim], axis=1)


def _targets(
    spec: DatasetSpec, shape: Shape, sizes: np.ndarray, edges: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Make targets. Three consecutive rows have the same class, so that all parts have the same classes."""
    rows = {"node": int(sizes.sum()), "edge": edges}.get(spec.level, len(sizes))
    number = np.arange(rows) // 3
    if spec.task.endswith("-classification"):
        return {"y": number % shape.out_dim}
    if spec.task.endswith("-multilabel"):
        return {"y": ((number[:, None] + np.arange(shape.targets or shape.out_dim)) % 2).astype(np.float32)}
    if spec.task == "set-to-graph":
        pairs = [_edges(n, rng) for n in sizes]
        return {"num_pairs": np.array([p.shape[1] for p in pairs]), "pair_index": np.concatenate(pairs, axis=1)}
    if spec.metric == "pairs-distinguished":  # no target: graphs are numbered
        return {"y": np.arange(rows) % shape.out_dim}
    if shape.targets is None:
        return {}
    return {"y": rng.standard_normal((rows, shape.targets) if shape.targets else rows, np.float32)}


def _extras(
    spec: DatasetSpec,
    shape: Shape,
    sizes: np.ndarray,
    arrays: dict[str, np.ndarray],
    rng: np.random.Generator,
    hyperedges: int = HYPEREDGES,
) -> dict[str, np.ndarray]:
    """Make the further arrays of the dataset. For datasets of `hyperedges`, `arrays["x"]` is replaced."""
    made: dict[str, np.ndarray] = {}
    of_protocol = PROTOCOLS[spec.task].miniature_arrays(len(sizes)) if spec.task in PROTOCOLS else {}
    for name in shape.extras:
        if name == "target_mean":
            made[name] = np.zeros(shape.out_dim, np.float32)
        elif name == "target_deviation":
            made[name] = np.ones(shape.out_dim, np.float32)
        elif name in ("hyperedges", "type_sizes"):
            assert isinstance(shape.in_dim, list)  # a width per node type
            types, nodes = len(shape.in_dim), int(sizes.sum())
            each = nodes // types
            made["type_sizes"] = np.full(types, each)
            made["type_sizes"][-1] += nodes - types * each
            members = [rng.integers(t * each, (t + 1) * each, hyperedges) for t in range(types)]
            made["hyperedges"] = np.stack(members, axis=1)
            kind = np.repeat(np.arange(types), made["type_sizes"])
            # a column per type: 1 + number of the node within its type
            arrays["x"] = np.zeros((nodes, types), np.int64)
            numbers = (np.arange(nodes) - kind * each) % (np.array(shape.in_dim)[kind] - 1)
            arrays["x"][np.arange(nodes), kind] = 1 + numbers
        elif name == SEEN:  # every node is in a part, and is seen with it
            made[name] = _splits(spec, shape, int(sizes.sum()), life_size=False)
        elif name == "bond":
            made[name] = (np.arange(arrays["edge_index"].shape[1]) % 3 < 2).astype(np.uint8)
        elif name in of_protocol:
            made[name] = of_protocol[name]
        elif name == "flavour":
            made[name] = np.array([5, 4, 0])[np.arange(len(sizes)) // 3 % 3]
        elif name in ("target_pair", "target_edge", "link", "protocol"):
            made |= _edge_tables(spec, shape, arrays["edge_index"])
        elif name in _CONFIGURATION_ARRAYS:
            made |= _configurations(shape, sizes, rng)
        else:
            problem = f"gt_bench/data/standin.py cannot make its array {name!r}"
            raise DatasetError(problem, file=f"dataset {spec.name!r}", value=name, remedy="add it")
    return made


_CONFIGURATION_ARRAYS = ("config_runtime", "config_feat", "config_node", "opcode", "config_count", "config_nodes")


def _configurations(shape: Shape, sizes: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Make four configurations per graph: layouts of its first two nodes (18 features), or tiles (24 features)."""
    layout, each, nodes = "config_node" in shape.extras, 4, 2
    made = {
        "opcode": rng.integers(0, 120, int(sizes.sum())),
        "config_count": np.full(len(sizes), each),
        "config_nodes": np.full(len(sizes), nodes if layout else 0),
        "config_runtime": rng.permutation(each * len(sizes)).astype(np.float32) + 1,
    }
    width = (each * len(sizes) * nodes, 18) if layout else (each * len(sizes), 24)
    made["config_feat"] = rng.standard_normal(width, np.float32)
    return made | ({"config_node": np.tile(np.arange(nodes), len(sizes))} if layout else {})


def _edge_tables(spec: DatasetSpec, shape: Shape, edges: np.ndarray) -> dict[str, np.ndarray]:
    """Make the tables of targets of edges (`gt_bench.data.custom.edges`) of a graph with `edges` [2, E]."""
    protocol = np.array([5, 0, int(not shape.directed)])
    if spec.task != "link-prediction":
        return {"protocol": protocol, "target_pair": edges.T, "target_edge": np.arange(edges.shape[1])}
    pairs, link = np.unique(np.sort(edges, axis=0), axis=1, return_inverse=True)
    return {"protocol": protocol, "target_pair": pairs.T, "link": link.ravel()}


def write_shapes(folder: Path) -> list[str]:
    """Measure all packed datasets of the catalog in `folder`, update shapes.json, and return their names."""
    measured = {}
    for name in catalog():
        if (folder / name / "header.json").exists():
            measured[name] = measure(PackedDataset.open(folder / name))
    merged = {**(shapes() if SHAPES.exists() else {}), **measured}
    default = asdict(Shape(0, 0))
    known = {
        name: {k: v for k, v in asdict(shape).items() if k in ("in_dim", "out_dim", "source") or v != default[k]}
        for name, shape in sorted(merged.items())
    }
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in known.items()]
    write_bytes(SHAPES, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return list(measured)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(f"measured: {', '.join(write_shapes(Path(sys.argv[1])))}")
