"""Molecules: zinc, zinc-reconstructed, peptides-func, and small real parts of PCQM4Mv2 and QM9."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gt_bench.data.archives import UnpackLimits, read_member
from gt_bench.data.packed_writer import pack
from gt_bench.data.readers import (
    concatenate_graphs,
    consecutive_split,
    dataset_errors,
    ids_to_split,
    read_index_lines,
    read_npz,
)
from gt_bench.data.safe_pickle import load_pickle
from gt_bench.data.spec import DatasetSpec, files
from gt_bench.utils.errors import DatasetError

# vocabulary sizes of ogb's atom and bond features (ogb.utils.features)
OGB_ATOM = [119, 5, 12, 12, 10, 6, 6, 2, 2]
OGB_BOND = [5, 6, 2]
# unstated: 21 atom types: those that occur, as in the configurations of PPGT and GRIT. The original dictionary has 28
ZINC_ATOMS = [21]
ZINC_KEYS = ("x", "edge_index", "edge_attr", "y", "num_nodes", "num_edges")
OGB_KEYS = ("x", "bonds", "bond_attr", "num_nodes", "num_bonds", "y")


def prepare_zinc(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack the official archive: a pickled list of molecules per part, of which the index files select 12,000.

    A molecule is {"atom_type": [n], "bond_type": [n, n] (0: no bond), "logP_SA_cycle_normalized": one number, ...}.

    Raises:
        DatasetError: a file is damaged or has another form.
    """
    archive, *index_files = (paths[entry.path] for entry in spec.files)
    graphs, counts = [], []
    for part, index in zip(("train", "val", "test"), index_files, strict=True):
        member = f"molecules/{part}.pickle"
        molecules = load_pickle(
            read_member(archive, member, UnpackLimits(total=16 << 30, ratio=1000)), f"{archive}, {member}"
        )
        chosen = np.concatenate(read_index_lines(index))
        if (
            not isinstance(molecules, list)
            or len(chosen) != len(np.unique(chosen))
            or chosen.min() < 0
            or chosen.max() >= len(molecules)
        ):
            raise DatasetError(f"{archive}: {member} is not a list of molecules that matches {index.name}")
        graphs += [_molecule(molecules[i], f"{archive}, {member}") for i in chosen]
        counts.append(len(chosen))
    arrays = concatenate_graphs(graphs) | {"num_nodes": np.array([len(graph["x"]) for graph in graphs])}
    header = spec.header(in_dim=ZINC_ATOMS, edge_dim=[4], out_dim=1)
    pack(folder, header, arrays | {"split": consecutive_split(*counts)})


def _molecule(molecule: Any, where: str) -> dict[str, np.ndarray]:
    with dataset_errors(where, "not a molecule"):
        atoms, bonds = np.asarray(molecule["atom_type"]), np.asarray(molecule["bond_type"])
        y = np.asarray(molecule["logP_SA_cycle_normalized"], np.float32).reshape(1)
    if atoms.ndim != 1 or bonds.shape != (len(atoms), len(atoms)):
        raise DatasetError(f"{where}: a molecule of {atoms.shape} atoms has a table of {bonds.shape} bonds")
    edges = np.stack(bonds.nonzero())
    return {"x": atoms[:, None], "edge_index": edges, "edge_attr": bonds[edges[0], edges[1]][:, None], "y": y}


def prepare_reconstructed(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack ZINC from three npz files (train, val, test): one category per atom and bond, y is the penalised logP."""
    parts = [read_npz(paths[file.path], ZINC_KEYS) for file in spec.files]
    arrays = concatenate_graphs(parts) | {"num_edges": np.concatenate([part["num_edges"] for part in parts])}
    arrays |= {"x": arrays["x"][:, None], "edge_attr": arrays["edge_attr"][:, None]}
    header = spec.header(in_dim=ZINC_ATOMS, edge_dim=[4], out_dim=1)
    pack(folder, header, arrays | {"split": consecutive_split(*(len(part["y"]) for part in parts))})


def prepare_ogb(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack graphs with ogb's features, whose files have each bond once. The split is in the file, or drawn."""
    path, a = paths[spec.files[0].path], spec.arguments
    given = ("train_idx", "val_idx", "test_idx") if a["split"] == "given" else ()
    data = read_npz(path, (*OGB_KEYS, *given))
    count = len(data["num_nodes"])
    if given:
        split = ids_to_split(count, *(data[key] for key in given))
    else:
        parts = consecutive_split(count - 2 * (count // 10), count // 10, count // 10)[0]
        split = np.random.default_rng(a["seed"]).permuted(parts)
    y = data["y"].astype(np.float32)
    if a.get("standardise"):
        y = (y - y[split == 1].mean(0)) / y[split == 1].std(0)  # statistics of the training part
    source, target = data["bonds"].T
    pack(
        folder,
        spec.header(in_dim=OGB_ATOM, edge_dim=OGB_BOND, out_dim=y.shape[1]),
        {
            "num_nodes": data["num_nodes"],
            "num_edges": 2 * data["num_bonds"].astype(np.int64),
            "x": data["x"],
            # both directions of a bond are consecutive, as in ogb's smiles2graph
            "edge_index": np.stack([np.stack([source, target], 1).ravel(), np.stack([target, source], 1).ravel()]),
            "edge_attr": np.repeat(data["bond_attr"], 2, axis=0),
            "y": y,
            "split": split[None],
        },
    )


_SMALL = "a small real part for tests: its results are not comparable with published ones"
_ZINC_CITATION = "Dwivedi et al., Benchmarking Graph Neural Networks, JMLR 2023; Irwin et al., ZINC, 2012"
# PPGT, Table 6 (23.2 nodes and 24.9 bonds on average). Totals are measured; validation and test on the official graphs
_ZINC = {
    "graphs": 12000,
    "nodes": 277864,
    "edges": 597970,
    "symmetric": True,
    "self_loops": 0,
    "train": 10000,
    "val": 1000,
    "test": 1000,
}
DATASETS = [
    DatasetSpec(
        name="zinc",
        task="graph-regression",
        metric="mae",
        prepare=prepare_zinc,
        files=files("zinc12k/molecules.zip", "zinc12k/train.index", "zinc12k/val.index", "zinc12k/test.index"),
        expected=_ZINC,
        licence="MIT",
        homepage="https://github.com/graphdeeplearning/benchmarking-gnns",
        citation=_ZINC_CITATION,
        notes=("no checksum of the archive is published; use zinc-reconstructed if it is unavailable",),
    ),
    DatasetSpec(
        name="zinc-reconstructed",
        task="graph-regression",
        metric="mae",
        prepare=prepare_reconstructed,
        files=files("zinc12k/zinc12k_train_reconstructed.npz", "zinc12k/zinc12k_val.npz", "zinc12k/zinc12k_test.npz"),
        expected=_ZINC,
        homepage="https://github.com/graphdeeplearning/benchmarking-gnns",
        citation=_ZINC_CITATION,
        derived="ZINC-12k, reconstructed train: official indices applied to the source SMILES. "
        "Validation and test are official",
        notes=("training graphs are isomorphic to the official ones in all checks, with another order of nodes",),
    ),
    DatasetSpec(
        name="peptides-func",
        task="graph-multilabel",
        metric="ap",
        prepare=prepare_ogb,
        files=files("peptides_func/peptides_func_ogb_graphs.npz"),
        arguments={"split": "given"},
        # LRGB's published totals; the split sizes of its official file
        expected={
            "graphs": 15535,
            "nodes": 2344859,
            "edges": 4773974,
            "targets": 10,
            "symmetric": True,
            "train": 10873,
            "val": 2331,
            "test": 2331,
        },
        licence="MIT",
        homepage="https://github.com/vijaydwivedi75/lrgb",
        citation="Dwivedi et al., Long Range Graph Benchmark, NeurIPS 2022",
        derived="graphs built from the official CSV and split with RDKit 2026.09.1 and ogb's features; "
        "totals equal the published ones",
    ),
    DatasetSpec(
        name="pcqm4mv2-2k",
        task="graph-regression",
        metric="mae",
        prepare=prepare_ogb,
        files=files("pcqm4mv2_small/pcqm4mv2-2k_ogb_graphs.npz"),
        arguments={"split": "drawn", "seed": 0},
        expected={"graphs": 1999, "targets": 1, "symmetric": True},
        licence="Apache-2.0",
        homepage="https://ogb.stanford.edu/docs/lsc/pcqm4mv2/",
        citation="Hu et al., OGB-LSC, 2021",
        derived="1,999 real molecules of PCQM4Mv2 in ogb's features by RDKit 2026.09.1",
        notes=(_SMALL, "targets are HOMO-LUMO gaps in eV, although the column of the source is named differently"),
    ),
    DatasetSpec(
        name="qm9-1k",
        task="graph-regression",
        metric="mae",
        prepare=prepare_ogb,
        files=files("qm9_small/micro_qm9_ogb_graphs.npz"),
        arguments={"split": "drawn", "seed": 0, "standardise": True},
        expected={"graphs": 1006, "targets": 12, "symmetric": True},
        licence="Apache-2.0",
        homepage="https://moleculenet.org",
        citation="Ramakrishnan et al., Quantum chemistry structures and properties of 134 kilo molecules, 2014",
        derived="the first 1,006 rows of QM9, heavy atoms only, in ogb's features by RDKit 2026.09.1",
        notes=(_SMALL, "targets are standardised with mean and standard deviation of the training part"),
    ),
]
