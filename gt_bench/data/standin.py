"""Miniatures: a few tiny graphs with random features, in the form of a dataset of the catalog, for where the real data are not available.

    python -m gt_bench.data.standin FOLDER      measures the packed datasets in FOLDER (data/packed) and updates shapes.json

A model cannot tell a miniature from the dataset: level, task, metric, widths and vocabularies, targets and splits are the same. What the spec
does not say before preparation stands in shapes.json, measured on the packed data, or as published where they were never at hand.
"""

import json
import sys
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from gt_bench.config.protocols import PROTOCOLS
from gt_bench.data.packed import PackedDataset, PackedHeader, pack
from gt_bench.data.spec import DatasetSpec
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import write_bytes

SHAPES = Path(__file__).parent / "shapes.json"
LARGEST_GRAPH = 100_000
# sizes of a miniature
GRAPHS, SMALLEST, LARGEST, NODES, HYPEREDGES = 12, 5, 9, 42, 48


@dataclass(frozen=True)
class Shape:
    """What a dataset's header and arrays look like.

    `targets`: columns of floating-point targets, 0 for a single number without columns, None for classes or no targets stored. `graphs`, `nodes`, `edges` (as stored, one per
    direction), `max_nodes`, `bytes`: of the whole dataset, None where neither measured nor published. `directed`: whether an edge has no reverse edge. `self_loops`,
    `isolated`: edges from a node to itself, and nodes without edges to others. `source`: where all that comes from.
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
    bytes: int | None = None
    source: str = "measured"


def measure(packed: PackedDataset) -> Shape:
    """The shape of a packed dataset."""
    header, counted = packed.header, packed.header.statistics
    y = packed.array("y") if "targets" in counted else None
    first = np.repeat(packed.array("node_ptr")[:-1].numpy(), packed.array("edge_ptr").diff().numpy())
    ends = np.stack([packed.array(name).numpy() + first for name in ("source", "target")])
    return Shape(
        **{k: getattr(header, k) for k in ("in_dim", "out_dim", "edge_dim", "num_splits", "row_normalise")},
        extras=dict(header.extras),
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
    """Dataset -> the shape of its miniature, from the file beside this module."""
    return {name: Shape(**entry) for name, entry in json.loads(SHAPES.read_text(encoding="utf-8")).items()}


def shape_of(spec: DatasetSpec, data: Path = Path("data")) -> Shape:
    """From shapes.json, else from what is packed, else from the spec where it tells enough. Raises DatasetError where none does."""
    if spec.name in shapes():
        return shapes()[spec.name]
    folder, told = data / "packed" / spec.name, {**spec.arguments, **spec.expected}
    if (folder / "header.json").exists():
        return measure(PackedDataset.open(folder))
    if (
        spec.task.endswith("-classification")
        and isinstance(told.get("features"), int)
        and isinstance(told.get("classes"), int)
    ):
        return Shape(
            told["features"], told["classes"], num_splits=told.get("splits", 1), graphs=told.get("graphs"), nodes=told.get("nodes"), edges=told.get("edges"),
            train=told.get("train"), val=told.get("val"), test=told.get("test"), source="the dataset's spec",
        )  # fmt: skip
    raise DatasetError(
        f"dataset {spec.name!r}: its widths are not known before it is prepared; run `python -m stages.download {spec.name}`, and for a dataset "
        "of this repository then `python -m gt_bench.data.standin data/packed`, which notes them in gt_bench/data/shapes.json"
    )


def miniature(
    spec: DatasetSpec, folder: Path, data: Path = Path("data"), seed: int = 0, life_size: int | None = None
) -> PackedHeader:
    """Packs a miniature of `spec` into `folder`; with `life_size`, that many graphs as large as the dataset's are on average, for measuring
    time and memory (one graph of at most LARGEST_GRAPH nodes where the dataset is one). Raises DatasetError where widths, or then sizes, are
    not known."""
    shape, rng = shape_of(spec, data), np.random.default_rng(seed)
    if life_size is None:
        sizes, degree = _sizes(spec, rng), None
    else:
        if shape.nodes is None or shape.graphs is None or shape.edges is None:
            raise DatasetError(f"dataset {spec.name!r}: the sizes of its graphs are not known before it is at hand")
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
    if shape.edge_dim is not None:
        arrays["edge_attr"] = _features(shape.edge_dim, arrays["edge_index"].shape[1], rng)
    arrays |= _targets(spec, shape, sizes, rng)
    arrays |= _extras(spec, shape, sizes, arrays, rng)
    if shape.num_splits:
        rows = {"node": sizes.sum(), "graph": len(sizes), "hyperedge": len(arrays.get("hyperedges", ()))}[
            spec.split_kind
        ]
        arrays["split"] = _parts(spec, shape, rows, life_size is not None)
    header = spec.header(
        in_dim=shape.in_dim, out_dim=shape.out_dim, edge_dim=shape.edge_dim, num_splits=shape.num_splits, row_normalise=shape.row_normalise,
        extras=shape.extras, notes=("a miniature with random features, not the dataset",),
    )  # fmt: skip
    return pack(folder, header.model_copy(update={"derived": "a miniature with random features"}), arrays)


def _parts(spec: DatasetSpec, shape: Shape, rows: int, life_size: bool) -> np.ndarray:
    """The splits: thirds; at life size of graphs the shares of the dataset, 8 : 1 : 1 where they are not known, since a part's share is its cost."""
    thirds = (np.arange(rows)[None] + np.arange(shape.num_splits)[:, None]) % 3 + 1
    if not life_size or spec.split_kind != "graph" or rows < GRAPHS:
        return thirds
    counts = np.array(
        [shape.train, shape.val, shape.test] if shape.train and shape.val and shape.test else [8, 1, 1], float
    )
    bounds = np.maximum(np.rint(rows * counts[1:] / counts.sum()), 1).astype(
        int
    )  # of validation and test: one graph at least
    order = np.concatenate([np.full(rows - bounds.sum(), 1), np.full(bounds[0], 2), np.full(bounds[1], 3)])
    return np.stack([np.roll(order, number) for number in range(shape.num_splits)])


def _sizes(spec: DatasetSpec, rng: np.random.Generator) -> np.ndarray:
    if spec.split_kind in ("node", "hyperedge"):
        return np.array([NODES])
    if spec.task in PROTOCOLS:
        return PROTOCOLS[spec.task].miniature_sizes(rng, SMALLEST, LARGEST)
    return rng.integers(SMALLEST, LARGEST + 1, GRAPHS)


def _edges(n: int, rng: np.random.Generator, degree: float | None = None) -> np.ndarray:
    """A ring with chords, both directions; about `degree` edges a node (nothing: a few chords)."""
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n])
    chords = rng.integers(0, n, (2, n // 2 if degree is None else max(0, round(n * (degree / 2 - 1)))))
    both = np.concatenate([ring, ring[::-1], chords, chords[::-1]], axis=1)
    both = both[:, both[0] != both[1]]
    return np.stack(np.divmod(np.unique(both[0] * n + both[1]), n))


def _irregular(edges: np.ndarray, n: int, shape: Shape, number: int) -> np.ndarray:
    """The edges with what the dataset's own graphs have: single directions, self-loops and, in every fourth graph, isolated nodes."""
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
        if counts:  # words: of many few occur
            return (
                rng.integers(1, 4, (rows, dim)) * (rng.random((rows, dim)) < (0.05 if dim > 1000 else 0.35))
            ).astype(np.uint8)
        return rng.standard_normal((rows, dim), np.float32)
    return np.stack([rng.integers(0, vocabulary, rows) for vocabulary in dim], axis=1)


def _targets(spec: DatasetSpec, shape: Shape, sizes: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """In threes by part, so that every part of every split holds the same classes."""
    rows = int(sizes.sum()) if spec.level == "node" else len(sizes)
    turn = np.arange(rows) // 3
    if spec.task.endswith("-classification"):
        return {"y": turn % shape.out_dim}
    if spec.task.endswith("-multilabel"):
        return {"y": ((turn[:, None] + np.arange(shape.targets or shape.out_dim)) % 2).astype(np.float32)}
    if spec.task == "set-to-graph":
        pairs = [_edges(n, rng) for n in sizes]
        return {"num_pairs": np.array([p.shape[1] for p in pairs]), "pair_index": np.concatenate(pairs, axis=1)}
    if spec.metric == "pairs-distinguished":  # nothing to learn: the graphs are numbered
        return {"y": np.arange(rows) % shape.out_dim}
    if shape.targets is None:
        return {}
    return {"y": rng.standard_normal((rows, shape.targets) if shape.targets else rows, np.float32)}


def _extras(
    spec: DatasetSpec, shape: Shape, sizes: np.ndarray, arrays: dict[str, np.ndarray], rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """The further arrays of the families that have any."""
    made: dict[str, np.ndarray] = {}
    of_protocol = PROTOCOLS[spec.task].miniature_arrays(len(sizes)) if spec.task in PROTOCOLS else {}
    for name in shape.extras:
        if name == "target_mean":
            made[name] = np.zeros(shape.out_dim, np.float32)
        elif name == "target_deviation":
            made[name] = np.ones(shape.out_dim, np.float32)
        elif name in ("hyperedges", "type_sizes"):
            assert isinstance(shape.in_dim, list)  # a width for each type
            types = len(shape.in_dim)
            each = int(sizes.sum()) // types
            made["type_sizes"] = np.full(types, each)
            made["hyperedges"] = np.stack(
                [rng.integers(t * each, (t + 1) * each, HYPEREDGES) for t in range(types)], axis=1
            )
            made["type_sizes"][-1] += int(sizes.sum()) - types * each
            kind = np.repeat(np.arange(types), made["type_sizes"])
            arrays["x"] = np.zeros(
                (len(kind), types), np.int64
            )  # a column per type: 1 + the node's number within its own
            numbers = (np.arange(len(kind)) - kind * each) % (np.array(shape.in_dim)[kind] - 1)
            arrays["x"][np.arange(len(kind)), kind] = 1 + numbers
        elif name == "bond":
            made[name] = (np.arange(arrays["edge_index"].shape[1]) % 3 < 2).astype(np.uint8)
        elif name in of_protocol:
            made[name] = of_protocol[name]
        elif name == "flavour":
            made[name] = np.array([5, 4, 0])[np.arange(len(sizes)) // 3 % 3]
        elif name in _CONFIGURED:
            made |= _configurations(shape, sizes, rng)
        else:
            raise DatasetError(
                f"dataset {spec.name!r}: gt_bench/data/standin.py does not know how to make its array {name!r}"
            )
    return made


_CONFIGURED = ("config_runtime", "config_feat", "config_node", "opcode", "config_count", "config_nodes")


def _configurations(shape: Shape, sizes: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Four configurations of each graph; with layouts, of its first two nodes (18 features), else of the graph (24)."""
    layout, each, nodes = "config_node" in shape.extras, 4, 2
    made = {
        "opcode": rng.integers(0, 120, int(sizes.sum())),
        "config_count": np.full(len(sizes), each),
        "config_nodes": np.full(len(sizes), nodes if layout else 0),
        "config_runtime": rng.permutation(each * len(sizes)).astype(np.float32) + 1,
        "config_feat": rng.standard_normal(
            (each * len(sizes) * (nodes if layout else 1), 18 if layout else 24), np.float32
        ),
    }
    return made | ({"config_node": np.tile(np.arange(nodes), len(sizes))} if layout else {})


def write_shapes(folder: Path) -> list[str]:
    """Measures every dataset of the catalog that is packed in `folder` and writes shapes.json; returns their names."""
    from gt_bench.data.registry import catalog

    found = {}
    for name in catalog():
        if (folder / name / "header.json").exists():
            found[name] = measure(PackedDataset.open(folder / name))
    merged = {**(shapes() if SHAPES.exists() else {}), **found}
    default = asdict(Shape(0, 0))
    known = {
        name: {k: v for k, v in asdict(shape).items() if k in ("in_dim", "out_dim", "source") or v != default[k]}
        for name, shape in sorted(merged.items())
    }
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in known.items()]
    write_bytes(SHAPES, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return list(found)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(f"measured: {', '.join(write_shapes(Path(sys.argv[1])))}")
