"""SMILES, alchemy, jets, tpugraphs: miniatures in the official formats, from real molecules where there are some."""

import csv
import gzip
import io
import pickle
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch

from gt_bench.data.families import jets, smiles, tpugraphs
from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import get_spec
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import assert_sound

COUNT = 60


@pytest.fixture
def molecules(mirror):
    """The first real molecules of the PCQM4Mv2 subset: SMILES, gap, and their graphs as RDKit made them elsewhere."""
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
    """RDKit replaced by its stored answers, and the pool by this process."""
    import ogb.utils

    class Answer:
        def __init__(self, value):
            self.get = lambda: value

    class Pool:
        def __init__(self, *arguments):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            pass

        def apply_async(self, function, arguments):
            return Answer(function(*arguments))

    def convert(text):
        if text not in molecules[1]:
            raise AttributeError("None")
        return molecules[1][text]

    monkeypatch.setattr(ogb.utils, "smiles2graph", convert, raising=False)
    monkeypatch.setattr(smiles.multiprocessing, "get_context", lambda method: type("Context", (), {"Pool": Pool}))
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
    paths = {spec.files[0].path: tmp_path / "a.zip"}
    spec.prepare(spec, paths, tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    assert_sound(dataset)
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
    with pytest.raises(DatasetError, match="cannot read the SMILES 'no molecule'"):
        spec.prepare(spec, paths, tmp_path / "out2")
    assert not (tmp_path / "out2").exists()


def test_peptides_struct(tmp_path, molecules, without_rdkit):
    rows, _ = molecules
    spec = get_spec("peptides-struct")
    targets = np.random.default_rng(0).normal(3, 2, (COUNT, 11))
    names = ["", "smiles", "peptide_seq", *smiles.STRUCT_TARGETS, "self_dist_matrix"]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([i, s, "AC", *y.tolist(), "[[0.0]]"] for i, ((s, _), y) in enumerate(zip(rows, targets)))
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.getvalue().encode()))
    (tmp_path / "s.pickle").write_bytes(
        pickle.dumps({"train": np.arange(40), "val": np.arange(40, 50), "test": np.arange(50, 60)})
    )
    paths = dict(zip([file.path for file in spec.files], (tmp_path / "a.csv.gz", tmp_path / "s.pickle")))
    spec.prepare(spec, paths, tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    assert_sound(dataset)
    expected = (targets - targets.mean(0)) / targets.std(0, ddof=1)
    np.testing.assert_allclose(dataset.array("y"), expected, atol=1e-5)
    assert dataset.header.out_dim == 11
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.getvalue().encode())[:200])
    with pytest.raises(DatasetError, match="not a readable gzipped CSV"):
        spec.prepare(spec, paths, tmp_path / "out2")


def test_rdkit_itself_gives_the_stored_graphs(molecules):
    pytest.importorskip("rdkit", reason="rdkit is an extra of SMILES datasets; its stored answers are tested above")
    rows, graphs = molecules
    arrays = smiles.convert_block([(s, [gap]) for s, gap in rows])
    np.testing.assert_array_equal(arrays["x"], np.concatenate([graphs[s]["node_feat"] for s, _ in rows]))
    np.testing.assert_array_equal(
        arrays["edge_index"], np.concatenate([graphs[s]["edge_index"] for s, _ in rows], axis=1)
    )
    np.testing.assert_array_equal(arrays["edge_attr"], np.concatenate([graphs[s]["edge_feat"] for s, _ in rows]))


def test_alchemy(tmp_path):
    rng = np.random.default_rng(0)
    graphs = 30
    sizes = rng.integers(2, 8, graphs)
    first = sizes.cumsum() - sizes
    edges, kinds = [], []
    for g in range(graphs):
        for i in range(1, sizes[g]):
            j = rng.integers(0, i)
            edges += [(first[g] + i, first[g] + j), (first[g] + j, first[g] + i)]
            kinds += [rng.integers(0, 4)] * 2
    order = rng.permutation(len(edges))  # edges of the file in any order
    edges, kinds = np.array(edges)[order], np.array(kinds)[order]
    targets, labels = rng.normal(5, 3, (graphs, 12)), rng.integers(0, 6, sizes.sum())
    tables = {
        "A": [f"{a + 1}, {b + 1}" for a, b in edges],  # from 1, with a blank after the comma
        "graph_indicator": [str(g + 1) for g in np.repeat(np.arange(graphs), sizes)],
        "graph_attributes": [", ".join(f"{v:.8f}" for v in row) for row in targets],
        "node_labels": [str(v) for v in labels],
        "edge_labels": [str(k) for k in kinds],
    }

    def write(**changes):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr("alchemy_full/README.txt", "text")
            for name, lines in (tables | changes).items():
                archive.writestr(f"alchemy_full/alchemy_full_{name}.txt", "\n".join(lines) + "\n")

    ids = rng.permutation(graphs)[:20]
    parts = {"train": ids[:14], "val": ids[14:17], "test": ids[17:]}
    for part, chosen in parts.items():
        (tmp_path / f"{part}.index").write_text(",".join(map(str, chosen)) + "\n")
    spec = get_spec("alchemy")
    paths = dict(
        zip(
            [file.path for file in spec.files],
            [tmp_path / n for n in ("a.zip", "train.index", "val.index", "test.index")],
        )
    )
    write()
    spec.prepare(spec, paths, tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    assert_sound(dataset)
    train = targets[parts["train"]]
    for place, g in enumerate(ids):
        batch = dataset.batch(torch.tensor([place]))
        np.testing.assert_array_equal(batch.x[:, 0], labels[first[g] : first[g] + sizes[g]])
        mine = (edges[:, 0] >= first[g]) & (edges[:, 0] < first[g] + sizes[g])
        want = sorted(zip(*(edges[mine] - first[g]).T.tolist(), kinds[mine].tolist()))
        assert sorted(zip(*batch.edge_index.tolist(), batch.edge_attr[:, 0].tolist())) == want
        np.testing.assert_allclose(batch.y[0], (targets[g] - train.mean(0)) / train.std(0, ddof=1), atol=1e-4)
    write(A=[*tables["A"][:-1], f"1, {sizes.sum()}"])
    with pytest.raises(DatasetError, match="joins two graphs"):
        spec.prepare(spec, paths, tmp_path / "out2")
    write(node_labels=["x", *tables["node_labels"][1:]])
    with pytest.raises(DatasetError, match="not a table of numbers"):
        spec.prepare(spec, paths, tmp_path / "out2")


def jet_tree(sizes, seed=0):
    rng = np.random.default_rng(seed)

    def ragged(draw):
        out = np.empty(len(sizes), object)
        out[:] = [draw(n) for n in sizes]
        return out

    tree = {name: ragged(lambda n: rng.normal(size=n).astype(np.float32)) for name in jets.TRACK}
    tree |= {name: rng.normal(size=len(sizes)).astype(np.float32) for name in jets.JET}
    return tree | {
        jets.VERTEX: ragged(lambda n: rng.integers(0, 3, n)),
        jets.FLAVOUR: rng.choice([0, 4, 5], len(sizes)),
    }


def write_root(path, tree):
    """A ROOT file with a TTree `tree`: branches of tracks are ragged, branches of jets flat."""
    import awkward
    import uproot

    ragged = {name: awkward.Array([np.asarray(values) for values in tree[name]]) for name in (*jets.TRACK, jets.VERTEX)}
    flat = {name: np.asarray(tree[name]) for name in (*jets.JET, jets.FLAVOUR)}
    kinds = {name: f"var * {values[0].to_numpy().dtype}" for name, values in ragged.items()}
    with uproot.recreate(path) as file:
        file.mktree("tree", kinds | {name: values.dtype for name, values in flat.items()}).extend(ragged | flat)


def test_jets(tmp_path):
    pytest.importorskip("uproot", reason="pip install .[jets]")
    trees = {"training": jet_tree([3, 1, 5, 2]), "valid": jet_tree([4], 1), "test": jet_tree([6, 2], 2)}
    spec = get_spec("jets")
    for name, tree in trees.items():
        write_root(tmp_path / f"{name}.root", tree)
    names = dict(zip([file.path for file in spec.files], trees))
    spec.prepare(spec, {path: tmp_path / f"{name}.root" for path, name in names.items()}, tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    assert_sound(dataset)
    assert dataset.sizes.tolist() == [3, 5, 2, 4, 6, 2]  # a jet of one track is left out
    assert [dataset.split(part, 0).numel() for part in ("train", "val", "test")] == [3, 1, 2]
    batch = dataset.batch(torch.tensor([1]))
    vertex = trees["training"][jets.VERTEX][2]
    np.testing.assert_array_equal(batch.y.view(5, 5), vertex[:, None] == vertex[None])
    assert batch.extras["flavour"].item() == trees["training"][jets.FLAVOUR][2]
    pt = trees["training"]["trk_pt"][2]
    np.testing.assert_allclose(batch.x[:, 4], (pt - 5.237357) / 7.4841413, atol=1e-5)
    np.testing.assert_allclose(batch.x[:, 6], (trees["training"]["jet_pt"][2] - 75.95093) / 49.134453, atol=1e-5)
    with pytest.raises(DatasetError, match="not the tree of jets"):
        jets.jets({jets.VERTEX: trees["test"][jets.VERTEX]}, "x")


def test_damaged_root_files_are_clean_errors(tmp_path):
    uproot = pytest.importorskip("uproot", reason="pip install .[jets]")
    write_root(tmp_path / "whole.root", jet_tree([3, 1, 5, 2]))
    whole = (tmp_path / "whole.root").read_bytes()
    expected = jets.jets(jets._read(tmp_path / "whole.root"), "x")
    rng, path = np.random.default_rng(0), tmp_path / "damaged.root"
    refused = 0
    for trial in range(60):
        content = bytearray(whole)
        if trial % 3 == 0:
            content = content[: rng.integers(len(content))]
        else:
            for place in rng.integers(0, len(content), 1 + trial % 7):
                content[place] = rng.integers(256)
        path.write_bytes(content)
        try:
            found = jets.jets(jets._read(path), "x")
        except DatasetError:
            refused += 1
            continue
        assert found.keys() == expected.keys()
    assert refused > 15
    with uproot.recreate(path) as file:
        file.mktree("other", {"jet_pt": np.float32}).extend({"jet_pt": np.zeros(3, np.float32)})
    with pytest.raises(DatasetError, match="not a readable ROOT file of jets"):
        jets._read(path)


def test_jets_without_uproot_say_so(tmp_path, monkeypatch):
    from gt_bench.data import prepare as room

    monkeypatch.setattr(room, "get_spec", lambda name: replace(get_spec(name), needs=("no_such_package",)))
    result = room.prepare("jets", tmp_path)
    assert result.state == "unavailable"
    assert "pip install no_such_package" in result.reason
    assert room.available("jets", tmp_path) == (False, "needs the package no_such_package")


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


@pytest.mark.parametrize(
    ("name", "kind"), [("tpugraphs-layout-xla-random", "layout"), ("tpugraphs-layout-tile", "tile")]
)
def test_tpugraphs(name, kind, tmp_path):
    graphs = tpu_tar(tmp_path / "train.tar", kind, [9, 14, 6]) + tpu_tar(tmp_path / "valid.tar", kind, [11, 7], 1)
    spec = get_spec(name)
    paths = dict(zip([file.path for file in spec.files], (tmp_path / "train.tar", tmp_path / "valid.tar")))
    spec.prepare(spec, paths, tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    assert_sound(dataset)
    assert dataset.split("test", 0).tolist() == [3, 4]
    for index, data in enumerate(graphs):
        batch = dataset.batch(torch.tensor([index]))
        np.testing.assert_array_equal(batch.x, data["node_feat"])
        np.testing.assert_array_equal(batch.edge_index.T, data["edge_index"])
        np.testing.assert_array_equal(batch.extras["opcode"], data["node_opcode"])
        runtimes, features, ids = tpugraphs.configurations(dataset, index)
        np.testing.assert_allclose(runtimes, data["config_runtime"] / (1 if kind == "layout" else 3))
        np.testing.assert_array_equal(features, data["node_config_feat" if kind == "layout" else "config_feat"])
        assert ids is None if kind == "tile" else np.array_equal(ids, data["node_config_ids"])
    tpu_tar(tmp_path / "train.tar", kind, [9], edit=lambda data: data | {"config_runtime": np.ones(99)})
    with pytest.raises(DatasetError, match=r"do not fit together"):
        spec.prepare(spec, paths, tmp_path / "out2")


def test_ordered_pair_accuracy_and_segments():
    rng = np.random.default_rng(0)
    runtimes, scores = rng.integers(0, 9, 40).astype(float), rng.integers(0, 9, 40).astype(float)
    pairs = [(i, j) for i in range(40) for j in range(40) if runtimes[i] > runtimes[j]]
    assert tpugraphs.ordered_pair_accuracy(scores, runtimes) == pytest.approx(
        np.mean([scores[i] > scores[j] for i, j in pairs])
    )
    assert tpugraphs.ordered_pair_accuracy(runtimes, runtimes) == 1
    with pytest.raises(ValueError, match="all runtimes are equal"):
        tpugraphs.ordered_pair_accuracy(scores, np.ones(40))
    cut = tpugraphs.segments(23, 5)
    assert [i for s in cut for i in range(23)[s]] == list(range(23))
    assert max(len(range(23)[s]) for s in cut) == 5
    with pytest.raises(ValueError, match="at least one node"):
        tpugraphs.segments(5, 0)
