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
from gt_bench.data.spec import DatasetSpec, files, published
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
        content = read_member(archive, member, UnpackLimits(total=16 << 30, ratio=1000))
        chosen = np.concatenate(read_index_lines(index))
        with dataset_errors(archive, "not a molecule", place=member):
            molecules = load_pickle(content)
            if (
                not isinstance(molecules, list)
                or len(chosen) != len(np.unique(chosen))
                or chosen.min() < 0
                or chosen.max() >= len(molecules)
            ):
                raise DatasetError(f"not a list of molecules that matches {index.name}")
            graphs += [_molecule(molecules[i]) for i in chosen]
        counts.append(len(chosen))
    arrays = concatenate_graphs(graphs) | {"num_nodes": np.array([len(graph["x"]) for graph in graphs])}
    header = spec.header(in_dim=ZINC_ATOMS, edge_dim=[4], out_dim=1)
    pack(folder, header, arrays | {"split": consecutive_split(*counts)})


def _molecule(molecule: Any) -> dict[str, np.ndarray]:
    atoms, bonds = np.asarray(molecule["atom_type"]), np.asarray(molecule["bond_type"])
    y = np.asarray(molecule["logP_SA_cycle_normalized"], np.float32).reshape(1)
    if atoms.ndim != 1 or bonds.shape != (len(atoms), len(atoms)):
        raise DatasetError(f"a molecule of {atoms.shape} atoms has a table of {bonds.shape} bonds")
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


DATASETS = [
    published(
        "zinc",
        "graph-regression",
        "mae",
        prepare_zinc,
        files=files("zinc12k/molecules.zip", "zinc12k/train.index", "zinc12k/val.index", "zinc12k/test.index"),
    ),
    published(
        "zinc-reconstructed",
        "graph-regression",
        "mae",
        prepare_reconstructed,
        files=files("zinc12k/zinc12k_train_reconstructed.npz", "zinc12k/zinc12k_val.npz", "zinc12k/zinc12k_test.npz"),
    ),
    published(
        "peptides-func",
        "graph-multilabel",
        "ap",
        prepare_ogb,
        files=files("peptides_func/peptides_func_ogb_graphs.npz"),
        arguments={"split": "given"},
    ),
    published(
        "pcqm4mv2-2k",
        "graph-regression",
        "mae",
        prepare_ogb,
        files=files("pcqm4mv2_small/pcqm4mv2-2k_ogb_graphs.npz"),
        arguments={"split": "drawn", "seed": 0},
    ),
    published(
        "qm9-1k",
        "graph-regression",
        "mae",
        prepare_ogb,
        files=files("qm9_small/micro_qm9_ogb_graphs.npz"),
        arguments={"split": "drawn", "seed": 0, "standardise": True},
    ),
]
