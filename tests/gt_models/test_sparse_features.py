"""Sparse features: dropout, the encoder, and all models that accept them learn as from dense ones."""

import pytest
import torch
from torch.nn import functional as F

from gt_models.batch import GraphBatch
from gt_models.kernels import forms_taken, use
from gt_models.kernels.dropout import drop
from gt_models.layers.dropout import Dropout, drop_sparse
from gt_models.layers.features import FeatureEncoder
from gt_models.registry import create_model, list_models, model_info


def rows(num_rows: int, columns: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Dense features, a tenth of which is not zero; the last row is empty."""
    torch.manual_seed(0)
    x = torch.randn(num_rows, columns, dtype=dtype) * (torch.rand(num_rows, columns) < 0.1)
    x[-1] = 0
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sparse_rows_drop_what_dense_ones_do(dtype):
    x, seed = rows(40, 300, dtype), torch.tensor([5])
    assert torch.equal(drop_sparse(x.to_sparse_csr(), seed, 0.3).to_dense(), drop(x, seed, 0.3))
    module, outs = Dropout(0.3), []
    for features in (x, x.to_sparse_csr()):
        torch.manual_seed(1)
        out = module(features)
        # the state of the generator is equal, too
        outs.append((out.to_dense() if out.is_sparse_csr else out, torch.rand(1)))
    assert all(torch.equal(a, b) for a, b in zip(*outs, strict=True))


def test_the_encoder_never_makes_sparse_features_dense(monkeypatch):
    x, encoder = rows(40, 300).to_sparse_csr(), FeatureEncoder(300, 8)
    expected = F.linear(x.to_dense().float(), encoder.linear.weight, encoder.linear.bias)
    monkeypatch.setattr(torch.Tensor, "to_dense", None)
    with forms_taken() as taken:
        torch.testing.assert_close(encoder(x), expected)
    assert taken == {"feature_projection": {"sparse": 1}, "sparse_linear": {"numba": 1}}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in list_models() if model_info(name).sparse_x])
def test_models_that_take_sparse_features_predict_and_learn_as_from_dense_ones(name):
    x, edges = rows(12, 300), torch.randint(0, 12, (2, 30), generator=torch.Generator().manual_seed(0))
    batch = GraphBatch(x, edges, torch.tensor([0, 12]))
    more = {}
    if "tokengt" in name:
        more = {"node_identifiers": "near-orf", "num_heads": 2, "num_layers": 1}
    elif name == "graphormer":
        more = {"max_distance": 3, "num_heads": 2, "num_layers": 1}
        batch.encodings["shortest_path_distance"] = torch.randint(0, 3, (144, 1))
    elif name == "gps":
        more = {"num_heads": 2, "num_layers": 1}
    elif "polynormer" in name:
        more = {"num_heads": 2, "in_dropout": 0.5}
    elif name == "nodeformer":
        more = {"redraw_interval": None}  # otherwise the second pass draws other random features
    elif name == "exphormer":
        batch.encodings["expander"] = torch.randint(0, 12, (12, 3), generator=torch.Generator().manual_seed(0))
    elif name == "linkx":
        batch.encodings["number"] = batch.local[:, None]
    torch.manual_seed(0)
    model = create_model(name, in_dim=300, out_dim=3, level="node", hidden_dim=8, **more).double()
    results = []
    for features in (x, x.to_sparse_csr()):
        batch.x = features
        torch.manual_seed(1)
        with use("reference", sparse_linear="numba"):
            out = model(batch)
        results.append([out, *torch.autograd.grad(out.sin().sum(), list(model.parameters()), allow_unused=True)])
    for dense, sparse in zip(*results, strict=True):
        torch.testing.assert_close(sparse, dense, rtol=1e-8, atol=1e-10)


def test_a_released_polynormer_without_input_layer_takes_them_too():
    x = rows(12, 300).to_sparse_csr()
    batch = GraphBatch(x, torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 12]))
    arguments = {
        "in_dim": 300,
        "out_dim": 3,
        "hidden_dim": 8,
        "num_heads": 2,
        "input_layer": False,
        "local_layer": "gcn",
    }
    model = create_model("polynormer-released", **arguments).double().eval()
    out = model(batch)
    batch.x = x.to_dense()
    with use("reference"):
        torch.testing.assert_close(out, model(batch))
