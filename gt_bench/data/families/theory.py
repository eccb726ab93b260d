"""Generated datasets for which theory states what a model can reach. They have the same bytes on every machine.

skip-circles, rook-shrikhande, torus-colours, ring-molecules, basis-small. What is expected of which model, and why, is
in suites/embedded/theory.yaml.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gt_bench.data.families.generated import prepare_basis
from gt_bench.data.packed_writer import pack, pack_graph
from gt_bench.data.readers import both_directions, concatenate_edges, consecutive_split
from gt_bench.data.spec import DatasetSpec, node_classification, published

PARTS = ("train", "val", "test")


def prepare_skip_circles(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Make circles of `nodes` nodes with chords of length `skip`, which is the class. Nodes are in random order."""
    a = spec.arguments
    around = np.arange(a["nodes"])
    kinds = [np.stack([np.tile(around, 2), np.concatenate([around + 1, around + s]) % a["nodes"]]) for s in a["skips"]]
    _pack_relabelled(spec, folder, kinds, a["nodes"])


def prepare_rook_shrikhande(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Make copies of the two strongly regular graphs (16, 6, 2, 2): the classes. Nodes are in random order."""
    row, column = np.divmod(np.arange(16), 4)
    down, right = (row[:, None] - row) % 4, (column[:, None] - column) % 4
    rook = (down == 0) != (right == 0)  # same row or same column of a 4 x 4 board
    # Cayley graph of Z_4 x Z_4 with the steps +-(1, 0), +-(0, 1), +-(1, 1)
    shrikhande = sum((down == d) & (right == r) for d, r in ((1, 0), (3, 0), (0, 1), (0, 3), (1, 1), (3, 3))) > 0
    _pack_relabelled(spec, folder, [np.stack(np.triu(graph).nonzero()) for graph in (rook, shrikhande)], 16)


def _pack_relabelled(spec: DatasetSpec, folder: Path, kinds: list[np.ndarray], nodes: int) -> None:
    """Pack `train`, `val` and `test` relabelled copies of each graph in `kinds` [2, E]. Its index is the class."""
    a, rng = spec.arguments, np.random.default_rng(spec.arguments["seed"])
    y = np.concatenate([np.arange(len(kinds)).repeat(a[part]) for part in PARTS])
    edges = [both_directions(rng.permutation(nodes)[kinds[kind]], nodes) for kind in y]
    pack(
        folder,
        spec.header(in_dim=[1], out_dim=len(kinds)),
        {
            "num_nodes": np.full(len(y), nodes),
            "x": np.zeros((len(y) * nodes, 1), np.uint8),
            "y": y,
            "split": consecutive_split(*(a[part] * len(kinds) for part in PARTS)),
            **concatenate_edges(edges),
        },
    )


def prepare_torus_colours(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Make a square grid on a torus, coloured such that a node and its four neighbours have five different colours.

    The class is the colour; features are its one-hot vector plus independent normal noise.
    """
    a, rng = spec.arguments, np.random.default_rng(spec.arguments["seed"])
    side = a["side"]  # a multiple of 5
    row, column = np.divmod(np.arange(side * side), side)
    y = (row + 2 * column) % 5
    ends = [(row + 1) % side * side + column, row * side + (column + 1) % side]
    n = side * side
    edges = both_directions(np.stack([np.tile(np.arange(n), 2), np.concatenate(ends)]), n)
    parts = consecutive_split(n // 2, n // 4, n - n // 2 - n // 4)[0]
    pack_graph(
        folder,
        spec.header(in_dim=5, out_dim=5, num_splits=a["splits"]),
        x=np.eye(5, dtype=np.float32)[y] + np.float32(a["noise"]) * rng.standard_normal((n, 5), np.float32),
        edge_index=edges,
        y=y,
        split=np.stack([rng.permuted(parts) for _ in range(a["splits"])]),
    )


def prepare_ring_molecules(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Draw pairs of molecules with the same atoms, bonds and 1-WL colours.

    The first one consists of two equal rings joined by a bond. In the second one, one bond of each ring is exchanged
    with the other ring, which fuses them. The target is a sum over atoms and bonds, plus `fused` for fused rings.
    """
    a, rng = spec.arguments, np.random.default_rng(spec.arguments["seed"])
    atom_values, bond_values = np.array(a["atoms"]), np.array(a["bonds"])
    xs, edges, kinds, ys = [], [], [], []
    for _ in range(sum(a[part] for part in PARTS) // 2):
        atoms, bonds, kind, exchanged = _half(rng, a)
        n, m = len(atoms), len(bonds)
        joined = np.concatenate([bonds, bonds + n, [[0, n]]])
        fused = joined.copy()
        fused[[exchanged, m + exchanged], 1] = fused[[m + exchanged, exchanged], 1]
        atoms, kind = np.tile(atoms, 2), np.concatenate([kind, kind, [0]])
        for molecule, bonus in ((joined, 0.0), (fused, a["fused"])):
            both = np.concatenate([molecule, molecule[:, ::-1]]).T  # [2, E]
            order = np.lexsort(both[::-1])
            xs.append(atoms)
            edges.append(both[:, order])
            kinds.append(np.tile(kind, 2)[order])
            ys.append(atom_values[atoms].sum() + bond_values[kind].sum() + bonus)
    pack(
        folder,
        spec.header(in_dim=[len(atom_values)], edge_dim=[len(bond_values)], out_dim=1),
        {
            "num_nodes": [len(x) for x in xs],
            "x": np.concatenate(xs)[:, None],
            "edge_attr": np.concatenate(kinds)[:, None],
            "y": np.array(ys, np.float32),
            "split": consecutive_split(*(a[part] for part in PARTS)),
            **concatenate_edges(edges),
        },
    )


def _half(rng: np.random.Generator, a: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Draw half a molecule: a ring, and single atoms bound to atoms with a free valence (four valences per atom).

    Atom 0 of the ring is bound to the other half.

    Returns:
        Types of atoms [n], bonds [m, 2], types of bonds [m], and the index of the ring bond that is exchanged.
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


DATASETS = [
    published(
        "skip-circles",
        "graph-classification",
        "accuracy",
        prepare_skip_circles,
        # the skips 6, 7 and 8 give graphs isomorphic to these
        arguments={"seed": 0, "nodes": 17, "skips": [2, 3, 4, 5], "train": 10, "val": 5, "test": 10},
    ),
    published(
        "rook-shrikhande",
        "graph-classification",
        "accuracy",
        prepare_rook_shrikhande,
        arguments={"seed": 0, "train": 20, "val": 10, "test": 20},
    ),
    node_classification(
        "torus-colours", prepare_torus_colours, arguments={"seed": 0, "side": 70, "noise": 0.7, "splits": 5}
    ),
    published(
        "ring-molecules",
        "graph-regression",
        "mae",
        prepare_ring_molecules,
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
    ),
    published(
        "basis-small",
        "basis-approximation",
        "squared-error",
        prepare_basis,
        level="attention",
        arguments={"seeds": [12, 13, 14], "min_nodes": 6, "max_nodes": 10, "counts": [128, 32, 32]},
    ),
]
