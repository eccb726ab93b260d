"""PPGT: its equations in loops, published parameter counts, symmetries, forms, invalid input."""

import math

import pytest
import torch

from gt_models import create_model
from gt_models.kernels import use
from tests.gt_models.checks import collate
from tests.gt_models.ppgt.cases import SMALL, ZINC, described, directed_graph, expected_outputs, graphs, small

VARIANTS = [
    {},
    {"attention": "sdp", "norm": "rms", "urpe": False, "num_frequencies": 0},
    {"norm": "batch"},
    {"norm": "layer", "edge_dim": None, "edge_vector": True, "pair_dim": 4},
    {"name": "ppgt-released"},
    {"name": "ppgt-released", "attention": "sdp", "urpe": False},
    {"name": "ppgt-released", "norm": "batch", "pooling": "mean", "stem_ffn_init": "kaiming"},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=lambda c: "-".join(str(v) for v in c.values()) or "paper")
@pytest.mark.parametrize("level", ["graph", "node"])
def test_equations_in_loops(changes, level):
    model, singles = small(level=level, **changes), [*graphs(), directed_graph()]
    expected = expected_outputs(model, singles, described(**changes), changes.get("pooling", "sum"), level)
    with torch.no_grad():
        torch.testing.assert_close(model(collate(singles)), expected, rtol=1e-10, atol=1e-10)


BREC = {
    "in_dim": [1], "out_dim": 16, "hidden_dim": 96, "num_layers": 6, "num_heads": 16, "rrwp_dim": 33, "stem_dim": 192,
    "num_stem_ffn": 4, "num_frequencies": 15, "out_norm": True, "name": "ppgt-released",
}  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "count", "printed"),
    [(ZINC | {"head": "constant"}, 493_185, None), (ZINC, 487_425, 487), (BREC, 874_032, 874)],
    ids=["zinc-constant", "zinc-halving", "brec"],
)
def test_parameter_counts_printed(settings, count, printed):
    """Tables 7 and 10: ZINC's published count is that of a head with halving widths, BREC's of a constant width."""
    assert sum(p.numel() for p in create_model(**({"name": "ppgt"} | settings)).parameters()) == count
    assert printed is None or round(count / 1000) == printed


def _loss_and_grads(model, batch):
    model.zero_grad()
    out = model(batch)
    (out * torch.arange(out.numel(), dtype=out.dtype).view_as(out).cos()).sum().backward()
    return [out.detach(), *[p.grad.clone() for p in model.parameters() if p.grad is not None]]


@pytest.mark.parametrize("changes", [{}, {"attention": "sdp", "urpe": False}, {"attn_dropout": 0.3}], ids=str)
def test_forms_of_attention_change_nothing(changes):
    """In training, with the same dropout masks."""
    model, results = small(level="node", **changes).train(), []
    batch = collate(graphs((4, 1, 6, 19)))
    for form in ("reference", "numba"):
        torch.manual_seed(3)
        with use(gated_attention=form):
            results.append(_loss_and_grads(model, batch))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_initialisation():
    """Appendix B.2."""
    model = create_model("ppgt", **ZINC)
    for linear in (
        model.layers[0].attention.qkv,
        model.layers[3].linear1,
        model.head[0],
        model.layers[5].attention.pair_linear,
    ):
        assert linear.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert linear.bias.abs().max() == 0
    for linear, a in [
        (model.stem.linear1, 0.0),
        (model.stem.linear2, 1.0),
        (model.stem.blocks[0].linear1, 0.0),
        (model.diagonal_encoder, 1.0),
    ]:
        bound = math.sqrt(6 / (1 + a * a) / linear.in_features)
        assert bound * 0.98 < linear.weight.abs().max().item() <= bound
    assert model.node_encoder.embedding.weight.std().item() == pytest.approx(1.0, rel=0.1)
    assert model.norm.alpha.abs().max() == 0
    assert (model.norm.beta == 1).all()


def test_stochastic_depth_is_per_graph_and_alike_in_every_layer():
    model = create_model("ppgt", **(SMALL | {"drop_path": 0.25, "num_layers": 3}))
    assert {r.drop_path.rate for layer in model.layers for r in (layer.residual1, layer.residual2)} == {0.25}
    model.train()
    residual = model.layers[0].residual1
    out = residual(torch.zeros(200, 8), torch.ones(200, 8), torch.arange(40).repeat_interleave(5), 40).view(40, 40)
    assert (out == out[:, :1]).all()  # a branch is dropped for a whole graph
    torch.testing.assert_close(out[:, 0].unique(), torch.tensor([0.0, 1 / 0.75]))
