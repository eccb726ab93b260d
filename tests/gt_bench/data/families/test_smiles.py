"""SMILES datasets: real molecules in the official formats, with the stored answers of RDKit."""

import csv
import gzip
import io
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from gt_bench.data.families import smiles
from gt_bench.data.registry import get_spec
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import made
from tests.gt_bench.data.raw_files import InlinePool
from tests.refusals import refused

COUNT = 60


@pytest.fixture
def molecules(mirror):
    """The first molecules of the PCQM4Mv2 subset: SMILES, gap, and their graphs from RDKit."""
    with open(mirror / "pcqm4mv2_small/pcqm4mv2-2k.csv", newline="") as file:
        rows = [row for row, _ in zip(csv.DictReader(file), range(COUNT))]
    with np.load(mirror / "pcqm4mv2_small/pcqm4mv2-2k_ogb_graphs.npz") as raw:
        graphs, node, bond = {}, 0, 0
        for index, row in enumerate(rows):
            n, b = int(raw["num_nodes"][index]), int(raw["num_bonds"][index])
            bonds = raw["bonds"][bond : bond + b].astype(np.int64)
            graphs[row["smiles"]] = {
                "num_nodes": n,
                "node_feat": raw["x"][node : node + n].astype(np.int64),
                "edge_index": np.stack([bonds, bonds[:, ::-1]], 1).reshape(-1, 2).T,
                "edge_feat": np.repeat(raw["bond_attr"][bond : bond + b], 2, axis=0).astype(np.int64),
            }
            node, bond = node + n, bond + b
    return [(row["smiles"], float(row["homo"])) for row in rows], graphs


@pytest.fixture
def without_rdkit(molecules, monkeypatch):
    """Replace RDKit by its stored graphs, and the worker pool by this process."""
    import ogb.utils

    def convert(text):
        if text not in molecules[1]:
            raise AttributeError("None")
        return molecules[1][text]

    monkeypatch.setattr(ogb.utils, "smiles2graph", convert, raising=False)
    monkeypatch.setattr(smiles.multiprocessing, "get_context", lambda method: type("Context", (), {"Pool": InlinePool}))
    monkeypatch.setattr(smiles, "BLOCK", 7)


def pcqm_zip(path, rows, folder):
    """ogb's layout: quoted SMILES, an empty gap in the hidden test parts, a torch file of arrays as split."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["idx", "smiles", "homolumogap"])
    writer.writerows([i, s, gap if i < 50 else ""] for i, (s, gap) in enumerate(rows))
    split = io.BytesIO()
    torch.save(
        {
            "train": np.arange(40),
            "valid": np.arange(40, 50),
            "test-dev": np.arange(50, 55),
            "test-challenge": np.arange(55, 60),
            "none": np.arange(0),
        },
        split,
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{folder}/raw/data.csv.gz", gzip.compress(text.getvalue().encode()))
        archive.writestr(f"{folder}/split_dict.pt", split.getvalue())


@pytest.mark.parametrize("name", ["pcqm4mv2", "pcqm4m-lsc"])
def test_pcqm(name, tmp_path, molecules, without_rdkit):
    rows, graphs = molecules
    spec = get_spec(name)
    spec = replace(spec, arguments=dict(spec.arguments) | {"validation": 8})
    pcqm_zip(tmp_path / "a.zip", rows, spec.arguments["folder"])
    dataset = made(spec, tmp_path / "out", tmp_path / "a.zip")
    assert [dataset.split(part, 0).numel() for part in ("train", "val", "test")] == [32, 8, 10]
    assert dataset.split("val", 0).tolist() == sorted(np.random.default_rng(42).permutation(40)[:8].tolist())
    assert dataset.split("test", 0).tolist() == list(range(40, 50))
    assert dataset.header.statistics["missing_targets"] == 10
    for index in (0, 23, 59):
        batch, graph = dataset.batch(torch.tensor([index])), graphs[rows[index][0]]
        np.testing.assert_array_equal(batch.x, graph["node_feat"])
        np.testing.assert_array_equal(batch.edge_index, graph["edge_index"])
        np.testing.assert_array_equal(batch.edge_attr, graph["edge_feat"])
    assert dataset.batch(torch.tensor([5])).y.item() == pytest.approx(rows[5][1], abs=1e-5)

    pcqm_zip(tmp_path / "a.zip", [("no molecule", 1.0), *rows[1:]], spec.arguments["folder"])
    with refused(DatasetError, value="no molecule"):
        made(spec, tmp_path / "out2", tmp_path / "a.zip")
    assert not (tmp_path / "out2").exists()


def test_rdkit_itself_gives_the_stored_graphs(molecules):
    pytest.importorskip("rdkit", reason="rdkit is an extra of SMILES datasets; its stored answers are tested above")
    rows, graphs = molecules
    arrays = smiles.convert_block([(s, [gap]) for s, gap in rows])
    np.testing.assert_array_equal(arrays["x"], np.concatenate([graphs[s]["node_feat"] for s, _ in rows]))
    np.testing.assert_array_equal(
        arrays["edge_index"], np.concatenate([graphs[s]["edge_index"] for s, _ in rows], axis=1)
    )
    np.testing.assert_array_equal(arrays["edge_attr"], np.concatenate([graphs[s]["edge_feat"] for s, _ in rows]))
