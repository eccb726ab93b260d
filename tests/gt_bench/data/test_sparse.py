"""Sparse features: equal to the dense ones, read without a dense copy, and used in a run."""

import tracemalloc

import numpy as np
import pytest
import torch

from gt_bench.data.packed import PackedDataset, PackedHeader
from gt_bench.data.packed_writer import pack
from gt_bench.data.sparse import sparse_rows
from gt_bench.store.run_store import Store
from gt_models.kernels import use
from tests.gt_bench.conftest import RECIPE
from tests.gt_bench.runs import experiment


def words(nodes: int, columns: int, share: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.integers(1, 4, (nodes, columns)) * (rng.random((nodes, columns)) < share)).astype(np.uint8)


def pack_words(folder, share: float = 0.03, columns: int = 400, nodes: int = 60):
    rng = np.random.default_rng(1)
    edges, y = rng.integers(0, nodes, (2, 3 * nodes)), np.arange(nodes) % 3
    x = words(nodes, columns, share)
    x[:, :6] = 2 * (y[:, None] == np.arange(6) % 3)
    kind = {"task": "node-classification", "metric": "accuracy", "level": "node", "split_kind": "node"}
    header = PackedHeader(name="words", in_dim=columns, out_dim=3, num_splits=1, row_normalise=True, **kind)
    arrays = {"num_nodes": [nodes], "num_edges": [edges.shape[1]], "edge_index": edges, "x": x, "y": y}
    pack(folder / "packed" / "words", header, arrays | {"split": rng.permutation(np.arange(nodes) % 3 + 1)[None]})
    return PackedDataset.open(folder / "packed" / "words")


def test_sparse_rows_are_the_dense_features(tmp_path):
    packed = pack_words(tmp_path)
    dense, sparse = (p.batch(torch.arange(1)).x for p in (packed, packed.with_sparse_x()))
    assert sparse.layout == torch.sparse_csr
    assert torch.equal(sparse.to_dense(), dense)
    torch.testing.assert_close(dense.sum(1), torch.ones(60))
    assert torch.equal(sparse.to("cpu", torch.float64).to_dense(), dense.double())


@pytest.mark.parametrize(("columns", "share"), [(400, 0.3), (100, 0.03)])
def test_features_that_are_narrow_or_hardly_sparse_stay_dense(tmp_path, columns, share):
    packed = pack_words(tmp_path, share, columns)
    assert packed.with_sparse_x() is packed


def test_wide_features_are_never_dense(tmp_path):
    x = words(2000, 3000, 0.01)
    tracemalloc.start()
    sparse = sparse_rows(x, normalise=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sparse._nnz() == np.count_nonzero(x)
    assert peak < x.size * 4 / 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        RECIPE["model"],
        {"name": "polynormer", "hidden_dim": 8, "num_heads": 2, "num_local_layers": 2, "in_dropout": 0.3},
    ],
    ids=["mlp", "polynormer"],
)
def test_a_run_learns_the_same_from_either(tmp_path, model):
    pack_words(tmp_path)
    one = experiment(tmp_path, "words", model=model)
    with use("reference", feature_projection="sparse", sparse_linear="numba"):
        sparse = one.run(0)[0]
    with use("reference"):
        one.store, one.__dict__["_packed_or_sparse"] = Store(tmp_path / "other"), one.packed
        dense = one.run(0)[0]
    forms = [r.measured.forms["training"].get("sparse_linear") for r in (sparse, dense)]
    assert forms == [["numba"], None]
    for curve in ("train_loss", "val_loss"):
        found, expected = (run.run.epochs[curve] for run in (sparse, dense))
        assert found == pytest.approx(expected, rel=1e-4)


def test_other_models_get_dense_features(tmp_path):
    pack_words(tmp_path)
    model = {"name": "edge-transformer", "hidden_dim": 8, "num_heads": 2, "num_layers": 1}
    one = experiment(tmp_path, "words", model=model)
    assert one._packed_or_sparse is one.packed
