"""RDKit gives the stored graphs of real molecules."""

import csv

import numpy as np
import pytest

from gt_bench.data.families import smiles


def test_rdkit_gives_the_stored_graphs(mirror):
    pytest.importorskip("rdkit", reason="rdkit is an extra of SMILES datasets")
    with open(mirror / "pcqm4mv2_small/pcqm4mv2-2k.csv", newline="") as file:
        texts = [row["smiles"] for row, _ in zip(csv.DictReader(file), range(60))]
    found = smiles.convert_block([(text, [0.0]) for text in texts])
    with np.load(mirror / "pcqm4mv2_small/pcqm4mv2-2k_ogb_graphs.npz") as raw:
        nodes, bonds = raw["num_nodes"][:60].sum(), raw["num_bonds"][:60].sum()
        np.testing.assert_array_equal(found["x"], raw["x"][:nodes])
        pairs = raw["bonds"][:bonds].astype(np.int64)
        np.testing.assert_array_equal(found["edge_index"].T, np.stack([pairs, pairs[:, ::-1]], 1).reshape(-1, 2))
        np.testing.assert_array_equal(found["edge_attr"], np.repeat(raw["bond_attr"][:bonds], 2, axis=0))
