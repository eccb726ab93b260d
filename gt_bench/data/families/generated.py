"""Generated datasets. They are seeded: all machines get identical bytes.

- HOT: delaunay-50, delaunay-20-80, random-graphs, random-graphs-large
- TokenGT: ba-equivariant-basis-dense, ba-equivariant-basis-sparse
- Polynormer: er-scaling-N
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gt_bench.data.packed_writer import PackedWriter, pack, pack_graph
from gt_bench.data.readers import both_directions, concatenate_edges, consecutive_split
from gt_bench.data.spec import DatasetSpec, node_classification, published

BLOCK = 1000
NO_EDGES = np.zeros((2, 0), np.uint8)


def prepare_delaunay(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Draw points in the unit square; targets are the edges of their Delaunay triangulation, in both directions."""
    from scipy.spatial import Delaunay

    a = spec.arguments
    rng = np.random.default_rng(a["seed"])
    counts = (a["train"], a["val"], a["test"])
    with PackedWriter(folder) as writer:
        for start in range(0, sum(counts), BLOCK):
            sizes = rng.integers(a["min_points"], a["max_points"] + 1, min(BLOCK, sum(counts) - start))
            points = [rng.random((n, 2)).astype(np.float32) for n in sizes]
            corners = [Delaunay(p).simplices for p in points]
            pairs = [
                both_directions(np.concatenate([c[:, [0, 1]], c[:, [1, 2]], c[:, [2, 0]]]).T, n)
                for c, n in zip(corners, sizes)
            ]
            writer.graphs(
                num_nodes=sizes,
                num_edges=np.zeros_like(sizes),
                edge_index=NO_EDGES,
                x=np.concatenate(points),
                num_pairs=[p.shape[1] for p in pairs],
                pair_index=np.concatenate(pairs, axis=1).astype(np.uint8),
            )
        writer.append("split", consecutive_split(*counts))
        writer.finish(spec.header(in_dim=2, out_dim=1))


def prepare_basis(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Draw Barabasi-Albert graphs with TokenGT's generator, one split per seed."""
    a = spec.arguments
    count = sum(a["counts"])
    drawn = [_basis_parameters(seed, count, a["min_nodes"], a["max_nodes"]) for seed in a["seeds"]]
    sizes, attached, graph_seeds = (np.concatenate(column) for column in zip(*drawn))
    edges = [reseeded_barabasi_albert(*graph) for graph in zip(sizes, attached, graph_seeds)]
    parts = np.zeros((len(a["seeds"]), len(a["seeds"]), count), np.int64)  # [split, seed of the graphs, graph]
    parts[range(len(parts)), range(len(parts))] = np.repeat([1, 2, 3], a["counts"])
    pack(
        folder,
        spec.header(in_dim=[1], out_dim=15, num_splits=len(parts)),
        {
            "num_nodes": sizes,
            "x": np.zeros((sizes.sum(), 1), np.uint8),
            "split": parts.reshape(len(parts), -1),
            **concatenate_edges(edges),
        },
    )


def _basis_parameters(seed: int, count: int, low: int, high: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw number of nodes, ends per new node and seed of each graph, each [count], from three streams of one seed."""
    sizes = np.random.RandomState(seed).randint(low, high + 1, count)
    attached = np.random.RandomState(seed).randint(2, 4, count)
    return sizes, attached, np.random.RandomState(seed).randint(0, 10000, 3 * count)[::3]


def reseeded_barabasi_albert(nodes: int, attached: int, seed: int) -> np.ndarray:
    """Draw a graph with TokenGT's generator.

    The first `attached` nodes are joined to a permutation of themselves. Each later node draws `attached` ends, with
    replacement, from all ends so far and its own. The random stream restarts from `seed` at each draw: otherwise the
    paper's mean of 47.8 edges is not obtained.

    Args:
        nodes: number of nodes.
        attached: ends per new node.
        seed: seed of the stream.

    Returns:
        Edges [2, E] in both directions.
    """
    stream = np.random.RandomState(seed)
    beginning = stream.get_state()
    source, target = np.arange(attached), stream.permutation(attached)
    for node in range(attached, nodes):
        stream.set_state(beginning)
        source = np.concatenate([source, np.full(attached, node)])
        target = np.concatenate([target, stream.choice(np.concatenate([source, target]), attached)])
    return both_directions(np.stack([source, target]), nodes)


def prepare_er(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Draw one Erdos-Renyi graph with 2.5 n distinct pairs, both directions, and random features and classes."""
    a, rng = spec.arguments, np.random.default_rng(spec.arguments["seed"])
    n, wanted = a["nodes"], a["nodes"] * a["mean_degree"] // 2
    drawn = rng.integers(0, n, (2, wanted + wanted // 10))
    drawn = drawn[:, drawn[0] != drawn[1]]
    # deviates: a fixed number of edges instead of a probability, so that the mean degree is exact
    _, first = np.unique(drawn.min(0) * n + drawn.max(0), return_index=True)
    edges = both_directions(drawn[:, np.sort(first)[:wanted]], n)
    pack_graph(
        folder,
        spec.header(in_dim=a["features"], out_dim=a["classes"]),
        x=rng.standard_normal((n, a["features"]), np.float32),
        edge_index=edges,
        y=rng.integers(0, a["classes"], n),
        split=rng.permuted(consecutive_split(n // 2, n // 4, n - n // 2 - n // 4)[0])[None],
    )


def prepare_random_graphs(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Draw the graphs of HOT's runtime study: Barabasi-Albert graphs with 16 normal numbers per node and per edge."""
    a = spec.arguments
    with PackedWriter(folder) as writer:
        for size in a["sizes"]:
            for seed in range(a["graphs"]):
                rng = np.random.default_rng([seed, size])
                edges = barabasi_albert(size, a["attached"], rng)
                writer.graphs(
                    num_nodes=[size],
                    num_edges=[edges.shape[1]],
                    edge_index=edges.astype(np.int32),
                    x=rng.standard_normal((size, 16), np.float32),
                    edge_attr=rng.standard_normal((edges.shape[1], 16), np.float32),
                    y=np.zeros(1, np.float32),
                )
        writer.finish(spec.header(in_dim=16, edge_dim=16, out_dim=1, num_splits=0))


def barabasi_albert(nodes: int, attached: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a Barabasi-Albert graph: each new node joins `attached` distinct nodes, drawn by degree.

    Args:
        nodes: number of nodes.
        attached: edges per new node.
        rng: source of random numbers.

    Returns:
        Edges [2, E] in both directions, E = 2 attached (nodes - attached).
    """
    ends: list[int] = []
    targets = list(range(attached))
    edges = []
    for node in range(attached, nodes):
        edges += [(node, t) for t in targets]
        ends += [*targets, *[node] * attached]
        chosen: dict[int, None] = {}
        while len(chosen) < attached:
            chosen |= dict.fromkeys(ends[i] for i in rng.integers(0, len(ends), attached - len(chosen)))
        targets = list(chosen)
    return both_directions(np.array(edges).T, nodes)


def _delaunay(name: str, low: int, high: int) -> DatasetSpec:
    return published(
        name,
        "set-to-graph",
        "f1",
        prepare_delaunay,
        also=("accuracy", "precision", "recall"),
        level="pair",
        # unstated: the 5,000 validation sets. HOT evaluates every epoch on its test sets
        arguments={"seed": 0, "min_points": low, "max_points": high, "train": 50000, "val": 5000, "test": 5000},
    )


def _basis(name: str, high: int) -> DatasetSpec:
    return published(
        name,
        "basis-approximation",
        "squared-error",
        prepare_basis,
        level="attention",
        # unstated: the number of seeds. The paper's ± fits runs on different graphs; 12 is the default of its code
        arguments={"seeds": [12, 13, 14, 15, 16], "min_nodes": 10, "max_nodes": high, "counts": [1024, 128, 128]},
    )


def _er(nodes: int) -> DatasetSpec:
    return node_classification(
        f"er-scaling-{nodes}",
        prepare_er,
        arguments={"seed": 0, "nodes": nodes, "mean_degree": 5, "features": 100, "classes": 10},
    )


def _random_graphs(name: str, sizes: list[int]) -> DatasetSpec:
    return published(
        name, "graph-regression", "mae", prepare_random_graphs, arguments={"graphs": 10, "attached": 5, "sizes": sizes}
    )


DATASETS = [
    _delaunay("delaunay-50", 50, 50),
    _delaunay("delaunay-20-80", 20, 80),
    # the paper states means of 14.9 nodes and 47.8 edges: those of seed 12 (19,082 and 61,204 in total; see the tests)
    _basis("ba-equivariant-basis-sparse", 20),
    _basis("ba-equivariant-basis-dense", 15),
    *(_er(nodes) for nodes in (1000, 10000, 50000, 100000, 200000)),
    _random_graphs(
        "random-graphs",
        [6, 9, 12, 18, 25, 36, 51, 72, 102, 144, 204, 289, 409, 579, 819, 1158, 1638, 2317, 3276, 4634, 6553],
    ),
    _random_graphs("random-graphs-large", [9268, 13107, 18536, 26214, 37072, 52428]),
]
