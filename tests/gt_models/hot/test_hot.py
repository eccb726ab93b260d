"""HOT against its equations, the authors' numbers and parameter counts, its theorem, and what every model must satisfy."""

import pytest
import torch
from torch_geometric.data import Data

from gt_models import GraphBatch, create_model
from gt_models.hot.attention import HigherOrderAttention
from gt_models.hot.equivalence_classes import light_classes
from gt_models.hot.equivariant_linear import EquivariantLinear
from gt_models.hot.support import Support
from gt_models.hot.tensor_head import TensorHead
from gt_models.hot.tensor_input import TensorInput
from gt_models.kernels import use
from gt_models.nn.performer import RandomFeatures
from tests.gt_models import checks
from tests.gt_models.hot.test_equivariant_linear import parity_support, to_rows
from tests.gt_models.reference import hot as reference

FORMS = [
    ("softmax", "unique", False),
    ("softmax", "summed", False),
    ("kernel", "unique", False),
    ("kernel", "summed", False),
    ("kernel", "summed", True),
]
# the model of the paper and that of the release, each in both of its forms
MODELS = [(name, attention) for name in ("hot", "hot-released") for attention in ("softmax", "kernel")]


@pytest.fixture(autouse=True)
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def build(level="graph", name="hot", **arguments):
    arguments = {"hidden_dim": 8, "num_layers": 1, "num_heads": 2, "edge_dim": 3} | arguments
    return create_model(name, in_dim=4, out_dim=3, level=level, **arguments)


def supports(graph: GraphBatch, k: int, l: int) -> Support:
    return Support.complete(graph, max(k, l, 2)) if (k, l) == (1, 2) or l == 3 else Support.sparse(graph)


# equations


@pytest.mark.parametrize(("attention", "key_order", "key_diagonal"), FORMS)
@pytest.mark.parametrize(("k", "l"), [(k, l) for k in range(3) for l in range(3)] + [(1, 3)])
def test_attention_is_its_definition(k, l, attention, key_order, key_diagonal):
    graph = checks.random_graphs(sizes=(5,), density=0.6, seed=k + l)[0]
    support = supports(graph, k, l)
    layer = HigherOrderAttention(k, l, 4, 4, 6, 2, attention=attention, key_order=key_order, key_diagonal=key_diagonal)
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.5)
    features = RandomFeatures(2, 3, None, "relu")
    values = torch.randn(len(support.sets[k]), 4)
    expected = reference.attention(layer, values, reference.tuples_of(support), reference.generalized_features(features.projection))
    torch.testing.assert_close(layer(values, support, features), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("global_classes", [True, False])
def test_encoder_layer_is_its_definition(global_classes):
    graph = checks.random_graphs(sizes=(5,))[0]
    model = build("node", attention="softmax", num_layers=1, ffn_dim=6, global_classes=global_classes)
    support = model.support(graph)
    values, tuples = torch.randn(len(support.sets[2]), 8), reference.tuples_of(support)
    for layer in model.layers:  # 2 -> 2 and 2 -> 1
        expected = reference.enc_layer(layer, values, tuples)
        torch.testing.assert_close(layer(values, support), expected, rtol=1e-10, atol=1e-10)


def test_hyperedge_attention_is_its_definition():
    graph = checks.random_graphs(sizes=(6,))[0]
    support = Support(graph).add_hyperedges(torch.tensor([[0, 3, 5], [5, 1, 2], [0, 3, 5]]))
    layer = HigherOrderAttention(1, 3, 4, 4, 4, 2, attention="softmax", distinct_output=True)
    assert len(layer.classes) == 1  # the one class that sums, of the four
    assert len(layer.maps["3"].classes) == 3
    values = torch.randn(6, 4)
    torch.testing.assert_close(layer(values, support), reference.attention(layer, values, reference.tuples_of(support)))


def test_softmax_kernel_approaches_softmax_where_all_keys_are_shared():
    """Enc 1 -> 0 style attention over all keys: class {i}{j1, j2} of 1 -> 2 sums over all nodes in the kernel form; with many features the
    kernel form is exp(q k / sqrt d) over that union."""
    graph = checks.random_graphs(sizes=(6,))[0]
    support = Support.complete(graph, 2)
    layer = HigherOrderAttention(1, 2, 4, 4, 4, 1, attention="kernel")
    values = 0.5 * torch.randn(6, 4)
    layer_out = layer(values, support, RandomFeatures(4, 50_000, None, "softmax", eps=0.0))
    layer.attention = "softmax"
    before = reference.exact_keys
    reference.exact_keys = reference.union_keys
    try:
        expected = reference.attention(layer, values, reference.tuples_of(support))
    finally:
        reference.exact_keys = before
    torch.testing.assert_close(layer_out, expected, rtol=0.02, atol=0.02)


def test_stabilizer_does_not_change_the_kernel():
    """With eps 0 it cancels: per graph, for the whole call, or none at all give one result."""
    batch = checks.collate(checks.random_graphs())
    support, features = Support.sparse(batch), RandomFeatures(2, 5, None, "softmax", eps=0.0)
    layer = HigherOrderAttention(2, 2, 4, 4, 4, 2, attention="kernel")
    values = torch.randn(len(support.sets[2]), 4)
    per_graph = layer(values, support, features)
    layer.key_stabilizer = "call"
    torch.testing.assert_close(layer(values, support, features), per_graph, rtol=1e-9, atol=1e-9)


# Theorem 1 and Section 4


@pytest.mark.parametrize(("k", "l"), [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2), (1, 3)])
def test_attention_of_ones_is_the_equivariant_linear_layer(k, l):
    """Theorem 1: alpha = 1 gives L_{k->l} with w_mu = w^V w^O, the light classes taken by the layer's own linear path."""
    graph = checks.random_graphs(sizes=(5,))[0]
    support = supports(graph, k, l)
    attend = HigherOrderAttention(k, l, 4, 4, 6, 2, attention="ones")
    torch.nn.init.zeros_(attend.value.bias)
    linear = EquivariantLinear(k, l, 4, 4)
    own = attend.maps[str(l)]
    with torch.no_grad():
        linear.weight.zero_()
        linear.bias.copy_(own.bias[:, -4:] + attend.output.bias)
        for a, c in enumerate(linear.classes):
            if c in own.classes and l > 0:
                at = own.classes.index(c)
                linear.weight[a * 4 : a * 4 + 4] += own.weight[at * 4 : at * 4 + 4, -4:]
            if c in attend.classes:
                v, o = (order.index(c) * 6 for order in (attend.value_slots, attend.classes))
                linear.weight[a * 4 : a * 4 + 4] += attend.value.weight[v : v + 6].T @ attend.output.weight[:, o : o + 6].T
        if l == 0:
            linear.weight += own.weight[:, -4:]
    values = torch.randn(len(support.sets[k]), 4)
    torch.testing.assert_close(attend(values, support), linear(values, support), rtol=1e-10, atol=1e-10)


def test_softmax_without_queries_is_the_mean_layer():
    """Equal scores: softmax averages over exactly the keys of a class, as the normalised linear layer does."""
    graph = checks.random_graphs(sizes=(6,))[0]
    support = Support.sparse(graph)
    attend = HigherOrderAttention(2, 2, 4, 4, 4, 1, attention="softmax")
    linear = EquivariantLinear(2, 2, 4, 4, normalize=True, bias=False)
    own = attend.maps["2"]
    with torch.no_grad():
        for layer in attend.maps.values():
            torch.nn.init.zeros_(layer.weight[:, : layer.out_dim - 4 * (layer is own)])
        for a, c in enumerate(linear.classes):
            if c in own.classes:
                at = own.classes.index(c)
                linear.weight[a * 4 : a * 4 + 4] = own.weight[at * 4 : at * 4 + 4, -4:]
            else:
                v, o = (order.index(c) * 4 for order in (attend.value_slots, attend.classes))
                linear.weight[a * 4 : a * 4 + 4] = attend.value.weight[v : v + 4].T @ attend.output.weight[:, o : o + 4].T
    values = torch.randn(len(support.sets[2]), 4)
    torch.testing.assert_close(attend(values, support), linear(values, support), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("name", "attention"), MODELS)
def test_sparse_on_the_complete_graph_is_dense(name, attention):
    n = 5
    pairs = (~torch.eye(n, dtype=torch.bool)).nonzero().T
    graph = GraphBatch(torch.randn(n, 4), pairs, torch.tensor([0, n]), torch.randn(n * n - n, 3))
    sparse, dense = build("node", name, attention=attention), build("node", name, attention=attention, form="dense")
    dense.load_state_dict(sparse.state_dict())
    torch.testing.assert_close(sparse.eval()(graph), dense.eval()(graph), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("level", ["node", "graph"])
def test_ablation_removes_what_reaches_beyond_edges(level):
    """Without global classes a node of another component changes nothing at node level; with them it does."""
    two = GraphBatch(torch.randn(4, 4), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]), torch.tensor([0, 4]), torch.randn(4, 3))
    other = GraphBatch(torch.cat([two.x[:2], torch.randn(2, 4)]), two.edge_index, two.ptr, two.edge_attr)
    for global_classes in (False, True):
        model = build(level, attention="softmax", global_classes=global_classes).eval()
        if level == "node":
            assert torch.equal(model(two)[:2], model(other)[:2]) != global_classes
        else:  # the readout 2 -> 0 keeps its classes: nothing would be left
            assert not torch.equal(model(two), model(other))


# the authors' implementation

CLASSES = {
    1: ((0,), (1, 2, 3)),
    2: ((0, 2, 3), (1,)),
    3: ((0,), (1, 3), (2,)),
    4: ((0, 2), (1,), (3,)),
    5: ((0, 3), (1,), (2,)),
    6: ((0,), (1, 2), (3,)),
    7: ((0, 1), (2, 3)),
    8: ((0,), (1,), (2, 3)),
    9: ((0, 1), (2,), (3,)),
    10: ((0,), (1,), (2,), (3,)),
}
LIGHT_2_TO_2 = [((0, 1, 2, 3),), ((0, 2), (1, 3)), ((0, 3), (1, 2)), ((0, 1, 2), (3,)), ((0, 1, 3), (2,))]
QUERIES = {
    1: ("1", 0),
    2: ("1", 1),
    3: ("2", 0),
    5: ("2", 1),
    4: ("2", 2),
    6: ("2", 3),
    7: ("1", 2),
    8: ("1", 3),
    9: ("2", 4),
    10: ("2", 5),
}
KERNEL_KEYS = {
    1: ("1", 0),
    2: ("1", 1),
    3: ("1", 2),
    5: ("1", 3),
    4: ("1", 4),
    6: ("1", 5),
    7: ("1", 6),
    8: ("2", 0),
    9: ("1", 7),
    10: ("2", 1),
}
SOFTMAX_KEYS = {
    1: ("1", 0),
    2: ("1", 1),
    7: ("1", 2),
    3: ("1", 3),
    5: ("1", 4),
    4: ("1", 5),
    6: ("1", 6),
    9: ("1", 7),
    8: ("2", 0),
    10: ("2", 1),
}
VALUES = {1: 0, 2: 1, 3: 2, 5: 3, 4: 4, 6: 5, 7: 6, 8: 7, 9: 8, 10: 9}
OUTPUTS = {number: number - 1 for number in range(1, 11)}


def load_authors(layer: HigherOrderAttention, case, keys) -> None:
    """The authors' weights into ours: their slots in their order, ours plan after plan."""
    number = {blocks: n for n, blocks in CLASSES.items()}
    fc = {
        "1": case["w.fc_1.weight.weight"].reshape(1, 8, 48),
        "2": case["w.fc_2.weight.weight"].reshape(5, 8, 40),
    }
    bias = {"1": case["w.fc_1.bias.bias.0"][None], "2": torch.stack([case["w.fc_2.bias.bias.1"], case["w.fc_2.bias.bias.0"]])}
    with torch.no_grad():
        for name, mine in layer.maps.items():
            theirs = fc[name] if name == "1" else fc[name][[LIGHT_2_TO_2.index(c.blocks) for c in mine.classes]]
            columns = []
            for plans, where, offset in ((layer.queries, QUERIES, 0), (layer.keys, keys, 4 if name == "1" else 6)):
                for c in (c for plan in plans[int(name)] for c in plan):
                    order, slot = where[number[c.blocks]]
                    assert order == name
                    columns += range((slot + offset) * 4, (slot + offset) * 4 + 4)
            if name == "2":
                columns += range(32, 40)
            mine.weight.copy_(theirs[:, :, columns].flatten(0, 1))
            mine.bias.copy_(bias[name][:, columns])
        v = [s for c in layer.value_slots for s in range(VALUES[number[c.blocks]] * 4, VALUES[number[c.blocks]] * 4 + 4)]
        layer.value.weight.copy_(case["w.fc_v.weight"][v])
        layer.value.bias.copy_(case["w.fc_v.bias"][v])
        o = [s for c in layer.classes for s in range(OUTPUTS[number[c.blocks]] * 4, OUTPUTS[number[c.blocks]] * 4 + 4)]
        layer.output.weight.copy_(case["w.fc_o.weight"][:, o])
        layer.output.bias.copy_(case["w.fc_o.bias"])


@pytest.mark.parametrize(("name", "keys"), [("kernelattn_2to2_softmaxkernel", KERNEL_KEYS), ("selfattn_softmax_2to2", SOFTMAX_KEYS)])
def test_parity_with_the_authors_attention(parity, name, keys):
    case = parity(f"hot_{name}")
    support = parity_support(case)
    kernel = name.startswith("kernel")
    layer = HigherOrderAttention(
        2, 2, 8, 4, 4, 2, attention="kernel" if kernel else "softmax", key_order="summed", key_diagonal=kernel, key_stabilizer="call"
    )  # fmt: skip
    load_authors(layer, case, keys)
    features = None
    if kernel:
        features = RandomFeatures(2, 1, None, "softmax")
        features.projection.copy_(case["w.feature_map.feature_map.projection_matrix"])
    out = layer(to_rows(case, "in.values"), support, features)
    torch.testing.assert_close(out, to_rows(case, "out.y"), rtol=1e-10, atol=1e-10)
    (out * to_rows(case, "in.loss_weight")).sum().backward()
    gradients = HigherOrderAttention(2, 2, 8, 4, 4, 2, attention=layer.attention, key_order="summed", key_diagonal=kernel)
    load_authors(gradients, {"w" + name[1:]: value for name, value in case.items() if name.startswith("g.")}, keys)
    for (name, mine), (_, theirs) in zip(layer.named_parameters(), gradients.named_parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs, rtol=1e-10, atol=1e-10, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("stabilizer", ["graph", "call"])
def test_gradient_of_the_softmax_kernel_is_the_derivative(stabilizer):
    batch = checks.collate(checks.random_graphs(sizes=(4, 3)))
    support, features = Support.sparse(batch), RandomFeatures(2, 3, None, "softmax", eps=0.1)
    layer = HigherOrderAttention(2, 2, 4, 4, 4, 2, attention="kernel", key_stabilizer=stabilizer)
    values = torch.randn(len(support.sets[2]), 4, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: layer(v, support, features), values)


def parameters(model) -> int:
    return sum(p.numel() for p in model.parameters())


def test_parameter_counts_of_the_authors_models():
    """The runtime study's model exactly; the others to the digits that are known of them (by construction, from the released code)."""
    torch.set_default_dtype(torch.float32)
    runtime = create_model("hot-released", in_dim=16, out_dim=32, edge_dim=16, hidden_dim=32, num_layers=4, num_heads=4)
    assert parameters(runtime) == 387_840
    jets = create_model("hot-released", in_dim=10, out_dim=1, level="pair", hidden_dim=128, num_layers=4, num_heads=4, head_dims=[256])
    assert round(parameters(jets) / 1e6, 3) == 0.895
    delaunay = create_model(
        "hot-released", in_dim=2, out_dim=1, level="pair", hidden_dim=256, num_layers=5, head_dims=[256, 256], head_diagonal=True,
    )  # fmt: skip
    assert round(parameters(delaunay) / 1e6, 2) == 4.15
    with torch.device("meta"):
        pcqm = create_model(
            "hot-released", in_dim=[512] * 9, edge_dim=[512] * 3, out_dim=1, hidden_dim=512, num_layers=8, qk_dim=64, v_dim=64,
            readout_dim=256, readout_heads=16, head_dims=[], degree_embeddings=512,
        )  # fmt: skip
    assert round(parameters(pcqm) / 1e6, 1) == 59.8


# the whole model


def one_way_graph() -> GraphBatch:
    """Edges in one direction, or with other features in the other, a self-loop, and one edge twice."""
    return graph_of(5, [(0, 1), (1, 2), (2, 1), (3, 0), (2, 2), (0, 1)])


@pytest.mark.parametrize(
    ("level", "form"), [("graph", "sparse"), ("graph", "dense"), ("node", "sparse"), ("node", "dense"), ("pair", "dense")]
)
@pytest.mark.parametrize("attention", ["softmax", "kernel"])
def test_model_is_its_parts_one_after_the_other(level, attention, form):
    graph, arguments = one_way_graph(), {"readout_dim": 12, "readout_heads": 3, "ffn_dim": 5, "num_layers": 2, "input_order": 2}
    model = build(level, "hot-released", attention=attention, form=form, **arguments).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)
    assert [layer.attention.num_heads for layer in model.layers] == [2, 2, 3 if level == "graph" else 2]
    assert [layer.attention.qk_dim for layer in model.layers] == [8, 8, 12 if level == "graph" else 8]
    tuples, at = reference.tuples_of(model.support(graph)), {}
    for i in range(5):
        at[i, i] = torch.cat([graph.x[i], torch.zeros(3)])
    for edge, features in zip(graph.edge_index.T.tolist(), graph.edge_attr, strict=True):
        at[tuple(edge)] = at.get(tuple(edge), torch.zeros(7)) + torch.cat([torch.zeros(4), features])
    values = torch.stack([at.get(t, torch.zeros(7)) for t in tuples[2]])
    values = reference.run_linear(model.input_map, values, tuples)
    features = None if model.features is None else reference.generalized_features(model.features.projection)
    for layer in model.layers:
        values = reference.enc_layer(layer, values, tuples, features, reference.gelu)
    if level == "pair":
        values = values[[tuples[2].index((i, j)) for i in range(5) for j in range(5)]]
    expected = reference.layer_norm(values, model.head.norm) @ model.head.project.weight.T + model.head.project.bias
    torch.testing.assert_close(model(graph), expected, rtol=1e-10, atol=1e-10)


def test_settings_reach_every_layer():
    """What the reference reads from the layers themselves."""
    paper, authors = build("graph", num_layers=2), build("graph", "hot-released", num_layers=2, qk_dim=4, v_dim=6, redraw_interval=None)
    for model, widths, settings in (
        (paper, (8, 8), ("unique", False, "graph", False)),
        (authors, (4, 6), ("summed", True, "call", True)),
    ):
        for number, layer in enumerate(model.layers):
            attend = layer.attention
            assert (attend.k, attend.l) == (2, 0 if number == 2 else 2)
            assert (attend.qk_dim, attend.v_dim) == widths
            normalize = {m.normalize for m in attend.maps.values()}
            assert (attend.key_order, attend.key_diagonal, attend.key_stabilizer, *normalize) == settings
            assert attend.attention == ("softmax" if number == 2 else "kernel")
            assert layer.ffn_in.classes == layer.ffn_out.classes == light_classes(attend.l, attend.l)
    assert (paper.features.kernel, authors.features.kernel) == ("softmax", "relu")
    assert (paper.features.redraw_interval, authors.features.redraw_interval) == (1, None)


@pytest.mark.parametrize("edge_columns", ["sum", "mean"])
def test_categorical_input_by_loops(edge_columns):
    """Embeddings of all columns, of edges added up or averaged; two tables of in-degrees, the last row for all larger ones."""
    part = TensorInput(2, [5, 3], [4, 2], 6, edge_columns, degree_embeddings=3)
    edges = torch.tensor([[0, 1, 2, 3, 4], [1, 0, 1, 1, 1]])
    x, attr = torch.tensor([[0, 1], [4, 2], [3, 0], [0, 0], [1, 1]]), torch.tensor([[3, 1], [0, 0], [2, 1], [1, 0], [0, 1]])
    graph = GraphBatch(x, edges, torch.tensor([0, 5]), attr)
    support = Support.sparse(graph)
    out, node, edge = part(graph, support, torch.float64), part.node.embedding.weight, part.edge.embedding.weight
    for i in range(5):
        degree = min(2, sum(int(t == i) for t in edges[1]))
        expected = node[x[i, 0]] + node[5 + x[i, 1]] + part.degree[0].weight[degree] + part.degree[1].weight[degree]
        torch.testing.assert_close(out[i], torch.cat([expected, torch.zeros(6)]))
    for e, (s, t) in enumerate(edges.T.tolist()):
        expected = (edge[attr[e, 0]] + edge[4 + attr[e, 1]]) / (2 if edge_columns == "mean" else 1)
        torch.testing.assert_close(out[support.sets[2].index.tolist().index([s, t])], torch.cat([torch.zeros(6), expected]))


def test_head_by_loops():
    """LN, Linear, then an MLP; on the diagonal of the pairs each of its layers adds a second one."""
    batch = checks.collate(checks.random_graphs(sizes=(3, 2)))
    head, values = TensorHead(4, 2, [5], diagonal=True), torch.randn(13, 4)
    hidden = reference.layer_norm(values, head.norm) @ head.project.weight.T + head.project.bias
    for depth in range(2):
        own, extra, rows = head.mlp[depth], head.on_diagonal[depth], []
        for row, (i, j) in enumerate(zip(*batch.pair_nodes, strict=True)):
            out = own.weight @ hidden[row] + own.bias
            out = out + extra.weight @ hidden[row] + extra.bias if i == j else out
            rows.append(out.clamp(min=0) if depth == 0 else out)
        hidden = torch.stack(rows)
    torch.testing.assert_close(head(values, batch), hidden, rtol=1e-10, atol=1e-10)


# every level and form


@pytest.mark.parametrize(("name", "attention"), MODELS)
@pytest.mark.parametrize("level", ["graph", "node", "pair"])
def test_sound(level, name, attention):
    checks.assert_sound(lambda: build(level, name, attention=attention), checks.random_graphs(), level)


@pytest.mark.parametrize(
    "arguments",
    [
        {"form": "dense", "attention": "softmax"},
        {"form": "dense"},
        {"input_order": 1, "attention": "softmax"},
        {"kernel": "generalized", "redraw_interval": None},
        {"global_classes": False, "edge_dim": None},
        {"name": "hot-released", "readout_dim": 12, "readout_heads": 3, "qk_dim": 4, "v_dim": 6, "head_dims": [5]},
    ],
)
def test_sound_in_other_settings(arguments):
    checks.assert_sound(lambda: build("graph", **arguments), checks.random_graphs(), "graph")


def test_pairs_with_a_diagonal_head_and_edges_as_input():
    checks.assert_sound(lambda: build("pair", "hot-released", head_dims=[6], head_diagonal=True), checks.random_graphs(), "pair")
    checks.assert_sound(lambda: build("pair", input_order=2, attention="softmax"), checks.random_graphs(), "pair")


@pytest.mark.parametrize("input_order", [1, 2])
@pytest.mark.parametrize("attention", ["softmax", "kernel"])
def test_hyperedges(attention, input_order):
    """Batch = singles, and relabelled nodes keep the scores; every parameter learns."""
    graphs = checks.random_graphs(sizes=(6, 5))
    tuples = [torch.tensor([[0, 1, 2], [5, 3, 1], [0, 1, 2]]), torch.tensor([[4, 0, 2]])]
    for g, t in zip(graphs, tuples, strict=True):
        g.extras["hyperedge_index"] = t
    both = checks.collate(graphs)
    both.extras["hyperedge_index"] = torch.cat([tuples[0], tuples[1] + 6])

    def make():
        return build("hyperedge", attention=attention, input_order=input_order, global_classes=True)

    checks.assert_deterministic(make, both)
    checks.assert_gradients_reach(make(), both)
    model = make().eval()
    torch.testing.assert_close(model(both), torch.cat([model(g) for g in graphs]), rtol=1e-10, atol=1e-10)
    order = torch.randperm(6)
    moved = checks.permute(graphs[0], order)
    place = torch.empty_like(order)
    place[order] = torch.arange(6)
    moved.extras["hyperedge_index"] = place[tuples[0]]
    torch.testing.assert_close(model(moved), model(graphs[0]), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(model(graphs[0])[0], model(graphs[0])[2])  # the same tuple twice
    g = graphs[0]
    data = Data(x=g.x, edge_index=g.edge_index, edge_attr=g.edge_attr, hyperedge_index=tuples[0])
    torch.testing.assert_close(model(data), model(g), rtol=1e-10, atol=1e-10)


# unusual graphs and bad input


def graph_of(n: int, edges: list[tuple[int, int]]) -> GraphBatch:
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    return GraphBatch(torch.randn(n, 4), index, torch.tensor([0, n]), torch.randn(len(edges), 3))


@pytest.mark.parametrize("attention", ["softmax", "kernel"])
@pytest.mark.parametrize("level", ["graph", "node", "pair"])
def test_unusual_graphs_give_finite_numbers_and_gradients(level, attention):
    one, bare, loops = graph_of(1, []), graph_of(3, []), graph_of(4, [(0, 0), (0, 1), (1, 0), (1, 0), (3, 3)])
    model = build(level, attention=attention)
    for graph in (one, bare, loops):
        out = model(graph)
        out.square().sum().backward()
        assert out.isfinite().all()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    checks.assert_batch_equals_singles(model, [one, loops, bare])


def test_an_empty_graph_of_a_batch_changes_no_other():
    model = build("graph").eval()
    g = checks.random_graphs(sizes=(5,))[0]
    with_empty = GraphBatch(g.x, g.edge_index, torch.tensor([0, 0, 5]), g.edge_attr)
    out = model(with_empty)
    assert out.isfinite().all()
    torch.testing.assert_close(out[1:], model(g))


def test_parallel_edges_add_up_and_self_loops_stand_on_the_diagonal():
    model = build("node", attention="softmax").eval()
    g = graph_of(3, [(0, 1), (1, 0), (1, 2), (2, 1)])
    doubled = GraphBatch(g.x, torch.cat([g.edge_index, g.edge_index], 1), g.ptr, torch.cat([0.25 * g.edge_attr, 0.75 * g.edge_attr]))
    torch.testing.assert_close(model(doubled), model(g))
    loop = GraphBatch(g.x, torch.cat([g.edge_index, torch.tensor([[2], [2]])], 1), g.ptr, torch.cat([g.edge_attr, torch.ones(1, 3)]))
    assert not torch.allclose(model(loop), model(g))
    assert len(model.support(loop).sets[2]) == len(model.support(g).sets[2])


def test_torch_geometric_data_and_categorical_features():
    model = create_model("hot-released", in_dim=[5, 3], out_dim=2, edge_dim=[4], hidden_dim=8, num_layers=1, degree_embeddings=6)
    data = Data(
        x=torch.tensor([[0, 1], [4, 2], [3, 0]]),
        edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
        edge_attr=torch.tensor([0, 0, 3, 3]),
    )
    assert model(data).shape == (1, 2)


@pytest.mark.parametrize("attention", ["softmax", "kernel"])
def test_dropout_falls_on_attention_and_on_the_feed_forward(attention):
    support = Support.sparse(checks.random_graphs(sizes=(5,))[0])
    values, model = torch.randn(len(support.sets[2]), 8), build("node", attention=attention, num_layers=1, dropout=0.5)
    layer, features = model.layers[0], model.features
    for part in (layer.attention, layer):
        assert torch.equal(part.eval()(values, support, features), part(values, support, features))
        assert not torch.equal(part.train()(values, support, features), part(values, support, features))
    layer.attention.eval()
    assert not torch.equal(layer(values, support, features), layer(values, support, features))


def test_initialisation():
    """Xavier normal over the whole matrix of all classes, or slots; zero biases."""
    layer = HigherOrderAttention(2, 2, 64, 32, 32, 4)
    for linear in (*layer.maps.values(), EquivariantLinear(2, 2, 48, 40), layer.value, layer.output):
        assert linear.weight.std().item() == pytest.approx((2 / sum(linear.weight.shape)) ** 0.5, rel=0.05)
        assert (linear.bias == 0).all()


def test_projection_is_redrawn_in_training_only():
    graph = checks.random_graphs(sizes=(5,))[0]
    model = build("graph", redraw_interval=1)
    model.train()
    model(graph)
    drawn = model.features.projection.clone()
    model(graph)
    assert not torch.equal(model.features.projection, drawn)
    drawn = model.features.projection.clone()
    model.eval()
    assert torch.equal(model(graph), model(graph))
    assert torch.equal(model.features.projection, drawn)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_heads": 3}, "multiple of num_heads"),
        ({"v_dim": 9}, "multiple of num_heads"),
        ({"attention": "linear"}, "softmax, kernel"),
        ({"kernel": "relu"}, "generalized"),
        ({"form": "coo"}, "sparse or dense"),
        ({"input_order": 3}, "nodes and edges"),
        ({"name": "hot-released", "degree_embeddings": 4}, "vocabulary sizes"),
        ({"level": "hyperedge", "hyperedge_order": 2, "input_order": 2}, "input_order=1"),
        ({"level": "hyperedge", "hyperedge_order": 1}, "two nodes or more"),
    ],
)
def test_settings_that_cannot_be_say_what_can(arguments, message):
    with pytest.raises(ValueError, match=message):
        build(**arguments)


def test_settings_of_parts_that_cannot_be_say_what_can():
    with pytest.raises(ValueError, match="key_order='summed'"):
        HigherOrderAttention(2, 2, 4, 4, 4, 2, attention="kernel", key_diagonal=True)
    with pytest.raises(ValueError, match="sum, mean"):
        TensorInput(2, [5], [4], 6, "max")


def test_features_that_do_not_fit_are_refused():
    graph = checks.random_graphs(sizes=(4,))[0]
    with pytest.raises(ValueError, match="4 columns"):
        build()(GraphBatch(graph.x[:, :2], graph.edge_index, graph.ptr, graph.edge_attr))
    with pytest.raises(ValueError, match="edge_dim=None"):
        build()(GraphBatch(graph.x, graph.edge_index, graph.ptr))
    with pytest.raises(ValueError, match="5 columns"):
        build(edge_dim=5)(graph)
    with pytest.raises(ValueError, match="feature map"):
        build().layers[0](torch.randn(len(Support.sparse(graph).sets[2]), 8), Support.sparse(graph))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (None, "set batch.extras"),
        ([[0, 1]], r"give \[H, 3\]"),
        ([[0, 1, 1]], "twice"),
        ([[0, 1, 9]], "outside 0..7"),
        ([[0, 1, 6]], "two graphs"),
    ],
)
def test_hyperedges_that_do_not_fit_are_refused(index, message):
    batch = checks.collate(checks.random_graphs(sizes=(5, 3)))
    if index is not None:
        batch.extras["hyperedge_index"] = torch.tensor(index)
    with pytest.raises(ValueError, match=message):
        build("hyperedge")(batch)


# the linear cost


@pytest.mark.parametrize(
    "arguments", [{"name": "hot-released"}, {"name": "hot-released", "hidden_dim": 40, "num_features": 11}, {"kernel": "generalized"}]
)
@pytest.mark.parametrize(("level", "num_threads"), [("graph", 1), ("node", 3)])
def test_forms_of_the_kernel_agree(monkeypatch, arguments, level, num_threads):
    """Values and gradients, with groups of one graph in several pieces, isolated nodes, one-way edges, heads wider than a vector."""
    sizes, rng = (400, 3, 1, 60), torch.Generator().manual_seed(0)
    starts = torch.tensor([0, 400, 403, 404])
    edges = [torch.randint(0, n, (2, 3 * n), generator=rng) + start for n, start in zip(sizes, starts, strict=True)]
    index = torch.cat(edges, 1)
    batch = GraphBatch(torch.randn(464, 4), index, torch.tensor([0, 400, 403, 404, 464]), torch.randn(index.size(1), 3))
    model = build(level, **arguments, redraw_interval=None)
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)

    def run() -> list[torch.Tensor]:
        model.zero_grad()
        out = model(batch)
        (out * torch.arange(out.numel()).view_as(out).cos()).sum().backward()
        return [out.detach(), *[p.grad.clone() for p in model.parameters()]]

    compiled = run()
    with use("reference"):
        plain = run()
    for a, b in zip(compiled, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def test_kernel_form_holds_memory_linear_in_edges():
    """What autograd keeps for one layer, at 500 and 2,000 edges of one mean degree: four times as much, not sixteen."""

    def kept(n: int) -> int:
        rng = torch.Generator().manual_seed(0)
        index = torch.randint(0, n, (2, 5 * n), generator=rng)
        graph = GraphBatch(torch.randn(n, 4), index, torch.tensor([0, n]), torch.randn(5 * n, 3))
        total, model = [0], build("node", num_layers=0, redraw_interval=None)

        def pack(x):
            total[0] += x.numel()
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            model(graph)
        return total[0]

    small, large = kept(100), kept(400)
    assert 3 < large / small < 5
