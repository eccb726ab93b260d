"""ogbn-arxiv, ogbn-products, wikics, pokec: miniatures in the official formats, quirks included."""

import gzip
import io
import json
import zipfile

import numpy as np
import pytest
import torch
from scipy.io import savemat

from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import get_spec
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import assert_sound


def csv_gz(table) -> bytes:
    stream = io.StringIO()
    np.savetxt(stream, table, delimiter=",", fmt="%d" if np.asarray(table).dtype.kind == "i" else "%.6f")
    return gzip.compress(stream.getvalue().encode())


def ogb_zip(path, spec, nodes=50, **changes):
    rng = np.random.default_rng(0)
    a = spec.arguments
    order = rng.permutation(nodes)
    pairs = rng.integers(0, nodes, (80, 2))
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)  # each edge once
    members = {
        "raw/edge": pairs,
        "raw/node-feat": rng.normal(size=(nodes, a["features"])),
        "raw/node-label": (np.arange(nodes) % a["classes"])[:, None],
        "raw/num-node-list": np.array([[nodes]]),
        "raw/num-edge-list": np.array([[len(pairs)]]),
        f"split/{a['split']}/train": np.sort(order[:30])[:, None],
        f"split/{a['split']}/valid": np.sort(order[30:40])[:, None],
        f"split/{a['split']}/test": np.sort(order[40:])[:, None],
    }
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{a['folder']}/RELEASE_v1.txt", "")
        for name, table in (members | changes).items():
            archive.writestr(f"{a['folder']}/{name}.csv.gz", table if isinstance(table, bytes) else csv_gz(table))
    return members


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-arxiv-undirected", "ogbn-products"])
def test_ogb(name, tmp_path):
    spec = get_spec(name)
    members = ogb_zip(tmp_path / "a.zip", spec)
    spec.prepare(spec, {spec.files[0].path: tmp_path / "a.zip"}, tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    assert_sound(dataset)
    batch = dataset.batch(torch.tensor([0]))
    np.testing.assert_allclose(batch.x, members["raw/node-feat"], atol=1e-5)
    np.testing.assert_array_equal(dataset.split("val", 0), members[f"split/{spec.arguments['split']}/valid"][:, 0])
    if name == "ogbn-arxiv":
        np.testing.assert_array_equal(batch.edge_index.T, members["raw/edge"])  # directed, as stored
    else:
        assert dataset.header.statistics["symmetric"]
        assert dataset.num_edges == 2 * len(members["raw/edge"])
    assert sorted(p.name for p in tmp_path.glob("[!.]*")) == ["a.zip", "out"]


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        ("raw/edge", b"not gzip", "edge.csv.gz: not a readable table"),
        ("raw/node-label", csv_gz(np.array([[1.5]])), "node-label.csv.gz"),
        ("raw/node-feat", csv_gz(np.zeros((3, 128))), "'x' has 3 rows"),
        ("split/time/test", csv_gz(np.array([[50]])), "names id 50 of 50"),
    ],
)
def test_flawed_ogb_archives(member, content, message, tmp_path):
    spec = get_spec("ogbn-arxiv")
    ogb_zip(tmp_path / "a.zip", spec, **{member: content})
    with pytest.raises(DatasetError, match=message):
        spec.prepare(spec, {spec.files[0].path: tmp_path / "a.zip"}, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]


def test_wikics(tmp_path):
    rng = np.random.default_rng(0)
    nodes, spec = 60, get_spec("wikics")
    part = rng.integers(0, 4, (20, nodes))
    part[:, :20] = 9  # the test nodes are the same in all splits
    data = {
        "features": rng.normal(size=(nodes, 300)).tolist(),
        "labels": (np.arange(nodes) % 10).tolist(),
        "links": [rng.integers(0, nodes, 3).tolist() for _ in range(nodes)],
        **{f"{name}_masks": (part == code).tolist() for code, name in enumerate(("train", "val", "stopping"))},
        "test_mask": (np.arange(nodes) < 20).tolist(),
    }
    (tmp_path / "data.json").write_text(json.dumps(data))
    spec.prepare(spec, {spec.files[0].path: tmp_path / "data.json"}, tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    assert_sound(dataset)
    assert dataset.header.num_splits == 20
    np.testing.assert_array_equal(dataset.split("val", 7), np.flatnonzero((part[7] == 1) | (part[7] == 2)))
    assert dataset.split("test", 7).tolist() == list(range(20))
    assert dataset.header.statistics["symmetric"]
    for flaw in ('{"features": 1}', "[1,", json.dumps(data | {"links": [[99]] * nodes})):
        (tmp_path / "data.json").write_text(flaw)
        with pytest.raises(DatasetError):
            spec.prepare(spec, {spec.files[0].path: tmp_path / "data.json"}, tmp_path / "out2")


def test_pokec(tmp_path):
    rng = np.random.default_rng(0)
    nodes, spec = 40, get_spec("pokec")
    labels = rng.integers(-1, 2, nodes)  # -1: unknown
    known = np.flatnonzero(labels >= 0)
    savemat(
        tmp_path / "p.mat",
        {
            "edge_index": rng.integers(0, nodes, (2, 90)),
            "node_feat": rng.normal(size=(nodes, 65)),
            "label": labels[None],
        },
    )
    splits = []
    for _ in range(5):
        order = rng.permutation(known)
        cut = len(known) // 2, len(known) * 3 // 4
        splits.append({"train": order[: cut[0]], "valid": order[cut[0] : cut[1]], "test": order[cut[1] :]})
    np.save(tmp_path / "s.npy", splits, allow_pickle=True)
    paths = dict(zip([file.path for file in spec.files], (tmp_path / "p.mat", tmp_path / "s.npy")))
    spec.prepare(spec, paths, tmp_path / "out")
    dataset = PackedDataset.open(tmp_path / "out")
    assert_sound(dataset)
    np.testing.assert_array_equal(dataset.split("test", 4), np.sort(splits[4]["test"]))
    assert dataset.header.statistics["unlabelled"] == (labels < 0).sum()
    np.save(tmp_path / "s.npy", splits[:3], allow_pickle=True)
    with pytest.raises(DatasetError, match="not 5 splits"):
        spec.prepare(spec, paths, tmp_path / "out2")
    (tmp_path / "p.mat").write_bytes(b"MATLAB no more")
    with pytest.raises(DatasetError, match="not LINKX"):
        spec.prepare(spec, paths, tmp_path / "out2")
