"""Molecules: published totals, ogb's feature sizes, and bonds in both directions."""

import numpy as np
import pytest
import torch

from gt_bench.data.families.molecules import OGB_ATOM, OGB_BOND
from tests.gt_bench.data.checks import prepared


def test_feature_sizes_are_those_of_ogb():
    from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

    assert get_atom_feature_dims() == OGB_ATOM
    assert get_bond_feature_dims() == OGB_BOND


def test_zinc_reconstructed(tmp_path, mirror):
    dataset = prepared("zinc-reconstructed", tmp_path, mirror)
    assert "reconstructed train" in dataset.header.derived
    first = dataset.batch(torch.tensor([0]))
    assert (first.num_nodes, first.num_edges) == (29, 64)  # the first official training graph
    assert first.y.item() == pytest.approx(0.83504, abs=1e-5)
    with np.load(mirror / "zinc12k/zinc12k_test.npz") as raw:
        last = dataset.batch(dataset.split("test", 0))
        np.testing.assert_array_equal(last.y, raw["y"])
        np.testing.assert_array_equal(last.x[:, 0], raw["x"])
        np.testing.assert_array_equal(last.edge_attr[:, 0], raw["edge_attr"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pcqm4mv2-2k", "qm9-1k", "peptides-func"])
def test_ogb_molecules(name, tmp_path, mirror):
    dataset = prepared(name, tmp_path, mirror)
    file = {
        "pcqm4mv2-2k": "pcqm4mv2_small/pcqm4mv2-2k",
        "qm9-1k": "qm9_small/micro_qm9",
        "peptides-func": "peptides_func/peptides_func",
    }
    with np.load(mirror / f"{file[name]}_ogb_graphs.npz", allow_pickle=False) as raw:
        at = 37
        node, bond = raw["num_nodes"][:at].sum(), raw["num_bonds"][:at].sum()
        bonds = raw["bonds"][bond : bond + raw["num_bonds"][at]].tolist()
        kinds = raw["bond_attr"][bond : bond + raw["num_bonds"][at]].tolist()
        one = dataset.batch(torch.tensor([at]))
        np.testing.assert_array_equal(one.x, raw["x"][node : node + raw["num_nodes"][at]])
        both = {(a, b, *k) for (a, b), k in zip(bonds, kinds)} | {(b, a, *k) for (a, b), k in zip(bonds, kinds)}
        have = {(*e, *k) for e, k in zip(one.edge_index.T.tolist(), one.edge_attr.tolist())}
        assert have == both
        y = raw["y"].astype(np.float32)
    if name == "qm9-1k":
        train = dataset.split("train", 0)
        np.testing.assert_allclose(dataset.array("y")[train].mean(0), 0, atol=1e-3)
        np.testing.assert_allclose(dataset.array("y")[train].std(0, unbiased=False), 1, atol=1e-3)
    else:
        np.testing.assert_array_equal(dataset.array("y"), y)
