"""NAGphormer: its equations node by node, parts of a graph, symmetries, invalid input."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gt_bench.training.loader import induced
from gt_models import create_model
from gt_models.batch import GraphBatch, MissingEncoding
from gt_models.encodings import compute
from gt_models.transforms import needs
from tests.gt_models import checks
from tests.gt_models.baselines.cases import linear


def build(**arguments) -> nn.Module:
    torch.manual_seed(0)
    sizes = {
        "in_dim": 4,
        "out_dim": 3,
        "hidden_dim": 6,
        "num_heads": 2,
        "num_layers": 2,
        "hops": 2,
        "dropout": 0.0,
        "attn_dropout": 0.0,
    }
    model = create_model("nagphormer", **sizes | arguments).double()
    for parameter in model.parameters():  # with the initial weights, which are small, all tokens are almost equal
        nn.init.normal_(parameter, std=0.5)
    return model


def with_hops(sizes=(5, 3, 7)) -> list[GraphBatch]:
    graphs = checks.random_graphs(sizes)
    for graph in graphs:
        graph.encodings |= compute("hops", graph, columns=4, steps=3, dtype=torch.float64)
    return graphs


def normed(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, (6,), w[f"{name}.weight"], w[f"{name}.bias"])


def test_is_its_equations():
    """The encoding has one hop more than the model reads."""
    graph, model = with_hops((6,))[0], build().eval()
    w, rows = model.state_dict(), []
    for node in range(6):
        x = linear(w, "encoder", graph.encodings["hops"][node].view(4, 4)[:3])
        for layer in ("layers.0", "layers.1"):
            q, k, v = linear(w, f"{layer}.attention.qkv", normed(w, f"{layer}.attn_norm", x)).split(6, 1)
            heads = []
            for h in (slice(0, 3), slice(3, 6)):
                heads.append((q[:, h] @ k[:, h].T / 3**0.5).softmax(1) @ v[:, h])
            x = x + linear(w, f"{layer}.attention.out", torch.cat(heads, 1))
            x = x + linear(
                w, f"{layer}.ffn_out", F.gelu(linear(w, f"{layer}.ffn_in", normed(w, f"{layer}.ffn_norm", x)))
            )
        z = normed(w, "final_norm", x)
        scores = torch.stack([linear(w, "readout", torch.cat([z[0], z[k]])) for k in (1, 2)])
        alpha = scores.exp() / scores.exp().sum()
        rows.append(z[0] + alpha[0] * z[1] + alpha[1] * z[2])
    expected = linear(w, "head_out", linear(w, "head_in", torch.stack(rows)).clamp(min=0))
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)


def test_parts_of_a_graph_are_batches_of_its_nodes():
    graph, model = with_hops((9,))[0], build().eval()
    nodes = torch.tensor([7, 2, 5])
    torch.testing.assert_close(model(induced(graph, nodes)), model(graph)[nodes], rtol=1e-10, atol=1e-10)


def test_nodes_of_a_large_graph_go_one_after_another(monkeypatch):
    graph, model = with_hops((9,))[0], build().eval()
    expected = model(graph)
    monkeypatch.setattr("gt_models.baselines.nagphormer._TOGETHER", 4)
    with torch.no_grad():
        torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)


def test_the_encoding_that_it_needs():
    """With the default of three hops the width determines everything; otherwise `steps` is required."""
    graph = checks.random_graphs((6,))[0]
    assert needs(build(hops=3), graph)["hops"]["columns"] == 4
    assert needs(build(hops=2), graph, {"hops": {"steps": 2}})["hops"] == {
        "columns": 4,
        "steps": 2,
        "eigenvectors": None,
    }
    with pytest.raises(MissingEncoding, match="needs the encoding 'hops'"):
        build()(graph)
    graph.encodings |= compute("hops", graph, columns=4, steps=3, eigenvectors=1)
    with pytest.raises(ValueError, match="20 channels, which are no steps of 6"):
        build(laplacian_dim=2)(graph)
