"""Molecules: published totals, ogb's feature sizes, and bonds in both directions."""

import numpy as np
import pytest
import torch

from gt_bench.data.families.molecules import OGB_ATOM, OGB_BOND
from gt_bench.data.registry import get_spec
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import made, prepared
from tests.gt_bench.data.raw_files import zinc_files


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


def test_zinc_from_the_official_archive(tmp_path):
    chosen = {"train": [4, 0, 6, 5], "val": [2, 3], "test": [1, 6]}
    written, paths = zinc_files(tmp_path, chosen)
    spec = get_spec("zinc")
    dataset = made(spec, tmp_path / "out", *paths.values())
    assert [dataset.split(part, 0).tolist() for part in ("train", "val", "test")] == [[0, 1, 2, 3], [4, 5], [6, 7]]
    expected = [written[part][i] for part, ids in chosen.items() for i in ids]
    for index, one in enumerate(expected):
        batch = dataset.batch(torch.tensor([index]))
        assert torch.equal(batch.x[:, 0], one["atom_type"])
        assert torch.equal(batch.edge_index, one["bond_type"].nonzero().T)
        assert torch.equal(batch.edge_attr[:, 0], one["bond_type"][tuple(batch.edge_index)])
        assert batch.y.item() == one["logP_SA_cycle_normalized"].item()
    assert (dataset.header.in_dim, dataset.header.edge_dim) == ([21], [4])


class Foreign:
    """A class of another library, as in atom_dict.pickle of the official archive."""


@pytest.mark.parametrize(
    ("edit", "chosen", "message"),
    [
        (lambda m: {"molecules": m}, [0], "not a list of molecules"),
        (lambda m: m, [7], "not a list of molecules that matches train.index"),
        (lambda m: m, [1, 1], "not a list of molecules that matches train.index"),
        (lambda m: [{"atom_type": m[0]["atom_type"]}] * 3, [0], "not a molecule"),
        (lambda m: [m[0] | {"bond_type": torch.zeros(1, 1)}] * 3, [0], "bonds"),
        (lambda m: [Foreign()], [0], "names tests.gt_bench.data.families.test_molecules.Foreign"),
    ],
)
def test_other_contents_of_zinc_are_clean_errors(edit, chosen, message, tmp_path):
    _, paths = zinc_files(tmp_path, {"train": chosen, "val": [0], "test": [0]}, edit)
    spec = get_spec("zinc")
    with pytest.raises(DatasetError, match=message):
        spec.prepare(spec, paths, tmp_path / "out")
    assert not (tmp_path / "out").exists()


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
