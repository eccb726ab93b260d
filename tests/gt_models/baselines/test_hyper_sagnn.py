"""Hyper-SAGNN: its equations hyperedge by hyperedge, symmetries, invalid input."""

import torch
from torch import Tensor, nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from tests.gt_models import checks

TUPLES = torch.tensor([[0, 1, 3], [4, 2, 0], [3, 4, 1]])


def build(**arguments) -> nn.Module:
    torch.manual_seed(0)
    sizes = {
        "in_dim": 4,
        "out_dim": 1,
        "num_heads": 2,
        "head_dim": 3,
        "node_encoder": "features",
        "message_dropout": 0.0,
        "dropout": 0.0,
    }
    model = create_model("hyper-sagnn", **sizes | arguments).double()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter)
    return model


def graph(tuples: Tensor = TUPLES, **changes) -> GraphBatch:
    batch = checks.random_graphs((5,))[0]
    return GraphBatch(changes.get("x", batch.x), batch.edge_index, batch.ptr, extras={"hyperedge_index": tuples})


def normed(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


def two_layers(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return w[f"{name}.3.weight"] @ torch.tanh(w[f"{name}.0.weight"] @ x + w[f"{name}.0.bias"]) + w[f"{name}.3.bias"]


def test_is_its_equations():
    batch, model = graph(), build()
    w = model.state_dict()
    rows = []
    for members in TUPLES.tolist():
        shares = []
        for i in members:
            q = (w["query.weight"] @ normed(w, "query_norm", batch.x[i])).view(2, 3)
            k, v = (
                [(w[f"{n}.weight"] @ normed(w, f"{n}_norm", batch.x[j])).view(2, 3) for j in members if j != i]
                for n in ("key", "value")
            )
            heads = []
            for h in range(2):
                weight = torch.stack([q[h] @ key[h] / 3**0.5 for key in k]).exp()
                heads.append(sum(a * value[h] for a, value in zip(weight / weight.sum(), v, strict=True)))
            y = w["out.weight"] @ torch.cat(heads)
            dynamic = normed(w, "inner_norms.0", two_layers(w, "dynamic", y) + y)
            static = normed(w, "inner_norms.1", two_layers(w, "static", batch.x[i]))
            gap = (normed(w, "outer_norms.0", dynamic) - normed(w, "outer_norms.1", static)).square()
            shares.append((w["head.weight"] @ gap + w["head.bias"]).sigmoid())
        rows.append(sum(shares) / 3)
    torch.testing.assert_close(model(batch).sigmoid(), torch.stack(rows), rtol=1e-10, atol=1e-10)


def test_logits_of_what_is_nearly_certain_are_finite():
    """The probability p itself would round to 1."""
    model = build().float()
    nn.init.constant_(model.head.bias, 60.0)
    batch = graph(x=graph().x.float())
    assert model(batch).isfinite().all()
    assert (model(batch) > 30).all()


def test_the_encoder_of_the_paper_leaves_its_error():
    """Two nodes of one type and three of another."""
    x = torch.tensor([[1, 0], [2, 0], [0, 1], [0, 2], [0, 3]])
    batch = GraphBatch(
        x,
        torch.tensor([[2, 3, 0, 1], [0, 1, 2, 3]]),
        torch.tensor([0, 5]),
        torch.ones(4, 1),
        extras={"hyperedge_index": TUPLES},
    )
    model = create_model("hyper-sagnn", in_dim=[3, 4], out_dim=1, hidden_dim=8)
    assert model(batch).shape == (3, 1)
    assert model.input.reconstruction_error > 0
    assert set(batch.extras) == {"hyperedge_index"}
