"""pcqm4mv2, pcqm4m-lsc, peptides-struct: SMILES converted to graphs by ogb.utils.smiles2graph (RDKit), on all cores.

Only a few blocks of molecules are processed at a time, so that memory does not grow with 3.7 million graphs.
"""

import csv
import gzip
import io
import multiprocessing
import multiprocessing.pool
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np

from gt_bench.data.archives import read_member
from gt_bench.data.families.molecules import OGB_ATOM, OGB_BOND
from gt_bench.data.packed_writer import PackedWriter
from gt_bench.data.readers import dataset_errors, ids_to_split
from gt_bench.data.safe_pickle import load_pickle, load_torch
from gt_bench.data.spec import DatasetSpec, files, published
from gt_bench.runtime.resources import cores
from gt_bench.utils.errors import DatasetError

BLOCK = 2000
Molecules = list[tuple[str, list[float]]]
STRUCT_TARGETS = (
    *(f"Inertia_{kind}_{axis}" for kind in ("mass", "valence") for axis in "abc"),
    *(f"length_{axis}" for axis in "abc"),
    "Spherocity",
    "Plane_best_fit",
)


def prepare_pcqm(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack ogb's zip: data.csv.gz (idx, smiles, homolumogap; the gap of hidden test parts is empty) and split_dict.pt.

    Raises:
        DatasetError: a file is damaged, or a molecule of a split has no gap.
    """
    archive, a = paths[spec.files[0].path], spec.arguments
    ids = load_torch(read_member(archive, f"{a['folder']}/split_dict.pt"), archive)
    with _member_rows(archive, f"{a['folder']}/raw/data.csv.gz") as rows, PackedWriter(folder) as writer:
        molecules = ((row["smiles"], [float(row["homolumogap"] or "nan")]) for row in rows)
        count, gaps = _convert(writer, molecules, archive)
        train, valid = (np.asarray(ids.get(part, []), np.int64) for part in ("train", "valid"))
        # the targets of the test parts are not public. As in PPGT's code, 150,000 training molecules drawn with seed 42
        # are the validation part, and the official validation molecules are the test part
        val = train[np.random.default_rng(42).permutation(len(train))[: a["validation"]]]
        split = ids_to_split(count, np.setdiff1d(train, val), val, valid)
        if np.isnan(gaps[split > 0]).any():
            raise DatasetError("a molecule of the split has no gap", file=archive)
        writer.append("split", split[None])
        writer.finish(spec.header(in_dim=OGB_ATOM, edge_dim=OGB_BOND, out_dim=1))


def prepare_struct(spec: DatasetSpec, paths: Mapping[str, Path], folder: Path) -> None:
    """Pack LRGB's CSV file with the split of peptides-func; targets are standardised over all molecules, as in LRGB."""
    table, splits = (paths[entry.path] for entry in spec.files)
    ids = load_pickle(splits.read_bytes(), splits)
    with _gzip_rows(gzip.open(table, "rb"), table) as rows:
        y = np.array([_targets(row, table) for row in rows])
    mean, deviation = y.mean(0), y.std(0, ddof=1)
    with _gzip_rows(gzip.open(table, "rb"), table) as rows, PackedWriter(folder) as writer:
        molecules = ((row["smiles"], ((np.array(_targets(row, table)) - mean) / deviation).tolist()) for row in rows)
        count, _ = _convert(writer, molecules, table)
        writer.append("split", ids_to_split(count, ids["train"], ids["val"], ids["test"])[None])
        writer.finish(spec.header(in_dim=OGB_ATOM, edge_dim=OGB_BOND, out_dim=len(STRUCT_TARGETS)))


def _convert(writer: PackedWriter, molecules: Iterable[tuple[str, list[float]]], where: Path) -> tuple[int, np.ndarray]:
    """Append all molecules in order. Returns their number and their first targets [count]."""
    first, count = [], 0
    source = iter(molecules)
    blocks = iter(lambda: list(islice(source, BLOCK)), [])
    with multiprocessing.get_context("spawn").Pool(cores()) as pool:
        for arrays in _bounded_map(pool, blocks):
            if isinstance(arrays, str):
                raise DatasetError(f"RDKit cannot read the SMILES {arrays[:80]!r}", file=where, value=arrays)
            writer.graphs(**arrays)
            y = arrays["y"] if arrays["y"].ndim == 1 else arrays["y"][:, 0]
            first.append(y)
            count += len(y)
    return count, np.concatenate(first)


def _bounded_map(pool: multiprocessing.pool.Pool, blocks: Iterator[Molecules]) -> Iterator[dict[str, np.ndarray] | str]:
    """Like pool.imap with at most two unfinished blocks per process (imap reads its whole input at once)."""
    waiting = [pool.apply_async(convert_block, (block,)) for block in islice(blocks, 2 * cores())]
    while waiting:
        yield waiting.pop(0).get()
        waiting += [pool.apply_async(convert_block, (block,)) for block in islice(blocks, 1)]


def convert_block(molecules: Molecules) -> dict[str, np.ndarray] | str:
    """Convert molecules to graphs.

    Args:
        molecules: SMILES and targets.

    Returns:
        Arguments of `PackedWriter.graphs`; or the first invalid SMILES.
    """
    from ogb.utils import smiles2graph

    graphs = []
    for text, _ in molecules:
        try:
            graphs.append(smiles2graph(text))
        except (AttributeError, ValueError, IndexError, RuntimeError):
            return text
    y = np.array([targets for _, targets in molecules], np.float32)
    return {
        "num_nodes": np.array([g["num_nodes"] for g in graphs]),
        "num_edges": np.array([g["edge_index"].shape[1] for g in graphs]),
        "x": np.concatenate([g["node_feat"].reshape(-1, len(OGB_ATOM)) for g in graphs]).astype(np.uint8),
        "edge_index": np.concatenate([g["edge_index"] for g in graphs], axis=1).astype(np.int16),
        "edge_attr": np.concatenate([g["edge_feat"] for g in graphs]).astype(np.uint8),
        "y": y[:, 0] if y.shape[1] == 1 else y,
    }


def _targets(row: Mapping[str, str], where: Path) -> list[float]:
    with dataset_errors(where, "a row has no readable targets"):
        return [float(row[name]) for name in STRUCT_TARGETS]


@contextmanager
def _member_rows(archive: Path, member: str) -> Iterator[Iterator[dict[str, str]]]:
    with (
        dataset_errors(archive, f"no readable {member}", (zipfile.BadZipFile, KeyError)),
        zipfile.ZipFile(archive) as file,
        file.open(member) as packed,
        _gzip_rows(gzip.GzipFile(fileobj=packed), archive) as rows,
    ):
        yield rows


@contextmanager
def _gzip_rows(source: gzip.GzipFile, where: Path) -> Iterator[Iterator[dict[str, str]]]:
    """Iterate over the rows of a gzipped CSV file with a header, line by line."""
    with (
        dataset_errors(where, "not a readable gzipped CSV file", (OSError, EOFError, csv.Error, UnicodeDecodeError)),
        source,
        io.TextIOWrapper(source, "utf-8", newline="") as text,
    ):
        yield _checked(csv.DictReader(text))


def _checked(rows: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
    for row in rows:
        if None in row or None in row.values():
            raise DatasetError("a row has more or fewer cells than the header")
        if "smiles" not in row:
            raise DatasetError("no column named smiles", value="smiles")
        yield row


def _pcqm(name: str, archive: str, folder: str) -> DatasetSpec:
    return published(
        name,
        "graph-regression",
        "mae",
        prepare_pcqm,
        files=files(archive),
        arguments={"folder": folder, "validation": 150_000},
        needs=("rdkit",),
    )


DATASETS = [
    _pcqm("pcqm4mv2", "lsc/pcqm4m-v2.zip", "pcqm4m-v2"),
    _pcqm("pcqm4m-lsc", "lsc/pcqm4m_kddcup2021.zip", "pcqm4m_kddcup2021"),
    published(
        "peptides-struct",
        "graph-regression",
        "mae",
        prepare_struct,
        files=files(
            "peptides_struct/peptide_structure_dataset.csv.gz", "peptides_func/splits_random_stratified_peptide.pickle"
        ),
        needs=("rdkit",),
    ),
]
