"""Polynormer against its equations, the authors' numbers, torch_geometric's layers, and what its theorem claims."""

import copy
import itertools
import re

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv

from gt_models import create_model
from gt_models.batch import GraphBatch, MissingEncoding
from gt_models.polynormer import PolynomialBase
from gt_models.polynormer.neighbours import GraphAttention, GraphConvolution
from tests.gt_models import checks
from tests.gt_models.reference import polynormer as reference

ATTENTION = ("local", "global", "local-to-global", "local-and-global")
VARIANTS = {
    "equation 17": {},
    "equation 7": {"norm": "none"},
    "r": {"relu": True},
    "released": {"form": "released", "relu": True},
    "released without relu": {"form": "released", "beta": "raw", "beta_init": 0.5, "pre_norm": True},
    "large graphs": {
        "form": "released", "relu": True, "local_layer": "gcn", "beta": "constant", "beta_init": 0.9, "batch_norm": True,
        "input_layer": False,
    },
    "v2": {"version": "v2"},
    "v2 released": {"version": "v2", "form": "released", "beta": "raw", "beta_init": 0.3, "relu": True},
    "random walk": {"local_layer": "random-walk", "norm": "none", "version": "v2", "beta": "raw", "beta_init": 1.0},
}  # fmt: skip


def build(level="node", **arguments):
    settings = {"in_dim": 4, "out_dim": 3, "level": level, "hidden_dim": 8, "num_heads": 2, "num_local_layers": 2, "num_global_layers": 2}
    return create_model("polynormer", **settings | arguments).double()


def redraw(model: nn.Module) -> nn.Module:
    """Weights at which every bias, norm, gate and statistic matters."""
    with torch.no_grad():
        for tensor in itertools.chain(model.parameters(), model.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.3 * torch.rand_like(tensor))
    return model


def graphs(sizes=(5, 3, 7)) -> list[GraphBatch]:
    return checks.random_graphs(sizes, node_encodings=(("second_eigenvector", 1),))


def messy_graph() -> GraphBatch:
    """Six nodes: a triangle, a stored self-loop (twice), a parallel edge, a directed edge, and node 5 alone."""
    pairs = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2), (0, 0), (0, 0), (0, 1), (3, 4)]
    x, v2 = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, 1, dtype=torch.float64)
    return GraphBatch(x, torch.tensor(pairs).T.contiguous(), torch.tensor([0, 6]), encodings={"second_eigenvector": v2})


# -- the equations -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_the_equations(variant, attention):
    settings = VARIANTS[variant] | {"attention": attention}
    if attention == "global" and not settings.get("input_layer", True):
        settings["input_layer"] = True
    model = redraw(build(**settings)).eval()
    for phase in model.phases:
        model.set_phase(phase)
        for graph in (graphs()[2], messy_graph()):
            torch.testing.assert_close(model(graph), reference.polynormer(model, graph), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("pooling", ["mean", "sum", "max"])
def test_graph_level_equals_the_equations(pooling):
    model = redraw(build("graph", pooling=pooling)).eval()
    torch.testing.assert_close(model(graphs()[2]), reference.polynormer(model, graphs()[2]), rtol=1e-10, atol=1e-10)


OFFICIAL_NAMES = (
    (r"^global_attn\.h_lins\.(\d)", r"global_layers.\1.gate"), (r"^global_attn\.k_lins\.(\d)", r"global_layers.\1.attention.key"),
    (r"^global_attn\.v_lins\.(\d)", r"global_layers.\1.attention.value"), (r"^global_attn\.lns\.(\d)", r"global_layers.\1.norm"),
    (r"^global_attn\.lin_out", "global_output"), (r"^h_lins\.(\d)", r"local_layers.\1.gate"), (r"^lins\.(\d)", r"local_layers.\1.skip"),
    (r"^lns\.(\d)", r"local_layers.\1.norm"), (r"^pre_lns\.(\d)", r"local_layers.\1.pre_norm"),
    (r"^post_bns\.(\d)", r"local_layers.\1.batch_norm"), (r"^local_convs\.(\d)\.lin", r"local_layers.\1.local.linear"),
    (r"^local_convs\.(\d)\.bias", r"local_layers.\1.local.bias"), (r"^local_convs\.(\d)\.att_src", r"local_layers.\1.local.att_source"),
    (r"^local_convs\.(\d)\.att_dst", r"local_layers.\1.local.att_target"), (r"^lin_in", "input.linear"), (r"^ln\.", "between_norm."),
    (r"^pred_local", "local_head"), (r"^pred_global", "head"),
)  # fmt: skip


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
    model = build(in_dim=5, form="released", relu=True, pre_norm=bool(case["meta.pre_ln"]), **beta)
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
        in_dim=5, form="released", relu=True, local_layer="gcn", batch_norm=True, beta="constant", beta_init=0.9, input_layer=False
    ).eval()
    weights = {k: v for k, v in renamed(case, "w.").items() if not k.startswith("input.") and ".beta." not in k}
    model.load_state_dict(weights)
    graph = GraphBatch(case["in.x"], case["in.edge_index"], torch.tensor([0, 12]))
    torch.testing.assert_close(model(graph), case["out.pred_global"], rtol=1e-10, atol=1e-10)


# -- the layers beside torch_geometric's -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "width"), [(1, 8), (2, 4), (3, 5)])
def test_attention_equals_gatconv_with_its_gradients(heads, width):
    graph = messy_graph()
    ours, theirs = GraphAttention(4, heads * width, heads).double(), GATConv(4, width, heads, bias=False).double()
    with torch.no_grad():
        theirs.lin.weight.copy_(ours.linear.weight)
        theirs.att_src.copy_(ours.att_source[None])
        theirs.att_dst.copy_(ours.att_target[None])
    x, y = graph.x.clone().requires_grad_(), graph.x.clone().requires_grad_()
    out, expected = ours(x, graph), theirs(y, graph.edge_index)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(out)
    (out * weight).sum().backward()
    (expected * weight).sum().backward()
    for mine, other in [(x.grad, y.grad), (ours.linear.weight.grad, theirs.lin.weight.grad)]:
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(ours.att_source.grad[None], theirs.att_src.grad, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(ours.att_target.grad[None], theirs.att_dst.grad, rtol=1e-10, atol=1e-10)


def test_attention_does_not_overflow():
    graph = messy_graph()
    layer = GraphAttention(4, 8, 2).double()
    graph.x *= 1e4
    assert layer(graph.x, graph).isfinite().all()


def test_convolution_equals_gcnconv_with_its_gradients():
    graph = messy_graph()
    ours, theirs = redraw(GraphConvolution(4, 8).double()), GCNConv(4, 8).double()
    with torch.no_grad():
        theirs.lin.weight.copy_(ours.linear.weight)
        theirs.bias.copy_(ours.bias)
    x, y = graph.x.clone().requires_grad_(), graph.x.clone().requires_grad_()
    out, expected = ours(x, graph), theirs(y, graph.edge_index)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    weight = torch.randn_like(out)
    (out * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-10, atol=1e-10)


def test_stored_self_loops_change_nothing_but_parallel_edges_do():
    graph, model = graphs()[2], build().eval()
    loops = torch.arange(7).expand(2, 7)
    with_loops = GraphBatch(graph.x, torch.cat([loops, graph.edge_index, loops], 1), graph.ptr)
    doubled = GraphBatch(graph.x, torch.cat([graph.edge_index, graph.edge_index[:, :1]], 1), graph.ptr)
    torch.testing.assert_close(model(with_loops), model(graph), rtol=1e-10, atol=1e-10)
    assert (model(doubled) - model(graph)).abs().max() > 1e-6


def test_a_changed_edge_index_is_seen():
    graph, model = graphs()[2], build().eval()
    before = model(graph)
    graph.edge_index = graph.edge_index[:, :-2]
    fewer = model(graph)
    assert (fewer - before).abs().max() > 1e-6
    graph.edge_index[:, 0] = graph.edge_index[:, 1]  # in place
    fresh = GraphBatch(graph.x, graph.edge_index.clone(), graph.ptr)
    torch.testing.assert_close(model(graph), model(fresh), rtol=0, atol=0)


def test_torch_geometrics_polynormer_agrees_where_it_can():
    # Different there: beta is constant, the denominator has 1e-6 added, it returns log-probabilities, its global layers accept one head
    # only, and in a batch of unlike graphs padded keys, sigmoid(0) and not zero, enter the denominator: compared on one graph.
    theirs = pytest.importorskip("torch_geometric.nn.models").Polynormer(
        8, 8, 3, local_layers=2, global_layers=2, in_dropout=0.0, dropout=0.0, global_dropout=0.0, heads=1, beta=0.9, qk_shared=True
    ).double().eval()  # fmt: skip
    theirs._global = True
    model = build(
        in_dim=8, num_heads=1, form="released", relu=True, beta="constant", beta_init=0.9, input_layer=False, batch_norm=theirs.post_bn,
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


# -- what every model must satisfy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "attention", "level"),
    [(v, a, "node") for v in ("equation 17", "r") for a in ATTENTION]
    + [(v, "local-to-global", "node") for v in ("equation 7", "v2", "random walk")]
    + [("equation 17", a, "graph") for a in ("local-to-global", "local-and-global")],
)
def test_sound(variant, attention, level):
    checks.assert_sound(lambda: build(level, attention=attention, **VARIANTS[variant]), graphs(), level)


@pytest.mark.parametrize("level", ["node", "graph"])
@pytest.mark.parametrize("variant", ["released", "large graphs", "v2 released"])
def test_sound_as_released(variant, level):
    def make():
        return build(level, **VARIANTS[variant])

    checks.assert_deterministic(make, checks.collate(graphs()))
    checks.assert_gradients_reach(make(), checks.collate(graphs()), ("local_head",))
    checks.assert_batch_equals_singles(make(), graphs())
    for graph in graphs():
        checks.assert_equivariant(make(), graph, level)


def test_each_phase_trains_its_own_part():
    model, batch = build(form="released"), checks.collate(graphs())
    model.set_phase("local")
    checks.assert_gradients_reach(model, batch, ("head", "global_", "between_norm"))
    assert all(p.grad is None for n, p in model.named_parameters() if n.startswith(("head", "global_", "between_norm")))
    paper = build()
    paper.set_phase("local")
    checks.assert_gradients_reach(paper, batch, ("global_",))
    with pytest.raises(ValueError, match="phases"):
        build(attention="local-and-global").set_phase("global")
    with pytest.raises(ValueError, match="phases"):
        model.set_phase("warmup")


# -- what the paper claims --------------------------------------------------------------------------------------------------------------


def test_base_model_equals_equation_4():
    model = redraw(PolynomialBase(4, 3, 2).double())
    x = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(model(x), reference.base_model(x, list(model.weights), list(model.biases)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_base_model_represents_a_monomial_of_degree_two_to_the_layers(num_layers):
    # Theorem 3.3: X_i times a monomial of degree 2^L - 1 in the rows; here with W a cyclic shift per layer, so that node i multiplies the
    # rows i + S for the sums S of every subset of the shifts 1, 2, 4
    n = 8
    model = PolynomialBase(n, 2, num_layers).double()
    with torch.no_grad():
        for layer in range(num_layers):
            model.biases[layer].zero_()
            model.weights[layer].copy_(torch.eye(n, dtype=torch.float64).roll(2**layer, 1))
    x = torch.randint(1, 4, (n, 2)).double()  # whole numbers: the arithmetic is exact
    expected = torch.stack([torch.stack([x[(i + s) % n] for s in range(2**num_layers)]).prod(0) for i in range(n)])
    assert torch.equal(model(x), expected)


def degree(function, most: int) -> int:
    """Degree of a polynomial in one variable from its finite differences at whole numbers, the smallest d whose (d + 1)st vanish."""
    values = torch.stack([function(float(t)).flatten() for t in range(most + 3)])
    scale = values.abs().max()
    for d in range(most + 2):
        values = values[1:] - values[:-1]
        if values.abs().max() <= 1e-9 * scale:
            return d
    return most + 2


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_local_layers_without_norm_have_degree_two_to_the_layers(num_layers):
    # fixed weights for A (random walk): attention scores would depend on the features, and the degree is that at given scores
    graph = graphs()[2]
    model = redraw(build(attention="local", local_layer="random-walk", norm="none", num_local_layers=num_layers)).eval()
    direction = 0.1 * torch.randn_like(graph.x)

    def at(t: float) -> torch.Tensor:
        return model(GraphBatch(graph.x + t * direction, graph.edge_index, graph.ptr))

    assert degree(at, 2**num_layers) == 2**num_layers


def test_version_2_tells_apart_what_version_1_cannot():
    # Appendix K, Figure 6: circular skip links, features and beta all one, random walk for A; one layer, no projection
    def circle(skip: int) -> GraphBatch:
        nodes = torch.arange(11)
        pairs = torch.cat([torch.stack([nodes, (nodes + s) % 11]) for s in (1, -1, skip, -skip)], 1)
        adjacency = torch.zeros(11, 11, dtype=torch.float64)
        adjacency[pairs[0], pairs[1]] = 1
        _, vectors = torch.linalg.eigh(torch.eye(11, dtype=torch.float64) - adjacency / 4)
        return GraphBatch(
            torch.ones(11, 1, dtype=torch.float64), pairs, torch.tensor([0, 11]), encodings={"second_eigenvector": vectors[:, 1:2]}
        )

    outputs = {}
    for version in ("v1", "v2"):
        model = build(
            "graph", in_dim=1, out_dim=1, hidden_dim=1, num_heads=1, num_local_layers=3, attention="local", local_layer="random-walk",
            norm="none", version=version, beta="constant", beta_init=1.0, input_layer=False, pooling="max",
        )  # fmt: skip
        with torch.no_grad():
            for layer in model.local_layers:
                layer.gate.weight.fill_(1)
                layer.gate.bias.zero_()
                layer.local.linear.weight.fill_(1)
        outputs[version] = [model.eval().forward_features(circle(skip)).flatten().sort().values for skip in (2, 3)]
    torch.testing.assert_close(*outputs["v1"], rtol=1e-12, atol=1e-12)
    assert (outputs["v2"][0] - outputs["v2"][1]).abs().max() > 1e-3


# -- sizes --------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_dim", "out_dim", "width", "heads", "local", "global_", "beta", "pre_norm", "printed"),
    [  # authors' settings; features and classes of the dataset (Table 4); printed: MATH.md, in millions
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
            "polynormer", in_dim=in_dim, out_dim=out_dim, level="node", hidden_dim=width, num_heads=heads, num_local_layers=local,
            num_global_layers=global_, form="released", relu=True, beta="sigmoid" if beta is None else "raw", beta_init=beta,
            pre_norm=pre_norm,
        )  # fmt: skip
    digits = len(str(printed).partition(".")[2])
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, digits) == printed


# -- inputs of every kind --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("level", ["node", "graph"])
def test_odd_graphs(level, attention):
    model = build(level, attention=attention).eval()
    nodes = GraphBatch(torch.randn(1, 4).double(), torch.empty(2, 0, dtype=torch.long), torch.tensor([0, 1]))  # one node, no edge
    empty = GraphBatch(torch.empty(0, 4).double(), torch.empty(2, 0, dtype=torch.long), torch.tensor([0, 0]))
    messy = messy_graph()
    messy.encodings = {}
    batch = checks.collate([messy, empty, nodes])
    out = model(batch)
    assert out.isfinite().all()
    assert len(out) == (3 if level == "graph" else 7)
    if level == "node":
        torch.testing.assert_close(out, torch.cat([model(messy), model(nodes)]), rtol=1e-10, atol=1e-10)
    assert torch.isfinite(model(empty)).all()


def test_an_induced_subgraph_is_a_graph():
    graph, model = graphs()[2], build()
    keep = torch.tensor([1, 3, 4, 6])
    place = torch.full((7,), -1)
    place[keep] = torch.arange(4)
    edges = place[graph.edge_index]
    part = GraphBatch(graph.x[keep], edges[:, (edges >= 0).all(0)], torch.tensor([0, 4]))
    out = model(part)
    out.sum().backward()
    assert out.shape == (4, 3)
    assert out.isfinite().all()


def test_takes_torch_geometric_data_and_categorical_features():
    graph = graphs()[0]
    model = build().eval()
    data = Data(x=graph.x, edge_index=graph.edge_index)
    torch.testing.assert_close(model(data), model(graph), rtol=0, atol=0)
    words = create_model("polynormer", in_dim=[5, 3], out_dim=2, level="node", hidden_dim=8, num_heads=2, in_dropout=0.5)
    assert words(Data(x=torch.tensor([[4, 2], [0, 1]]), edge_index=torch.tensor([[0, 1], [1, 0]]))).shape == (2, 2)


def test_bfloat16_autocast_is_near_float32():
    graph, model = graphs((40,))[0].to("cpu", torch.float32), build(relu=True, form="released").float().eval()
    expected = model(graph)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(graph)
        model.train()(graph).float().sum().backward()
    assert (out.float() - expected).abs().max() < 0.05 * expected.abs().max() + 0.05
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_compiles():
    graph, model = graphs()[2], build(form="released", relu=True).eval()
    compiled = torch.compile(model, backend="aot_eager")
    out = compiled(graph)
    torch.testing.assert_close(out, model(graph), rtol=1e-10, atol=1e-10)
    out.sum().backward()
    assert model.local_layers[0].local.att_source.grad.abs().max() > 0
    # the layers are one graph: only sorting the edges stays outside
    layer, x, edges = model.local_layers[0], torch.randn(7, 8, dtype=torch.float64), model.local_layers[0].local.edges(graph)
    whole = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(whole(x, graph, edges, None), layer(x, graph, edges, None), rtol=1e-10, atol=1e-10)


def test_state_is_stable_and_tensors_are_not_shared(tmp_path):
    from safetensors.torch import load_file, save_file

    model, graph = build(form="released"), graphs()[0]
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = build(form="released")
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(other.eval()(graph), model.eval()(graph))
    twin = copy.deepcopy(model)
    twin.reset_parameters()
    assert not torch.equal(twin.local_layers[0].gate.weight, model.local_layers[0].gate.weight)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden_dim": 9}, "multiple of num_heads"),
        ({"attention": "both"}, "local-to-global"),
        ({"form": "official"}, "released"),
        ({"version": "v3"}, "v2"),
        ({"local_layer": "gin"}, "gcn"),
        ({"norm": "batch"}, "layer"),
        ({"beta": "raw"}, "beta_init"),
        ({"beta": "tanh"}, "sigmoid"),
        ({"num_local_layers": 0}, "at least one layer"),
        ({"input_layer": False, "attention": "global"}, "input_layer"),
        ({"input_layer": False, "in_dim": [3, 4]}, "input_layer"),
        ({"level": "pair"}, "pair"),
        ({"dropout": 1.0}, "dropout"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        build(**arguments)


def test_tensors_made_in_inference_mode():
    model = build().eval()
    expected = model(graphs()[2])
    with torch.inference_mode():
        graph = graphs()[2]  # its tensors count no versions, by which kept edges are told from changed ones
        torch.testing.assert_close(model(graph), expected, rtol=0, atol=0)
        graph.edge_index[:, 0] = graph.edge_index[:, 1]
        fresh = GraphBatch(graph.x, graph.edge_index.clone(), graph.ptr)
        torch.testing.assert_close(model(graph), model(fresh), rtol=0, atol=0)


def test_start_of_beta():
    """Xavier normal over all layers' [L, d], or what is asked for."""
    for module, count in ((build(hidden_dim=400, num_local_layers=5).local_layers, 5), (build(hidden_dim=400).global_layers, 2)):
        drawn = torch.cat([layer.beta.weight for layer in module])
        assert drawn.std().item() == pytest.approx((2 / (count + 400)) ** 0.5, rel=0.15)
        assert abs(drawn.mean().item()) < 0.01
    fixed = build(beta="raw", beta_init=0.4)
    for layer in (*fixed.local_layers, *fixed.global_layers):
        torch.testing.assert_close(layer.beta.weight, torch.full_like(layer.beta.weight, 0.4), rtol=0, atol=1e-7)


def test_bad_inputs():
    with pytest.raises(MissingEncoding, match="second_eigenvector"):
        build(version="v2")(checks.random_graphs((4,))[0])
    with pytest.raises(ValueError, match="columns"):
        build(in_dim=6)(graphs()[0])
