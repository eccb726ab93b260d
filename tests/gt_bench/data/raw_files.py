"""Small fabricated raw files for every dataset family; family_values.py compares the output of the families.

The files are irregular: rows out of order, edges in one direction, repeated edges, self-loops, nodes without edges,
missing labels. The output shows how a family handles them.
"""

import functools
import gzip
import io
import json
import lzma
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import sparse
from scipy.io import savemat

from gt_bench.data.custom.dataset import custom_dataset
from gt_bench.data.families import expressivity, smiles
from gt_bench.data.families import jets as jets_family
from gt_bench.data.registry import get_spec
from gt_bench.data.spec import DatasetSpec, Prepare

Raw = tuple[DatasetSpec, dict[str, Path]]
# dataset -> writes its raw files into a folder; returns the spec, smaller where needed, and the files by path
RAW: dict[str, Callable[[Path], Raw]] = {}
NODES = 14
SIZES = ((5, 3, 6), (4,), (2, 7))  # of graphs, in train, val and test
MOLECULES = [("C" * n + "NO" * (n % 3), float(n)) for n in (1, 4, 2, 7, 3, 5, 1, 6, 2, 3, 4, 9, 1, 2, 8, 5, 6, 3)]


def raw(*names: str, **arguments: object) -> Callable[[Callable], Callable]:
    """Registers `write(spec, folder)`, which returns paths in the order of `spec.files`, for the datasets `names`.

    Args:
        names: datasets of the catalog.
        arguments: replace those of the spec.
    """

    def register(write: Callable[[DatasetSpec, Path], Sequence[Path]]) -> Callable:
        def build(name: str, folder: Path) -> Raw:
            spec = get_spec(name)
            spec = replace(spec, arguments=dict(spec.arguments) | arguments)
            return spec, {file.path: path for file, path in zip(spec.files, write(spec, folder), strict=True)}

        RAW.update({name: functools.partial(build, name) for name in names})
        return write

    return register


def with_prepare(name: str, wrap: Callable[[Prepare], Prepare]) -> None:
    """Replaces the function `prepare` of a registered dataset by `wrap` of it."""
    build = RAW[name]

    def changed(folder: Path) -> Raw:
        spec, paths = build(folder)
        return replace(spec, prepare=functools.wraps(spec.prepare)(wrap(spec.prepare))), paths

    RAW[name] = changed


def edges(rng: np.random.Generator, nodes: int, count: int) -> np.ndarray:
    """Directed edges [count, 2] in random order; some occur twice, some are self-loops, the last node has none."""
    return rng.integers(0, max(1, nodes - 1), (count, 2))


def symmetric_edges(rng: np.random.Generator, nodes: int) -> np.ndarray:
    """Distinct edges [2, E] in both directions, without self-loops."""
    pairs = edges(rng, nodes, 2 * nodes)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    return np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0).T


def parts_of(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Ids of train, val and test, in random order; the last id is in none."""
    order = rng.permutation(count - 1)
    return np.split(order, [count // 2, count * 3 // 4])


def saved(value: object) -> bytes:
    """A file of `torch.save`."""
    stream = io.BytesIO()
    torch.save(value, stream)
    return stream.getvalue()


class Malicious:
    """An object whose pickle runs a command."""

    def __reduce__(self) -> tuple:
        return os.system, ("touch evil",)


def zipped(path: Path, **members: bytes) -> list[Path]:
    """A zip file of `members`."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return [path]


def csv_gz(table) -> bytes:
    stream = io.StringIO()
    np.savetxt(stream, table, delimiter=",", fmt="%d" if np.asarray(table).dtype.kind == "i" else "%.6f")
    return gzip.compress(stream.getvalue().encode())


def jet_tree(sizes, seed=0):
    rng = np.random.default_rng(seed)

    def ragged(draw):
        out = np.empty(len(sizes), object)
        out[:] = [draw(n) for n in sizes]
        return out

    tree = {name: ragged(lambda n: rng.normal(size=n).astype(np.float32)) for name in jets_family.TRACK}
    tree |= {name: rng.normal(size=len(sizes)).astype(np.float32) for name in jets_family.JET}
    return tree | {
        jets_family.VERTEX: ragged(lambda n: rng.integers(0, 3, n)),
        jets_family.FLAVOUR: rng.choice([0, 4, 5], len(sizes)),
    }


def write_root(path, tree):
    """Write a ROOT file with a TTree `tree`: branches of tracks are ragged, branches of jets are flat."""
    import awkward
    import uproot

    ragged = {
        name: awkward.Array([np.asarray(values) for values in tree[name]])
        for name in (*jets_family.TRACK, jets_family.VERTEX)
    }
    flat = {name: np.asarray(tree[name]) for name in (*jets_family.JET, jets_family.FLAVOUR)}
    kinds = {name: f"var * {values[0].to_numpy().dtype}" for name, values in ragged.items()}
    with uproot.recreate(path) as file:
        file.mktree("tree", kinds | {name: values.dtype for name, values in flat.items()}).extend(ragged | flat)


def tpu_tar(path, kind, sizes, seed=0, edit=lambda data: data):
    rng = np.random.default_rng(seed)
    graphs = []
    with tarfile.open(path, "w") as archive:
        for index, n in enumerate(sizes):
            configs, configured = int(rng.integers(2, 6)), int(rng.integers(1, n))
            data = {
                "node_feat": rng.normal(size=(n, 140)).astype(np.float32),
                "node_opcode": rng.integers(1, 120, n).astype(np.uint8),
                "edge_index": rng.integers(0, n, (2 * n, 2)),
                "config_runtime": rng.integers(1, 10**9, configs),
            }
            if kind == "layout":
                data |= {
                    "node_config_feat": rng.normal(size=(configs, configured, 18)).astype(np.float32),
                    "node_config_ids": np.sort(rng.choice(n, configured, replace=False)),
                    "node_splits": np.array([[0, n]]),
                }
            else:
                data |= {
                    "config_feat": rng.normal(size=(configs, 24)).astype(np.float32),
                    "config_runtime_normalizers": np.full(configs, 3),
                }
            data = edit(data)
            stream = io.BytesIO()
            np.savez(stream, **data)
            info = tarfile.TarInfo(f"npz/{kind}/graph_{index}.npz")
            info.size = len(stream.getvalue())
            archive.addfile(info, io.BytesIO(stream.getvalue()))
            graphs.append(data)
    return graphs


@raw("cornell")
def webkb(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2, (NODES, 6)).tolist()
    rows = [f"{node}\t{','.join(map(str, words[node]))}\t{node % 5}\n" for node in rng.permutation(NODES)]
    (folder / "nodes.txt").write_text("id\tfeature\tlabel\n" + "".join(rows))
    text = "".join(f"{a}\t{b}\n" for a, b in edges(rng, NODES, 30))
    (folder / "edges.txt").write_text("id\tid\n" + text)
    for index in range(10):
        part = rng.integers(0, 4, NODES)
        masks = {f"{name}_mask": (part == code).astype(np.uint8) for code, name in enumerate(("train", "val", "test"))}
        np.savez(folder / f"{index}.npz", **masks)
    return [folder / "nodes.txt", folder / "edges.txt", *(folder / f"{index}.npz" for index in range(10))]


@raw("minesweeper", "roman-empire")
def heterophilous(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng, nodes = np.random.default_rng(0), 40
    part = rng.integers(0, 3, (10, nodes))
    arrays = {
        "node_features": rng.normal(size=(nodes, 7)).astype(np.float32),
        "node_labels": rng.permutation(np.arange(nodes) % spec.arguments["classes"]),
        "edges": np.array([[3, 3], [5, 2], [2, 5], [5, 2], [9, 1]]),
        **{f"{name}_masks": part == code for code, name in enumerate(("train", "val", "test"))},
    }
    np.savez(folder / "a.npz", **arrays)
    return [folder / "a.npz"]


@raw("computer", "computer-tokengt")
def shchur(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng, nodes = np.random.default_rng(0), 630
    attr = sparse.random_array((nodes, 8), density=0.02, rng=rng, format="csr", dtype=np.float32)
    attr.data[:] = rng.integers(1, 100, attr.nnz)
    adj = sparse.random_array((nodes, nodes), density=0.002, rng=rng, format="csr", dtype=np.float32)
    keys = ("data", "indices", "indptr", "shape")
    arrays = {f"{name}_{key}": getattr(m, key) for name, m in (("attr", attr), ("adj", adj)) for key in keys}
    np.savez(folder / "data.npz", **arrays, labels=np.arange(nodes) % spec.arguments["classes"])
    train, val, test = parts_of(np.random.default_rng(1), nodes)
    np.savez(folder / "split.npz", train=train, valid=val, test=test)
    return [folder / "data.npz", folder / "split.npz"][: len(spec.files)]


@raw("chameleon", features=50)
def wikipedia(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng, nodes = np.random.default_rng(0), 420
    parts = {"edges.csv": "id1,id2\n" + "".join(f"{a},{b}\n" for a, b in rng.integers(0, nodes, (3000, 2)))}
    labels = zip(rng.permutation(nodes), rng.integers(1, 10**6, nodes))
    parts["target.csv"] = "id,target\n" + "".join(f"{i},{t}\n" for i, t in labels)
    parts["features.json"] = json.dumps({str(i): rng.integers(0, 50, 5).tolist() for i in rng.permutation(nodes)})
    names = ("chameleon", "crocodile")
    members = {f"wikipedia/{name}/musae_{name}_{part}": text.encode() for name in names for part, text in parts.items()}
    return zipped(folder / "w.zip", **members)


@raw("gps")
def hyperedges(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng, sizes = np.random.default_rng(0), np.array([4, 5, 3])
    for part, count in (("train", 40), ("test", 15)):
        rows = rng.integers(0, sizes, (count, 3)).astype(np.float64)  # of 60: some occur twice, and in both files
        np.savez(folder / f"{part}.npz", **{f"{part}_data": rows, "nums_type": sizes})
    return [folder / "train.npz", folder / "test.npz"]


@raw("zinc")
def zinc(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng, members = np.random.default_rng(0), {}

    def molecule(n: int) -> dict:
        bonds = np.triu(rng.integers(0, 4, (n, n)), 1)
        arrays = {"atom_type": rng.integers(0, 21, n), "bond_type": bonds + bonds.T}
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return tensors | {"num_atom": n, "logP_SA_cycle_normalized": torch.tensor([float(rng.normal())])}

    for part, ids in (("train", "4,0,6,5"), ("val", "3,2"), ("test", "1,6")):
        members[f"molecules/{part}.pickle"] = pickle.dumps([molecule(int(n)) for n in rng.integers(2, 9, 7)])
        (folder / f"{part}.index").write_text(ids + "\n")
    zipped(folder / "molecules.zip", **members)
    return [folder / file.path.removeprefix("zinc12k/") for file in spec.files]


@raw("zinc-reconstructed")
def zinc_reconstructed(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng, paths = np.random.default_rng(0), []
    for part, sizes in zip(("train", "val", "test"), SIZES, strict=True):
        bonds = [symmetric_edges(rng, n) for n in sizes]
        counts, bonds = [b.shape[1] for b in bonds], np.concatenate(bonds, axis=1)
        arrays = {"x": rng.integers(0, 21, sum(sizes)), "edge_index": bonds, "num_nodes": sizes, "num_edges": counts}
        arrays |= {"edge_attr": rng.integers(1, 4, bonds.shape[1]), "y": rng.normal(size=len(sizes))}
        np.savez(folder / f"{part}.npz", **arrays)
        paths.append(folder / f"{part}.npz")
    return paths


@raw("peptides-func", "qm9-1k")
def ogb_molecules(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng, count = np.random.default_rng(0), 20
    sizes = rng.integers(1, 6, count)
    bonds = [np.stack([np.arange(1, n), rng.integers(0, np.arange(1, n))], axis=1).reshape(-1, 2) for n in sizes]
    total = sum(len(b) for b in bonds)
    arrays = {
        "x": rng.integers(0, [119, 5, 12, 12, 10, 6, 6, 2, 2], (sizes.sum(), 9)),
        "bonds": np.concatenate(bonds),
        "bond_attr": rng.integers(0, [5, 6, 2], (total, 3)),
        "num_nodes": sizes,
        "num_bonds": [len(b) for b in bonds],
        "y": rng.integers(0, 2, (count, 10)) if spec.name == "peptides-func" else rng.normal(3, 2, (count, 12)),
    }
    parts = zip(("train_idx", "val_idx", "test_idx"), parts_of(rng, count), strict=True)
    np.savez(folder / "a.npz", **arrays, **dict(parts))
    return [folder / "a.npz"]


@raw("csl")
def csl(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng, count = np.random.default_rng(0), 12
    bonds = [symmetric_edges(rng, 7) for _ in range(count)]
    arrays = {"edge_index": np.concatenate(bonds, axis=1).astype(np.int16), "num_nodes": np.full(count, 7)}
    np.savez(folder / "a.npz", **arrays, num_edges=[b.shape[1] for b in bonds], y=np.arange(count) % 10)
    folds = [parts_of(rng, count) for _ in range(5)]
    for place, part in enumerate(("train", "val", "test")):
        (folder / part).write_text("".join(",".join(map(str, fold[place])) + "\n" for fold in folds))
    return [folder / "a.npz", *(folder / part for part in ("train", "val", "test"))]


@raw("exp")
def exp(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng, count = np.random.default_rng(0), 24
    sizes = rng.integers(2, 7, count)
    bonds = [symmetric_edges(rng, n) for n in sizes]
    arrays = {"x": rng.integers(0, 2, sizes.sum()), "edge_index": np.concatenate(bonds, axis=1), "num_nodes": sizes}
    np.savez(folder / "a.npz", **arrays, num_edges=[b.shape[1] for b in bonds], y=np.arange(count) % 2)
    return [folder / "a.npz"]


def graph6(count: int) -> list[bytes]:
    """Random graphs; one has more than 62 nodes, whose number takes four bytes."""
    sizes = [70, *(5 + seed % 4 for seed in range(1, count))]
    graphs = (nx.gnp_random_graph(n, 0.4, seed=seed) for seed, n in enumerate(sizes))
    return [nx.to_graph6_bytes(g, header=False).strip() for g in graphs]


@raw("sr25")
def sr25(spec: DatasetSpec, folder: Path) -> list[Path]:
    (folder / "a.g6").write_bytes(b"\n".join(graph6(15)) + b"\n")
    return [folder / "a.g6"]


@raw("brec")
def brec(spec: DatasetSpec, folder: Path) -> list[Path]:
    with lzma.open(folder / "a.npy.xz", "wb") as file:
        np.lib.format.write_array(file, np.array(graph6(70)[1:] * 6)[: 3 * 128], allow_pickle=False)
    return [folder / "a.npy.xz"]


with_prepare("brec", mock.patch.multiple(expressivity, BREC_PAIRS=3, BREC_CATEGORIES={"basic": 0, "regular": 2}))


@raw("wikics")
def wikics(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    part = rng.integers(0, 4, (3, NODES))
    part[:, :4] = 9
    data = {
        "features": rng.normal(size=(NODES, 5)).tolist(),
        "labels": (np.arange(NODES) % 10).tolist(),
        "links": [rng.integers(0, NODES - 1, 2).tolist() for _ in range(NODES - 1)] + [[]],
        **{f"{name}_masks": (part == code).tolist() for code, name in enumerate(("train", "val", "stopping"))},
        "test_mask": (np.arange(NODES) < 4).tolist(),
    }
    (folder / "data.json").write_text(json.dumps(data))
    return [folder / "data.json"]


@raw("ogbn-arxiv", "ogbn-arxiv-undirected", features=6)
def ogb_nodes(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng, a, nodes = np.random.default_rng(0), spec.arguments, 50
    order, _ = rng.permutation(nodes), rng.integers(0, nodes, (80, 2))
    members = {
        "raw/edge": np.concatenate([edges(np.random.default_rng(1), nodes, 60), [[7, 7], [2, 1]]]),
        "raw/node-feat": rng.normal(size=(nodes, a["features"])),
        "raw/node-label": (np.arange(nodes) % a["classes"])[:, None],
        f"split/{a['split']}/train": np.sort(order[:30])[:, None],
        f"split/{a['split']}/valid": np.sort(order[30:40])[:, None],
        f"split/{a['split']}/test": np.sort(order[40:])[:, None],
    }
    content = {f"{a['folder']}/{name}.csv.gz": csv_gz(table) for name, table in members.items()}
    return zipped(folder / "a.zip", **{f"{a['folder']}/RELEASE_v1.txt": b""} | content)


@raw("pokec", splits=3)
def pokec(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)
    data = {"edge_index": edges(rng, NODES, 40).T, "node_feat": rng.normal(size=(NODES, 5))}
    savemat(folder / "p.mat", data | {"label": rng.integers(-1, 2, NODES)[None]})
    splits = [dict(zip(("train", "valid", "test"), parts_of(rng, NODES), strict=True)) for _ in range(3)]
    np.save(folder / "s.npy", np.array(splits, object), allow_pickle=True)
    return [folder / "p.mat", folder / "s.npy"]


@raw("tpugraphs-layout-xla-random", "tpugraphs-layout-tile")
def tpugraphs(spec: DatasetSpec, folder: Path) -> list[Path]:
    tpu_tar(folder / "train.tar", spec.arguments["kind"], [5, 4, 6])
    tpu_tar(folder / "valid.tar", spec.arguments["kind"], [3, 4], 1)
    return [folder / "train.tar", folder / "valid.tar"]


@raw("pattern", "cluster")
def sbm(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)

    def graph(n: int) -> dict:
        x = np.eye(spec.arguments["signals"], dtype=np.float32)[rng.integers(0, spec.arguments["signals"], n)]
        arrays = {"x": x, "edge_index": edges(rng, n, 8).T.copy(), "y": rng.integers(0, spec.arguments["classes"], n)}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    content = saved([[graph(n) for n in sizes] for sizes in SIZES])
    return zipped(folder / "a.zip", **{spec.arguments["member"]: content})


@raw("mnist", "cifar10")
def superpixels(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)

    def graph(n: int) -> dict:
        arrays = {"x": rng.random((n, spec.arguments["colours"])), "pos": rng.random((n, 2))}
        arrays |= {"edge_index": edges(rng, n, 9).T.copy(), "edge_attr": rng.random(9), "y": rng.integers(0, 10, 1)}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    content = saved([[graph(n) for n in sizes] for sizes in SIZES])
    return zipped(folder / "a.zip", **{spec.arguments["member"]: content})


@raw("pascalvoc-sp")
def voc(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)

    def graph(n: int) -> tuple:
        arrays = rng.normal(3, 2, (n, 14)), rng.normal(1, 2, (8, 2)), edges(rng, n, 8).T.copy()
        return (*map(torch.from_numpy, arrays), rng.integers(0, 21, n).tolist())

    parts = zip(("train", "val", "test"), SIZES, strict=True)
    members = {part: pickle.dumps([graph(n) for n in sizes]) for part, sizes in parts}
    return zipped(folder / "a.zip", **{f"{spec.arguments['folder']}/{part}.pickle": c for part, c in members.items()})


@raw("qm9")
def qm9(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng = np.random.default_rng(0)

    def graph(n: int) -> dict:
        bonds = symmetric_edges(rng, n)
        arrays = {"x": rng.random((n, 11)), "pos": rng.normal(size=(n, 3)), "y": rng.normal(3, 2, (1, 19))}
        arrays |= {"edge_index": bonds.copy(), "edge_attr": np.eye(4)[rng.integers(0, 4, bonds.shape[1])]}
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    return zipped(folder / "a.zip", **{"qm9_v3.pt": saved([graph(n) for n in rng.integers(1, 6, 20)])})


def ogb_graph(text: str) -> dict[str, np.ndarray]:
    """A graph in the form of ogb's smiles2graph, which needs RDKit: a chain of the letters."""
    if "?" in text:
        raise AttributeError("no molecule")
    atoms, bonds = np.array([ord(letter) for letter in text]), np.arange(len(text) - 1)
    vocabulary = np.array([119, 5, 12, 12, 10, 6, 6, 2, 2])
    return {
        "num_nodes": len(text),
        "node_feat": atoms[:, None] * np.arange(1, 10) % vocabulary,
        "edge_index": np.stack([bonds, bonds + 1, bonds + 1, bonds], axis=1).reshape(-1, 2).T,
        "edge_feat": np.repeat(bonds, 2)[:, None] * np.arange(1, 4) % np.array([5, 6, 2]),
    }


class InlinePool:
    """A worker pool that computes in this process."""

    def __init__(self, *arguments: object) -> None:
        pass

    def __enter__(self) -> "InlinePool":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def apply_async(self, function: Callable, arguments: tuple) -> mock.Mock:
        """Compute the result now; it has the interface of a future result."""
        return mock.Mock(get=mock.Mock(return_value=function(*arguments)))


def without_rdkit(prepare: Prepare) -> Prepare:
    """`prepare` with RDKit replaced by `ogb_graph`, in blocks of three molecules, in this process."""

    def prepared(spec: DatasetSpec, paths: dict, folder: Path) -> None:
        context = mock.Mock(return_value=mock.Mock(Pool=InlinePool))
        with (
            mock.patch("ogb.utils.smiles2graph", ogb_graph, create=True),
            mock.patch.object(smiles.multiprocessing, "get_context", context),
            mock.patch.object(smiles, "BLOCK", 3),
        ):
            prepare(spec, paths, folder)

    return prepared


@raw("pcqm4mv2", validation=5)
def pcqm(spec: DatasetSpec, folder: Path) -> list[Path]:
    lines = [f"{i},{text},{gap if i < 15 else ''}\n" for i, (text, gap) in enumerate(MOLECULES)]
    split = {"train": np.arange(12)[::-1].copy(), "valid": np.array([14, 12, 13]), "test-dev": np.arange(15, 18)}
    name, table = spec.arguments["folder"], "idx,smiles,homolumogap\n" + "".join(lines)
    members = {f"{name}/raw/data.csv.gz": gzip.compress(table.encode()), f"{name}/split_dict.pt": saved(split)}
    return zipped(folder / "a.zip", **members)


@raw("peptides-struct")
def struct(spec: DatasetSpec, folder: Path) -> list[Path]:
    targets = np.random.default_rng(0).normal(3, 2, (len(MOLECULES), 11))
    names = [*smiles.STRUCT_TARGETS][::-1]  # columns are found by name
    rows = [",".join([text, *map(repr, row.tolist())]) for (text, _), row in zip(MOLECULES, targets, strict=True)]
    table = "\n".join([",".join(["smiles", *names]), *rows]) + "\n"
    (folder / "a.csv.gz").write_bytes(gzip.compress(table.encode()))
    parts = parts_of(np.random.default_rng(1), len(MOLECULES))
    (folder / "s.pickle").write_bytes(pickle.dumps(dict(zip(("train", "val", "test"), parts, strict=True))))
    return [folder / "a.csv.gz", folder / "s.pickle"]


for name in ("pcqm4mv2", "peptides-struct"):
    with_prepare(name, without_rdkit)


@raw("alchemy")
def alchemy(spec: DatasetSpec, folder: Path) -> list[Path]:
    rng, sizes = np.random.default_rng(0), np.array([3, 1, 4, 5, 2, 6, 2, 4])
    first = sizes.cumsum() - sizes
    bonds = np.concatenate([symmetric_edges(rng, n) + start for n, start in zip(sizes, first, strict=True)], axis=1)
    bonds = bonds[:, rng.permutation(bonds.shape[1])]
    tables = {
        "A": bonds.T + 1,
        "graph_indicator": np.repeat(np.arange(len(sizes)), sizes)[:, None] + 1,
        "graph_attributes": rng.normal(5, 3, (len(sizes), 12)).round(6),
        "node_labels": rng.integers(0, 6, (sizes.sum(), 1)),
        "edge_labels": rng.integers(0, 4, (bonds.shape[1], 1)),
    }
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for name, table in tables.items():
            text = "\n".join(", ".join(map(str, row)) for row in table.tolist()) + "\n"
            archive.writestr(f"alchemy_full/alchemy_full_{name}.txt", text)
    for part, ids in (("train", "6,0,5,2"), ("val", "3"), ("test", "7,4")):
        (folder / part).write_text(ids + "\n")
    return [folder / "a.zip", *(folder / part for part in ("train", "val", "test"))]


@raw("jets")
def jets(spec: DatasetSpec, folder: Path) -> list[Path]:
    pytest.importorskip("uproot", reason="pip install .[jets]")
    paths = []
    for seed, sizes in enumerate(([3, 1, 5, 2], [4], [6, 2])):
        tree = jet_tree(sizes, seed)
        write_root(folder / f"{seed}.root", tree | {"jet_flav": -tree["jet_flav"]})
        paths.append(folder / f"{seed}.root")
    return paths


# generated datasets: no files, smaller arguments
PARTS = {"train": 4, "val": 2, "test": 2}
GENERATED: dict[str, dict[str, object]] = {
    "chains": PARTS | {"train_length": 4, "test_length": 6},
    "sbm-cluster": PARTS,
    "delaunay-50": PARTS | {"min_points": 5, "max_points": 9},
    "basis-small": {"counts": [3, 1, 2]},
    "er-scaling-1000": {"nodes": 40, "features": 3},
    "random-graphs": {"sizes": [6, 12], "graphs": 2},
    "ring-molecules": PARTS,
    "rook-shrikhande": PARTS,
    "skip-circles": PARTS,
    "torus-colours": {"side": 5, "splits": 2},
}
for name, arguments in GENERATED.items():
    raw(name, **arguments)(lambda spec, folder: [])


def custom_csv(folder: Path) -> Raw:
    """User-supplied CSV files."""
    rng = np.random.default_rng(0)
    rows = [f"{g},{rng.normal():.6f},{rng.integers(3)}" for g in range(10) for _ in range(3)]
    (folder / "nodes.csv").write_text("\n".join(["graph,size,kind", *rows]) + "\n")
    lines = [f"{g},{a},{b},{a + b}" for g in range(10) for a, b in edges(rng, 3, 2).tolist()]
    (folder / "edges.csv").write_text("\n".join(["graph,source,target,weight", *lines]) + "\n")
    targets = [f"{rng.normal():.6f},{('train', 'val', 'test')[g % 3]}" for g in range(10)]
    (folder / "graphs.csv").write_text("\n".join(["y,split", *targets]) + "\n")
    return custom_dataset("custom-csv", folder, task="graph-regression", metric="mae"), {}


def custom_npz(folder: Path) -> Raw:
    """User-supplied arrays, with drawn splits."""
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(30, 2)), "y": np.arange(30) % 3, "edge_index": edges(rng, 30, 50).T}
    np.savez(folder / "a.npz", **arrays, num_nodes=[30], num_edges=[50])
    facts = {"task": "node-classification", "metric": "accuracy", "num_splits": 2}
    return custom_dataset("custom-npz", folder / "a.npz", **facts), {}


RAW |= {"custom-csv": custom_csv, "custom-npz": custom_npz}
