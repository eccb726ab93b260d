"""Fast forms of models' methods: the numbers and gradients of the plain equations, and when they are not used."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gt_models import create_model
from gt_models.batch import GraphBatch
from gt_models.edge_transformer import EdgeTransformerLayer
from gt_models.hot import HigherOrderAttention
from gt_models.hot.support import Support
from gt_models.kernels import all_operations, forms_taken, use
from gt_models.kernels.attached import hot, polynormer, ppgt
from gt_models.layers.dropout import Dropout
from gt_models.layers.features import FeatureEncoder
from gt_models.layers.packing import Packing
from gt_models.layers.performer import RandomFeatures
from gt_models.layers.softmax_attention import SoftmaxAttention
from gt_models.layers.transformer import EncoderLayer, SelfAttention
from gt_models.ppgt.stem import PairStem
from gt_models.released.hot import ReleasedAttention
from tests.gt_models import checks
from tests.gt_models.edge_transformer import cases as of_edge_transformer
from tests.gt_models.polynormer import cases as of_polynormer
from tests.gt_models.ppgt import cases as of_ppgt

DOUBLE, SINGLE = torch.float64, torch.float32
PACKING = Packing.of(torch.tensor([4, 3, 5]), 12, None)
Taken = dict[str, set[str]]


def draw(*shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def sparse_rows() -> Tensor:
    x = torch.zeros(5, 300)
    x[torch.arange(4), torch.tensor([0, 7, 299, 7])] = torch.randn(4)
    return x.to_sparse_csr()


def hot_batch() -> GraphBatch:
    """A batch with parallel edges, a self-loop and a graph without edges."""
    edges = torch.tensor([[0, 1, 1, 4, 5, 7, 0, 3, 2], [1, 0, 2, 0, 7, 5, 1, 3, 4]])
    extras = {"hyperedge_index": torch.tensor([[0, 1, 2], [5, 7, 6], [0, 1, 2]])}
    x, attr = torch.randn(10, 4, dtype=DOUBLE), torch.randn(9, 3, dtype=DOUBLE)
    return GraphBatch(x, edges, torch.tensor([0, 5, 8, 10]), attr, extras=extras)


def hot_model(name: str = "hot", **arguments: Any) -> nn.Module:
    shape = {"hidden_dim": 8, "num_layers": 2, "num_heads": 2, "edge_dim": 3, "kernel": "generalized", "dropout": 0.3}
    return create_model(name, in_dim=4, out_dim=3, redraw_interval=None, **(shape | arguments)).double()


def of_hot(name: str, **arguments: Any) -> tuple[Callable, Taken]:
    softmax = {"hot_softmax": {"fused"}, "hot_attention": {"reference"}}
    return lambda: (hot_model(name, **arguments), hot_batch()), (
        softmax if "attention" in arguments else {"kernel_attention": {"numba"}}
    )


def of_polynormers(operations: tuple[str, ...] = ("polynormer_local",), **arguments: Any) -> tuple[Callable, Taken]:
    def build() -> tuple[nn.Module, GraphBatch]:
        graphs = [*of_polynormer.graphs(), of_polynormer.messy_graph()]
        for graph in graphs:
            graph.edge_attr = None
        batch = checks.collate(graphs)
        return of_polynormer.build(dropout=0.4, in_dropout=0.2, relu=True, **arguments), batch

    return build, {name: {"one product"} for name in operations}


def of_ppgts(**arguments: Any) -> tuple[Callable, Taken]:
    def build() -> tuple[nn.Module, GraphBatch]:
        return of_ppgt.small(**arguments).train(), checks.collate(of_ppgt.graphs((4, 1, 6, 19)))

    return build, {"ppgt_bias_and_gate": {"one product"}, "gated_attention": {"numba"}}


def ppgt_in_single_precision() -> tuple[nn.Module, GraphBatch]:
    model = create_model("ppgt", **of_ppgt.ZINC | {"num_layers": 2, "rrwp_dim": 5, "edge_dim": None, "in_dim": 3})
    graphs = checks.random_graphs((16,) * 33, pair_encodings=(("rrwp", 5),), in_dim=3)
    return model, checks.collate(graphs).to("cpu", SINGLE)


def edge_transformer(rate: float, act: str, sizes: tuple[int, ...] = (18, 20)) -> Callable:
    def build() -> tuple[nn.Module, Tensor, GraphBatch]:
        batch = checks.collate(of_edge_transformer.graphs(sizes))
        return EdgeTransformerLayer(64, 16, rate, rate, act), draw(batch.num_pairs, 64, dtype=SINGLE), batch

    return build


def grit() -> tuple[nn.Module, GraphBatch]:
    sizes = {"in_dim": 4, "out_dim": 2, "hidden_dim": 8, "num_layers": 2, "num_heads": 2, "rrwp_dim": 4}
    batch = checks.collate(checks.random_graphs((5, 1, 7), pair_encodings=(("rrwp", 4),)))
    return create_model("grit", **sizes, norm="layer", attn_dropout=0.3).double(), batch


ONEDNN = {"triangular_attention_maps": {"oneDNN"}, "pair_feed_forward": {"oneDNN"}, "triangular_attention": {"numba"}}
MAPS = {"encoder_feed_forward": {"linear maps"}, "attention_projection": {"linear maps"}}
# (module, its arguments), and the forms that its operations use
MODULES: dict[str, tuple[Callable[[], tuple], Taken]] = {
    "dropout": (lambda: (Dropout(0.3), draw(40, 7)), {"dropout_module": {"one pass"}, "dropout": {"numba"}}),
    "features": (lambda: (FeatureEncoder(300, 8), sparse_rows()), {"feature_projection": {"sparse"}}),
    "softmax attention": (
        lambda: (SoftmaxAttention(2, 0.5).double(), None, draw(12, 12), PACKING),
        {"softmax_attention": {"no weights"}, "packed_attention": {"numba"}},
    ),
    "encoder": (lambda: (EncoderLayer(16, 4, 32, 0.3, 0.0, 0.2).double(), draw(12, 16), PACKING), MAPS),
    "encoder, first tokens": (
        lambda: (EncoderLayer(16, 4, 32, 0.3, 0.0, 0.2).double(), draw(12, 16), PACKING, True), MAPS,
    ),
    "edge transformer": (edge_transformer(0.0, "gelu"), ONEDNN | {"gelu_mlp": {"numba"}}),
    "edge transformer, dropout": (edge_transformer(0.3, "gelu"), ONEDNN),
    "edge transformer, relu": (edge_transformer(0.0, "relu"), ONEDNN),
    "grit": (grit, {"grit_attention_and_maps": {"by query"}}),
    "hot, nodes": of_hot("hot", level="node"),
    "hot, graphs": of_hot("hot", level="graph", form="dense"),
    "hot, hyperedges": of_hot("hot", level="hyperedge"),
    "hot, no global classes": of_hot("hot", level="node", global_classes=False),
    "hot, softmax": of_hot("hot", level="node", attention="softmax"),
    "hot-released": of_hot("hot-released", level="node"),
    "hot-released, softmax": of_hot("hot-released", level="node", attention="softmax"),
    "polynormer": of_polynormers(),
    "polynormer, gcn": of_polynormers(local_layer="gcn", version="v2"),
    "polynormer, random walk": of_polynormers(local_layer="random-walk", norm="none"),
    "polynormer, both": of_polynormers((), attention="local-and-global"),
    "polynormer-released": of_polynormers(
        ("polynormer_released_local",), name="polynormer-released", beta="raw", beta_init=0.3
    ),
    "polynormer-released, large graphs": of_polynormers(
        ("polynormer_released_local",), name="polynormer-released", local_layer="gcn", beta="constant", beta_init=0.9,
        batch_norm=True, input_layer=False,
    ),
    "ppgt": of_ppgts(attn_dropout=0.3, drop_path=0.2),
    "ppgt, dot products": of_ppgts(attention="sdp", urpe=False, norm="rms", attn_dropout=0.3),
    "ppgt-released": of_ppgts(name="ppgt-released", attn_dropout=0.3, layer_scale=0.5, stem_norm=True),
    "ppgt-released, no gate": of_ppgts(name="ppgt-released", urpe=False, stem_ffn_init="kaiming"),
    "ppgt, single precision": (
        ppgt_in_single_precision, {"gelu_mlp": {"numba"}, "multi_linear": {"onednn"}, "ada_rms": {"numba"}},
    ),
}  # fmt: skip


def step(module: nn.Module, inputs: tuple, form: str | None) -> tuple[list[Tensor], Taken]:
    """Output and gradients, and the forms that were used."""
    torch.manual_seed(1)
    leaves = [t for t in (*inputs, *module.parameters()) if isinstance(t, Tensor) and t.requires_grad]
    with use(form), forms_taken() as taken:
        out = module(*inputs)
    gradients = torch.autograd.grad(out.sin().sum(), leaves, allow_unused=True, materialize_grads=True)
    return [out.detach(), *gradients], {name: set(forms) for name, forms in taken.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_fast_forms_are_the_equations(name):
    build, wanted = MODULES[name]
    torch.manual_seed(0)
    module, *inputs = build()
    (expected, plain), (found, taken) = step(module, inputs, "reference"), step(module, inputs, None)
    for right, other in zip(expected, found, strict=True):
        if right.dtype == DOUBLE:
            torch.testing.assert_close(other, right, rtol=1e-9, atol=1e-9)
        else:
            assert (other - right).norm() <= 1e-3 * right.norm() + 1e-5
    assert all(forms == {"reference"} for forms in plain.values())
    assert wanted.items() <= taken.items()


# (case, child, operation that reads the child's parameters)
CHILDREN = [
    ("encoder", "ffn_in", "encoder_feed_forward"),
    ("encoder", "attn.qkv", "attention_projection"),
    ("softmax attention", "dropout", "softmax_attention"),
    ("features", "linear", "feature_projection"),
    ("edge transformer", "attention.projections", "triangular_attention_maps"),
    ("edge transformer", "ffn.hidden", "pair_feed_forward"),
    ("grit", "layers.0.attention.key", "grit_attention_and_maps"),
    ("polynormer", "local_layers.0.gate", "polynormer_local"),
    ("ppgt", "layers.1.attention.pair_linear", "ppgt_bias_and_gate"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "child", "operation"), CHILDREN)
@pytest.mark.parametrize("change", ["hook", "forward"])  # activation checkpointing replaces forward
def test_a_child_that_does_more_is_called(name, child, operation, change):
    torch.manual_seed(0)
    module, *inputs = MODULES[name][0]()
    (expected, _), layer, seen = step(module.eval(), inputs, None), module.get_submodule(child), []
    if change == "hook":
        layer.register_forward_hook(lambda *_: seen.append(1))
    else:
        forward = layer.forward
        layer.forward = lambda *args, **named: seen.append(1) or forward(*args, **named)
    found, taken = step(module, inputs, None)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-4)
    assert seen
    assert "reference" in taken[operation]


@pytest.mark.slow
def test_a_layer_in_place_of_a_linear_map_is_called():
    model, x, batch = edge_transformer(0.0, "gelu")()
    before = model(x, batch)
    model.attention.projections = nn.Sequential(model.attention.projections, nn.Tanh())
    with forms_taken() as taken:
        assert not torch.allclose(model(x, batch), before, rtol=1e-4, atol=1e-4)
    assert taken["triangular_attention_maps"] == {"reference": 1}
    assert taken["triangles"] == {"no triples": 1}  # this part is unchanged
    encoder, x = FeatureEncoder(300, 8), torch.randn(5, 300)
    encoder.linear = nn.Sequential(encoder.linear, nn.ReLU())
    assert torch.equal(encoder(x.to_sparse_csr()), encoder.linear(x))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_projection_is_a_third_of_the_maps(which):
    attention, x = SelfAttention(6, 2).double(), draw(5, 6)
    with forms_taken() as taken:
        found = attention.project_one(x, which)
    assert taken["attention_projection_of_one"] == {"linear maps": 1}
    torch.testing.assert_close(found, attention.qkv(x)[:, 6 * which : 6 * which + 6], rtol=1e-12, atol=1e-12)


def test_sparse_rows_and_half_precision_take_plain_dropout():
    for x in (torch.eye(5).to_sparse_csr(), torch.ones(5, dtype=torch.bfloat16)):
        with forms_taken() as taken:
            Dropout(0.3)(x)
        assert taken == {"dropout_module": {"reference": 1}}


@pytest.mark.slow
def test_small_maps_and_another_gelu_are_torch_s():
    model, x, batch = edge_transformer(0.0, "gelu", (3,))()
    with forms_taken() as taken:
        model(x, batch)
    assert taken["triangular_attention_maps"] == taken["pair_feed_forward"] == {"reference": 1}
    model, x, batch = edge_transformer(0.0, "gelu")()
    model.ffn.activation = nn.GELU("tanh")
    with forms_taken() as taken:
        model(x, batch)
    assert "gelu_mlp" not in taken


# -- HOT ---------------------------------------------------------------------------------------------------------------


class Scaled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize("kind", [HigherOrderAttention, ReleasedAttention])
def test_hot_s_kernel_is_for_the_relu_kernel_and_plain_children(kind):
    support, values = Support.sparse(hot_batch()), draw(10 + 7, 4)
    relu, (numba,) = RandomFeatures(2, 3, None, "relu"), all_operations()["hot_attention"].forms

    def runs(layer: nn.Module, features: RandomFeatures | None = relu) -> bool:
        return numba.why_not(layer, values, support, features) is None

    layer = kind(2, 2, 4, 4, 4, 2, attention="kernel")
    assert runs(layer)
    with torch.autocast("cpu", torch.bfloat16):
        assert not runs(layer)
    assert not runs(layer, None)
    assert not runs(layer, RandomFeatures(2, 3, None, "softmax"))
    assert not runs(kind(2, 2, 4, 4, 4, 2))
    for child in (layer.maps["2"], relu):
        handle = child.register_forward_hook(lambda *_: None)
        assert not runs(layer)
        handle.remove()
    layer.output = Scaled(40, 4)
    assert not runs(layer)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("columns", [slice(None), slice(16, None)])
def test_a_large_product_of_hot_is_given_to_onednn_without_gaps(monkeypatch, turned, columns):
    """oneDNN is a thousand times slower for a weight with gaps between its rows and columns."""
    whole, given = draw(64, 48, dtype=SINGLE), []
    weight = whole[:, columns].T if turned else whole[:, columns]
    x, bias = draw(1 + hot.LARGE // weight.numel(), weight.size(1), dtype=SINGLE), torch.randn(weight.size(0))
    monkeypatch.setattr(hot, "linear", lambda x, w, b: given.append(w) or F.linear(x, w, b))
    torch.testing.assert_close(hot._product(x, weight, bias), F.linear(x, weight, bias))
    assert given[0].is_contiguous() or given[0].T.is_contiguous()
    hot._product(x[1:2], weight, bias)
    assert len(given) == 1


def test_the_first_batch_may_have_no_nodes():
    """The self-check of a kernel at its first use must not depend on the sizes of the batch."""
    kernel = all_operations()["kernel_attention"]
    kernel._failed.clear()
    model = hot_model(level="node", edge_dim=None)
    out = model(GraphBatch(torch.zeros(0, 4), torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 0])))
    assert out.shape == (0, 3)
    assert set(kernel._failed.values()) <= {None}


# -- Polynormer on a GPU -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_nodes", [4, 8, 11])
def test_attention_in_chunks_is_the_equation(num_nodes, monkeypatch):
    monkeypatch.setattr(polynormer.linear_attention, "CHUNK", 4)
    layer, graph = of_polynormer.build().global_layers[0].attention, checks.random_graphs((num_nodes,))[0]
    given = [torch.rand(num_nodes, 8, dtype=DOUBLE, requires_grad=True) for _ in range(3)]
    results = []
    for attend in (layer.attend, lambda *args: polynormer.in_chunks(layer, *args)):
        out = attend(*given, graph)
        results.append([out, *torch.autograd.grad(out.sin().sum(), given)])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    (form,) = all_operations()["polynormer_attention"].forms
    assert form.devices == ("cuda",)
    assert (form.why_not(layer, *given, graph) is None) == (num_nodes >= 8)
    assert form.why_not(layer, *given, checks.collate(of_polynormer.graphs())) is not None


def test_the_output_step_of_a_layer_is_equation_17():
    local = of_polynormer.build(dropout=0.3, relu=True).local_layers[0]
    h, a = torch.randn(2, 9, 8, dtype=DOUBLE)
    results = []
    for combine in (polynormer.combine, type(local).combine):
        torch.manual_seed(2)
        results.append(combine(local, h, a, None))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)
    (form,) = all_operations()["polynormer_combine"].forms
    assert form.devices == ("cuda",)
    assert form.why_not(local, h, a, None) is None
    assert form.why_not(local, h, a, h[:, :1]) is not None  # b differs from node to node
    assert form.why_not(of_polynormer.build(norm="none").local_layers[0], h, a, None) is not None


# -- PPGT --------------------------------------------------------------------------------------------------------------


def test_a_subclass_of_attention_keeps_its_equations():
    class Squared(ppgt.SL2Attention):
        def bias_and_gate(self, p):
            return super().bias_and_gate(p).square()

    model, batch = of_ppgt.small(), checks.collate(of_ppgt.graphs())
    before = model(batch)
    for layer in model.layers:
        layer.attention.__class__ = Squared
    assert not torch.allclose(model(batch), before)


def stem_and_inputs(norm: str = "adarms") -> tuple[PairStem, list[Tensor]]:
    torch.manual_seed(0)
    stem = PairStem(7, 16, 16, 2, 2, 3, norm).double()
    return stem, [torch.rand(70, width, dtype=DOUBLE, requires_grad=True) for width in (7, 16, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("functional", [False, True])
def test_a_stem_in_chunks_learns_as_a_whole_one(functional, monkeypatch):
    monkeypatch.setattr(ppgt, "CHUNK", 16)
    monkeypatch.setattr(ppgt, "LARGE", 32)
    found = []
    for form in ("reference", None):
        stem, inputs = stem_and_inputs()
        given = {name: (1.1 * p.detach()).requires_grad_() for name, p in stem.named_parameters()}
        with use(form), forms_taken() as taken:
            out = torch.func.functional_call(stem, given, tuple(inputs)) if functional else stem(*inputs)
        leaves = [*inputs, *(given.values() if functional else stem.parameters())]
        found.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    assert taken["ppgt_pairs_of_PairStem"]["in chunks"] == 1
    for expected, other in zip(*found, strict=True):
        torch.testing.assert_close(other, expected, rtol=1e-10, atol=1e-10)


def test_few_pairs_batch_norm_and_hooks_are_not_taken_in_chunks(monkeypatch):
    form = all_operations()["ppgt_pairs_of_PairStem"].forms[0]
    stem, (raw, *_) = stem_and_inputs()
    assert form.why_not(stem, raw) is not None
    monkeypatch.setattr(ppgt, "LARGE", 32)
    assert form.why_not(stem, raw) is None
    assert form.why_not(stem_and_inputs("batch")[0], raw) is not None
    for module in (stem.blocks[1].norm, stem):
        handle = module.register_forward_hook(lambda *_: None)
        assert form.why_not(stem, raw) is not None
        handle.remove()


def test_all_models_of_ppgt_have_the_attached_forms():
    for name, changes in (("ppgt-node2subgraph-released", {"edge_dim": None}), ("i2gnn-ppgt", {})):
        given = {key: value for key, value in of_ppgt.SMALL.items() if changes.get(key, value) is not None}
        model = create_model(name, **given).double()
        data = checks.random_graphs((5, 3, 6), pair_encodings=(("rrwp", 5),), node_encodings=(("target", 1),))
        with forms_taken() as taken:
            model(checks.collate(data))
        assert dict(taken["ppgt_bias_and_gate"]) == {"one product": 1}
        assert dict(taken["ppgt_released_attention"]) == {"by graph": 2}
