"""alchemy: random graphs in the official format."""

import zipfile

import numpy as np
import torch

from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import made
from tests.gt_bench.data.raw_files import RAW
from tests.refusals import refused

PREFIX = "alchemy_full/alchemy_full_"


def test_alchemy(tmp_path):
    spec, paths = RAW["alchemy"](tmp_path)
    archive, *index_files = files = [*paths.values()]
    with zipfile.ZipFile(archive) as packed:
        texts = {name: packed.read(name).decode() for name in packed.namelist()}
    tables = {
        name.removeprefix(PREFIX).removesuffix(".txt"): np.loadtxt(text.splitlines(), delimiter=",", ndmin=2)
        for name, text in texts.items()
    }
    graph, edges, targets = tables["graph_indicator"][:, 0] - 1, tables["A"] - 1, tables["graph_attributes"]
    ids = [np.loadtxt(file, delimiter=",", dtype=int, ndmin=1) for file in index_files]
    dataset = made(spec, tmp_path / "out", *files)
    assert [dataset.split(part).numel() for part in ("train", "val", "test")] == [*map(len, ids)]
    for place, g in enumerate(np.concatenate(ids)):
        batch, nodes = dataset.batch(torch.tensor([place])), np.flatnonzero(graph == g)
        np.testing.assert_array_equal(batch.x, tables["node_labels"][nodes])
        mine = np.isin(edges[:, 0], nodes)  # edges of the file are in any order
        want = sorted(map(tuple, np.concatenate([edges[mine] - nodes[0], tables["edge_labels"][mine]], axis=1)))
        assert sorted(zip(*batch.edge_index.tolist(), batch.edge_attr[:, 0].tolist(), strict=True)) == want
        train = targets[ids[0]]
        np.testing.assert_allclose(batch.y[0], (targets[g] - train.mean(0)) / train.std(0, ddof=1), atol=1e-4)
    for table, flaw, place in (
        ("A", f"1, {len(graph)}\n", ""),
        ("node_labels", "x\n", f"{PREFIX}node_labels.txt"),
    ):
        with zipfile.ZipFile(archive, "w") as packed:
            for name, text in texts.items():
                lines = text.splitlines(keepends=True)
                packed.writestr(name, "".join([flaw, *lines[1:]]) if name == f"{PREFIX}{table}.txt" else text)
        with refused(DatasetError, file=str(archive), place=place):
            made(spec, tmp_path / "out2", *files)
