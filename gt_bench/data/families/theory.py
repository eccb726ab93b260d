"""Generated so that theory says what a model can reach on them: skip-circles, rook-shrikhande, torus-colours, ring-molecules, basis-small.

The same bytes on every machine. What is expected of whom, and why, is in suites/embedded/theory.yaml.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gt_bench.data.families.generated import prepare_basis
from gt_bench.data.packed import pack
from gt_bench.data.readers import both_directions
from gt_bench.data.spec import DatasetSpec

PARTS = ("train", "val", "test")


def prepare_skip_circles(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Circles of `nodes` nodes with chords to the node `skip` places on; the class is the skip. Every graph has its nodes in an order of its own."""
    a = spec.arguments
    around = np.arange(a["nodes"])
    kinds = [np.stack([np.tile(around, 2), np.concatenate([around + 1, around + s]) % a["nodes"]]) for s in a["skips"]]
    _pack_relabelled(spec, folder, kinds, a["nodes"])


def prepare_rook_shrikhande(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """The two strongly regular graphs with parameters (16, 6, 2, 2), nodes in an order of each graph's own; the class is which of them."""
    row, column = np.divmod(np.arange(16), 4)
    down, right = (row[:, None] - row) % 4, (column[:, None] - column) % 4
    rook = (down == 0) != (right == 0)  # same row or same column of a 4 x 4 board
    # Cayley graph of Z_4 x Z_4 with the steps +-(1, 0), +-(0, 1), +-(1, 1)
    shrikhande = sum((down == d) & (right == r) for d, r in ((1, 0), (3, 0), (0, 1), (0, 3), (1, 1), (3, 3))) > 0
    _pack_relabelled(spec, folder, [np.stack(np.triu(graph).nonzero()) for graph in (rook, shrikhande)], 16)


def _pack_relabelled(spec: DatasetSpec, folder: Path, kinds: list[np.ndarray], nodes: int) -> None:
    """`train`, `val` and `test` relabelled copies of each of `kinds` (edges [2, E], one direction); the class is the kind."""
    a, rng = spec.arguments, np.random.default_rng(spec.arguments["seed"])
    y = np.concatenate([np.arange(len(kinds)).repeat(a[part]) for part in PARTS])
    edges = [both_directions(rng.permutation(nodes)[kinds[kind]], nodes) for kind in y]
    pack(
        folder,
        spec.header(in_dim=[1], out_dim=len(kinds)),
        {
            "num_nodes": np.full(len(y), nodes),
            "num_edges": [e.shape[1] for e in edges],
            "x": np.zeros((len(y) * nodes, 1), np.uint8),
            "edge_index": np.concatenate(edges, axis=1),
            "y": y,
            "split": np.repeat([1, 2, 3], [a[part] * len(kinds) for part in PARTS])[None],
        },
    )


def prepare_torus_colours(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """A square grid that closes on itself, coloured so that a node and its four neighbours have the five colours once each; features are the
    colour as a unit vector and independent normal noise."""
    a, rng = spec.arguments, np.random.default_rng(spec.arguments["seed"])
    side = a["side"]  # a multiple of 5
    row, column = np.divmod(np.arange(side * side), side)
    y = (row + 2 * column) % 5
    ends = [(row + 1) % side * side + column, row * side + (column + 1) % side]
    n = side * side
    edges = both_directions(np.stack([np.tile(np.arange(n), 2), np.concatenate(ends)]), n)
    parts = np.repeat([1, 2, 3], [n // 2, n // 4, n - n // 2 - n // 4])
    pack(
        folder,
        spec.header(in_dim=5, out_dim=5, num_splits=a["splits"]),
        {
            "num_nodes": [n],
            "num_edges": [edges.shape[1]],
            "x": np.eye(5, dtype=np.float32)[y] + np.float32(a["noise"]) * rng.standard_normal((n, 5), np.float32),
            "edge_index": edges,
            "y": y,
            "split": np.stack([rng.permuted(parts) for _ in range(a["splits"])]),
        },
    )


def prepare_ring_molecules(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pairs of molecules with the same atoms and bonds and the same colours of 1-WL: two equal rings joined by a bond, and the same rings with
    one bond of each crossed over to the other, which fuses them. Target: a sum over atoms and bonds, and `fused` more where the rings are
    fused."""
    a, rng = spec.arguments, np.random.default_rng(spec.arguments["seed"])
    atom_values, bond_values = np.array(a["atoms"]), np.array(a["bonds"])
    sizes, xs, edges, kinds, ys = [], [], [], [], []
    for _ in range(sum(a[part] for part in PARTS) // 2):
        atoms, bonds, kind, crossed = _half(rng, a)
        n, m = len(atoms), len(bonds)
        joined = np.concatenate([bonds, bonds + n, [[0, n]]])
        fused = joined.copy()
        fused[[crossed, m + crossed], 1] = fused[[m + crossed, crossed], 1]
        atoms, kind = np.tile(atoms, 2), np.concatenate([kind, kind, [0]])
        for molecule, bonus in ((joined, 0.0), (fused, a["fused"])):
            both = np.concatenate([molecule, molecule[:, ::-1]]).T  # [2, E]
            order = np.lexsort(both[::-1])
            sizes.append(2 * n)
            xs.append(atoms)
            edges.append(both[:, order])
            kinds.append(np.tile(kind, 2)[order])
            ys.append(atom_values[atoms].sum() + bond_values[kind].sum() + bonus)
    pack(
        folder,
        spec.header(in_dim=[len(atom_values)], edge_dim=[len(bond_values)], out_dim=1),
        {
            "num_nodes": sizes,
            "num_edges": [e.shape[1] for e in edges],
            "x": np.concatenate(xs)[:, None],
            "edge_index": np.concatenate(edges, axis=1),
            "edge_attr": np.concatenate(kinds)[:, None],
            "y": np.array(ys, np.float32),
            "split": np.repeat([1, 2, 3], [a[part] for part in PARTS])[None],
        },
    )


def _half(rng: np.random.Generator, a: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Half a molecule: kinds of its atoms [n], its bonds [m, 2] with their kinds [m], and which bond of the ring is crossed over.

    A ring, whose atom 0 is bound to the other half, and single atoms bound to whatever has a valence free (four each).
    """
    ring = rng.integers(a["ring"][0], a["ring"][1] + 1)
    bonds = [(i, (i + 1) % ring) for i in range(ring)]
    free = [4 - 2 - (i == 0) for i in range(ring)]
    for atom in range(ring, ring + rng.integers(a["further"] + 1)):
        place = int(rng.choice(np.flatnonzero(free)))
        free[place] -= 1
        free.append(3)
        bonds.append((place, atom))
    return rng.choice(len(a["atoms"]), len(free)), np.array(bonds), rng.choice(len(a["bonds"]), len(bonds)), ring // 2


_COUNTED = "how many graphs and which split are chosen here"

DATASETS = [
    DatasetSpec(
        name="skip-circles",
        family="theory",
        task="graph-classification",
        metric="accuracy",
        prepare=prepare_skip_circles,
        # the skips 6, 7 and 8 give graphs of the same four kinds over again
        arguments={"seed": 0, "nodes": 17, "skips": [2, 3, 4, 5], "train": 10, "val": 5, "test": 10},
        expected={
            "graphs": 100,
            "nodes": 1700,
            "edges": 100 * 68,
            "label_counts": [25] * 4,
            "symmetric": True,
            "self_loops": 0,
        },
        licence="generated here",
        citation="Murphy et al., Relational Pooling for Graph Representations, ICML 2019 (CSL, on 41 nodes)",
        notes=(
            "as CSL with 17 nodes for 41: the four kinds of graphs, each in 25 orders of its nodes drawn here; "
            + _COUNTED,
        ),
    ),
    DatasetSpec(
        name="rook-shrikhande",
        family="theory",
        task="graph-classification",
        metric="accuracy",
        prepare=prepare_rook_shrikhande,
        arguments={"seed": 0, "train": 20, "val": 10, "test": 20},
        expected={
            "graphs": 100,
            "nodes": 1600,
            "edges": 100 * 96,
            "label_counts": [50, 50],
            "symmetric": True,
            "self_loops": 0,
        },
        licence="generated here",
        citation="the rook's graph 4 x 4 and the Shrikhande graph, the two strongly regular graphs with parameters (16, 6, 2, 2)",
        notes=("two graphs, each in fifty orders of its nodes drawn here; " + _COUNTED,),
    ),
    DatasetSpec(
        name="torus-colours",
        family="theory",
        task="node-classification",
        metric="accuracy",
        level="node",
        split_kind="node",
        prepare=prepare_torus_colours,
        arguments={"seed": 0, "side": 70, "noise": 0.7, "splits": 5},
        expected={
            "nodes": 4900,
            "edges": 4 * 4900,
            "features": 5,
            "splits": 5,
            "symmetric": True,
            "self_loops": 0,
            "classes": 5,
        },
        licence="generated here",
        citation="made for this benchmark (a perfect colouring of the torus by x + 2 y mod 5)",
        notes=("no edge joins two nodes of a class: heterophily of 1; graph, features and splits are chosen here",),
    ),
    DatasetSpec(
        name="ring-molecules",
        family="theory",
        task="graph-regression",
        metric="mae",
        prepare=prepare_ring_molecules,
        arguments={
            "seed": 0,
            "ring": [3, 4],
            "further": 3,
            "atoms": [0.1, -0.3, -0.4, 0.2],
            "bonds": [0.0, 0.2],
            "fused": 1.0,
            "train": 400,
            "val": 100,
            "test": 100,
        },
        expected={"graphs": 600, "symmetric": True, "self_loops": 0, "train": 400, "val": 100, "test": 100},
        licence="generated here",
        citation="made for this benchmark (after decalin and bicyclopentyl, which 1-WL does not tell apart)",
        notes=(
            "molecule-like graphs and a target made up here: no chemistry is claimed; both graphs of a pair are in one part",
        ),
    ),
    DatasetSpec(
        name="basis-small",
        family="theory",
        task="basis-approximation",
        metric="squared-error",
        level="attention",
        prepare=prepare_basis,
        arguments={"seeds": [12, 13, 14], "min_nodes": 6, "max_nodes": 10, "counts": [128, 32, 32]},
        expected={"graphs": 576, "symmetric": True, "self_loops": 0, "splits": 3, "train": 128, "val": 32, "test": 32},
        licence="generated here",
        citation="Kim et al., Pure Transformers are Powerful Graph Learners, NeurIPS 2022",
        notes=(
            "TokenGT's generator with fewer and smaller graphs: not comparable with its Table 1; split s holds the graphs of seed 12 + s",
        ),
    ),
]
