"""alchemy: random graphs in the official format."""

import zipfile

import numpy as np
import pytest
import torch

from gt_bench.data.packed import PackedDataset
from gt_bench.data.registry import get_spec
from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import assert_sound


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
