"""Polynormer as released equals its equations, the authors' outputs and torch_geometric's model."""

import re

import pytest
import torch
from torch_geometric.nn import GATConv

from gt_models import create_model
from gt_models.batch import GraphBatch
from gt_models.polynormer.neighbours import GraphAttention
from tests.gt_models import checks
from tests.gt_models.polynormer.cases import build, graphs

RELEASED = "polynormer-released"


OFFICIAL_NAMES = (
    (r"^global_attn\.h_lins\.(\d)", r"global_layers.\1.gate"),
    (r"^global_attn\.k_lins\.(\d)", r"global_layers.\1.attention.key"),
    (r"^global_attn\.v_lins\.(\d)", r"global_layers.\1.attention.value"),
    (r"^global_attn\.lns\.(\d)", r"global_layers.\1.norm"),
    (r"^global_attn\.lin_out", "global_output"),
    (r"^h_lins\.(\d)", r"local_layers.\1.gate"),
    (r"^lins\.(\d)", r"local_layers.\1.skip"),
    (r"^lns\.(\d)", r"local_layers.\1.norm"),
    (r"^pre_lns\.(\d)", r"local_layers.\1.pre_norm"),
    (r"^post_bns\.(\d)", r"local_layers.\1.batch_norm"),
    (r"^local_convs\.(\d)\.lin", r"local_layers.\1.local.linear"),
    (r"^local_convs\.(\d)\.bias", r"local_layers.\1.local.bias"),
    (r"^local_convs\.(\d)\.att_src", r"local_layers.\1.local.att_source"),
    (r"^local_convs\.(\d)\.att_dst", r"local_layers.\1.local.att_target"),
    (r"^lin_in", "input.linear"),
    (r"^ln\.", "between_norm."),
    (r"^pred_local", "local_head"),
    (r"^pred_global", "head"),
)


def renamed(case: dict, prefix: str) -> dict:
    """The authors' parameter names -> ours."""
    out = {}
    for key, value in case.items():
        name = key.removeprefix(prefix)
        if name == key:
            continue
        if name in ("betas", "global_attn.betas"):
            layers = "local_layers" if name == "betas" else "global_layers"
            out |= {f"{layers}.{i}.beta.weight": row for i, row in enumerate(value)}
            continue
        for pattern, ours in OFFICIAL_NAMES:
            if re.match(pattern, name):
                name = re.sub(pattern, ours, name)
                break
        out[name] = value.squeeze(0) if "att_" in name else value
    return out


@pytest.mark.parametrize("name", ["polynormer_beta0.4_preln", "polynormer_betaneg1"])
def test_equals_the_authors_numbers(parity, name):
    case = parity(name)
    beta = {"beta": "raw", "beta_init": 0.4} if float(case["meta.beta"]) >= 0 else {"beta": "sigmoid"}
    model = build(name=RELEASED, in_dim=5, relu=True, pre_norm=bool(case["meta.pre_ln"]), **beta)
    model.load_state_dict(renamed(case, "w."))
    graph = GraphBatch(case["in.x"], case["in.edge_index"], torch.tensor([0, 12]))
    model.set_phase("local")
    torch.testing.assert_close(model.forward_features(graph), case["out.x_local_sum"], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(model(graph), case["out.pred_local"], rtol=1e-10, atol=1e-10)
    model.set_phase("global")
    out = model(graph)
    torch.testing.assert_close(out, case["out.pred_global"], rtol=1e-10, atol=1e-10)
    loss = (out * case["in.loss_weight"]).sum()
    torch.testing.assert_close(loss, case["out.loss"], rtol=1e-10, atol=1e-10)
    loss.backward()
    gradients = renamed(case, "g.")
    assert {k for k, p in model.named_parameters() if p.grad is not None} == set(gradients)
    for key, parameter in model.named_parameters():
        if key in gradients:
            torch.testing.assert_close(parameter.grad, gradients[key], rtol=1e-9, atol=1e-10)


def test_equals_the_authors_numbers_for_large_graphs(parity):
    case = parity("polynormer_lg_gcn")
    model = build(
        name=RELEASED,
        in_dim=5,
        relu=True,
        local_layer="gcn",
        batch_norm=True,
        beta="constant",
        beta_init=0.9,
        input_layer=False,
    ).eval()
    weights = {k: v for k, v in renamed(case, "w.").items() if not k.startswith("input.") and ".beta." not in k}
    model.load_state_dict(weights)
    graph = GraphBatch(case["in.x"], case["in.edge_index"], torch.tensor([0, 12]))
    torch.testing.assert_close(model(graph), case["out.pred_global"], rtol=1e-10, atol=1e-10)


def test_torch_geometrics_polynormer_agrees_where_it_can():
    # Differences there: beta is constant, 1e-6 is added to the denominator, it returns log-probabilities, and its
    # global layers accept only one head. In a batch, padded keys (sigmoid(0), not zero) enter the denominator, so the
    # comparison uses one graph.
    theirs = pytest.importorskip("torch_geometric.nn.models").Polynormer(
        8, 8, 3, local_layers=2, global_layers=2, in_dropout=0.0, dropout=0.0, global_dropout=0.0, heads=1, beta=0.9,
        qk_shared=True
    ).double().eval()  # fmt: skip
    theirs._global = True
    model = build(
        name=RELEASED, in_dim=8, num_heads=1, relu=True, beta="constant", beta_init=0.9, input_layer=False,
        batch_norm=theirs.post_bn,
        pre_norm=theirs.pre_ln, local_layer="gat" if isinstance(theirs.local_convs[0], GATConv) else "gcn",
    ).eval()  # fmt: skip
    with torch.no_grad():
        for mine, layer in zip(model.global_layers, theirs.global_attn, strict=True):
            layer.lin_out.load_state_dict(model.global_output.state_dict())
            mine.gate.load_state_dict(layer.h_lins.state_dict())
            for here, there in ((mine.attention.key, layer.k), (mine.attention.value, layer.v)):
                here.weight.copy_(there.weight)
                here.bias.zero_()
        for i, mine in enumerate(model.local_layers):
            for here, there in ((mine.gate, theirs.h_lins), (mine.skip, theirs.lins), (mine.norm, theirs.lns)):
                here.load_state_dict(there[i].state_dict())
            mine.local.linear.weight.copy_(theirs.local_convs[i].lin.weight)
            if mine.local.__class__ is GraphAttention:
                mine.local.att_source.copy_(theirs.local_convs[i].att_src[0])
                mine.local.att_target.copy_(theirs.local_convs[i].att_dst[0])
        model.head.load_state_dict(theirs.pred_global.state_dict())
        model.between_norm.load_state_dict(theirs.ln.state_dict())
    graph = checks.random_graphs((9,), in_dim=8)[0]
    loops = torch.arange(9).expand(2, 9)
    expected = theirs(graph.x, torch.cat([graph.edge_index, loops], 1), torch.zeros(9, dtype=torch.long))
    torch.testing.assert_close(model(graph).log_softmax(-1), expected, rtol=1e-5, atol=1e-5)


def test_the_local_phase_trains_a_head_of_its_own():
    model, batch = build(name=RELEASED), checks.collate(graphs())
    model.set_phase("local")
    checks.assert_gradients_reach(model, batch, ("head", "global_", "between_norm"))
    assert all(p.grad is None for n, p in model.named_parameters() if n.startswith(("head", "global_", "between_norm")))
    with pytest.raises(ValueError, match="phases"):
        model.set_phase("warmup")


# -- sizes


@pytest.mark.parametrize(
    ("in_dim", "out_dim", "width", "heads", "local", "global_", "beta", "pre_norm", "printed"),
    [  # authors' settings; features and classes of the dataset (Table 4); published: MATH.md, in millions
        pytest.param(300, 18, 512, 8, 10, 2, 0.5, False, 9.92, id="roman-empire"),
        pytest.param(300, 5, 512, 2, 10, 1, None, False, 9.11, id="amazon-ratings"),
        pytest.param(7, 2, 512, 8, 10, 3, None, False, 10.54, id="minesweeper"),
        pytest.param(10, 2, 960, 16, 7, 4, 0.1, False, 31.4, id="tolokers"),
        pytest.param(301, 2, 512, 8, 5, 3, 0.4, True, 6.74, id="questions"),
        pytest.param(300, 10, 512, 1, 7, 2, None, False, 7.54, id="wikics"),
        pytest.param(100, 10, 64, 1, 7, 2, None, False, 0.126548, id="measured, width 64"),
        pytest.param(100, 10, 512, 8, 7, 2, None, False, 7.434772, id="measured, width 512"),
    ],
)
def test_parameter_counts(in_dim, out_dim, width, heads, local, global_, beta, pre_norm, printed):
    with torch.device("meta"):
        model = create_model(
            RELEASED, in_dim=in_dim, out_dim=out_dim, level="node", hidden_dim=width, num_heads=heads,
            num_local_layers=local,
            num_global_layers=global_, relu=True, beta="sigmoid" if beta is None else "raw", beta_init=beta,
            pre_norm=pre_norm,
        )  # fmt: skip
    digits = len(str(printed).partition(".")[2])
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, digits) == printed


def test_start_of_beta():
    fixed = build(name=RELEASED, beta="raw", beta_init=0.4)
    for layer in (*fixed.local_layers, *fixed.global_layers):
        torch.testing.assert_close(layer.beta.weight, torch.full_like(layer.beta.weight, 0.4), rtol=0, atol=1e-7)
    constant = build(name=RELEASED, beta="constant", beta_init=0.9)
    assert constant.local_layers[0].beta(None).tolist() == [0.9] * 8
    assert not [name for name, _ in constant.named_parameters() if "beta" in name]
